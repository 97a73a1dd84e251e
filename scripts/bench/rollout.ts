/** A rolling update and a drain, like users do them, in one cluster, with the project and without it. */
import { readFileSync } from "node:fs";
import { Cluster } from "../control-plane/cluster.ts";
import { CRD, TestEnvironment } from "../environment/environment.ts";
import type { WebhookReplica } from "../environment/webhook-process.ts";
import { ratio, table } from "./fixture/figures.ts";

const NAMESPACE = "default";
const FINISH_WITHIN_MS = 300_000;

/** A test environment, or a cluster that has the CRD and nothing else of the project. */
export interface RolloutSite {
  readonly core: Cluster;
  readonly webhooks: readonly Pick<WebhookReplica, "component">[];
}

interface RolloutFigures {
  readonly tookMs: number;
  /** Deletions and evictions that the webhook denied, with busy responses, which clients repeat by themselves. */
  readonly refusals: number;
}

/** Creates a Deployment of `replicas`, and its protector with the minimum that maxUnavailable of 25% implies. */
export async function deploy(site: RolloutSite, name: string, replicas: number): Promise<void> {
  const labels = { app: name };
  const template = {
    metadata: { labels },
    spec: { terminationGracePeriodSeconds: 5, containers: [{ name: "app", image: "app:1" }] },
  };
  const strategy = { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "25%", maxSurge: "25%" } };
  const spec = { replicas, selector: { matchLabels: labels }, strategy, template };
  const cluster = site.core;
  const minAvailable = replicas - Math.floor(replicas / 4);
  const protector = { minAvailable, minReadySeconds: 0, selector: { matchLabels: labels } };
  await cluster.apply([
    { apiVersion: "apps/v1", kind: "Deployment", metadata: { name, namespace: NAMESPACE }, spec },
    {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: { name, namespace: NAMESPACE },
      spec: protector,
    },
  ]);
  await finished(cluster, name, replicas);
}

/** Rolls the Deployment to another image and waits until the rollout is complete; `atPoll` runs at each look at it. */
export async function roll(
  site: RolloutSite,
  name: string,
  replicas: number,
  image: string,
  atPoll?: () => Promise<void>,
): Promise<RolloutFigures> {
  return measured(site, async () => {
    const spec = { template: { spec: { containers: [{ name: "app", image }] } } };
    await site.core.admin.call(
      "PATCH",
      `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${name}`,
      { spec },
      { contentType: "application/strategic-merge-patch+json" },
    );
    await finished(site.core, name, replicas, atPoll);
  });
}

/**
 * `kubectl drain` of one node, until it has ended and all replicas are available again; rejects when kubectl gives up.
 */
export async function drain(site: RolloutSite, node: string, name: string, replicas: number): Promise<RolloutFigures> {
  const figures = await measured(site, async () => {
    const result = await site.core.kubectl(["drain", node, "--ignore-daemonsets", "--timeout=280s"], {
      timeoutMs: FINISH_WITHIN_MS,
    });
    if (result.code !== 0) throw new Error(`kubectl drain ended with ${result.code}: ${result.stderr.slice(-2000)}`);
    await finished(site.core, name, replicas);
  });
  await site.core.kubectl(["uncordon", node]);
  return figures;
}

async function measured(site: RolloutSite, work: () => Promise<void>): Promise<RolloutFigures> {
  const before = await refusals(site);
  const startedMs = performance.now();
  await work();
  return { tookMs: performance.now() - startedMs, refusals: (await refusals(site)) - before };
}

/** Deletions and evictions that the replicas have denied since they started, with busy responses. */
export async function refusals(site: RolloutSite): Promise<number> {
  let sum = 0;
  for (const { component } of site.webhooks) {
    for (const outcome of ["denied", "busy"])
      sum += (await component.metric("podseidon_webhook_reviews_total", { outcome })) ?? 0;
  }
  return sum;
}

async function finished(
  cluster: Cluster,
  name: string,
  replicas: number,
  atPoll: () => Promise<void> = async () => {},
): Promise<void> {
  await cluster.waitFor(
    `deployment ${name} to have ${replicas} updated and available replicas`,
    async () => {
      await atPoll();
      const deployment = Object(await cluster.admin.get(`/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${name}`));
      const { status, metadata } = deployment;
      const whole = [status?.updatedReplicas, status?.availableReplicas, status?.replicas].every(
        (count) => count === replicas,
      );
      return whole && status?.observedGeneration === metadata?.generation;
    },
    FINISH_WITHIN_MS,
  );
}

const ROLLED = 200;
/** Spread over three nodes, so that a drain moves 50. */
const DRAINED = 150;
const CELL = { nodes: 3 };

type RolloutAndDrain = Readonly<Record<"rolled" | "drained", RolloutFigures>>;

/** Compares a cluster with the project and one without it, one after the other. */
export async function rolloutTable(): Promise<string> {
  const without = await withoutProject();
  const withIt = await withProject();
  const line = (title: string, of: (both: RolloutAndDrain) => RolloutFigures): string[] => [
    title,
    seconds(of(withIt)),
    seconds(of(without)),
    ratio(of(withIt).tookMs, of(without).tookMs),
    String(of(withIt).refusals),
  ];
  return table(
    ["until finished", "with the project", "without", "ratio", "denied or told to retry"],
    [
      line(`rolling update of ${ROLLED} replicas`, ({ rolled }) => rolled),
      line(`kubectl drain of a node with ${DRAINED / CELL.nodes} protected pods`, ({ drained }) => drained),
    ],
  );
}

async function withProject(): Promise<RolloutAndDrain> {
  await using environment = await TestEnvironment.start({ cells: ["cell"], single: true, cell: CELL });
  return await rollAndDrain(environment);
}

async function withoutProject(): Promise<RolloutAndDrain> {
  await using core = await Cluster.start({ name: "without", ...CELL });
  await core.apply(readFileSync(CRD, "utf8"));
  return await rollAndDrain({ core, webhooks: [] });
}

async function rollAndDrain(site: RolloutSite): Promise<RolloutAndDrain> {
  await deploy(site, "web", ROLLED);
  const rolled = await roll(site, "web", ROLLED, "app:2");
  await site.core.kubectl(["delete", "podprotector/web", "deployment/web"]);
  await deploy(site, "drained", DRAINED);
  const drained = await drain(site, "node-1", "drained", DRAINED);
  return { rolled, drained };
}

function seconds({ tookMs }: RolloutFigures): string {
  return `${(tookMs / 1000).toFixed(1)} s`;
}
