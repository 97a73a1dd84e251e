/** A rolling update and a drain as users do them, on an installation of one cluster; with and without the project in the way. */
import type { Cluster } from "../control-plane/cluster.ts";
import type { WebhookReplica } from "../environment/webhook-process.ts";

const NAMESPACE = "default";
const FINISH_WITHIN_MS = 300_000;

/** Where it happens: an estate, or a cluster that has the CRD and nothing else of the project. */
export interface RolloutSite {
  readonly core: Cluster;
  readonly webhooks: readonly Pick<WebhookReplica, "component">[];
}

export interface Figures {
  readonly tookMs: number;
  /** Deletions and evictions that the webhook refused, busy answers that clients repeat by themselves included. */
  readonly refusals: number;
}

/** Creates a Deployment of `replicas`, and its protector as the Deployment controller's maxUnavailable of 25% implies. */
export async function deploy(estate: RolloutSite, name: string, replicas: number): Promise<void> {
  const labels = { app: name };
  const template = {
    metadata: { labels },
    spec: { terminationGracePeriodSeconds: 5, containers: [{ name: "app", image: "app:1" }] },
  };
  const strategy = { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "25%", maxSurge: "25%" } };
  const spec = { replicas, selector: { matchLabels: labels }, strategy, template };
  const cluster = estate.core;
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

/** Rolls the Deployment to another image and waits until the rollout is complete. */
export async function roll(estate: RolloutSite, name: string, replicas: number, image: string): Promise<Figures> {
  return measured(estate, async () => {
    const spec = { template: { spec: { containers: [{ name: "app", image }] } } };
    await estate.core.admin.call(
      "PATCH",
      `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${name}`,
      { spec },
      { contentType: "application/strategic-merge-patch+json" },
    );
    await finished(estate.core, name, replicas);
  });
}

/** `kubectl drain` of one node, until it has ended and the workload is whole again; rejects when kubectl gives up. */
export async function drain(estate: RolloutSite, node: string, name: string, replicas: number): Promise<Figures> {
  const figures = await measured(estate, async () => {
    const result = await estate.core.kubectl(["drain", node, "--ignore-daemonsets", "--timeout=280s"], {
      timeoutMs: FINISH_WITHIN_MS,
    });
    if (result.code !== 0) throw new Error(`kubectl drain ended with ${result.code}: ${result.stderr.slice(-2000)}`);
    await finished(estate.core, name, replicas);
  });
  await estate.core.kubectl(["uncordon", node]);
  return figures;
}

async function measured(estate: RolloutSite, work: () => Promise<void>): Promise<Figures> {
  const before = await refusals(estate);
  const startedMs = performance.now();
  await work();
  return { tookMs: performance.now() - startedMs, refusals: (await refusals(estate)) - before };
}

/** Deletions and evictions that were refused since the replicas started, busy answers included. */
export async function refusals(estate: RolloutSite): Promise<number> {
  let sum = 0;
  for (const { component } of estate.webhooks) {
    for (const outcome of ["denied", "busy"])
      sum += (await component.metric("podseidon_webhook_reviews_total", { outcome })) ?? 0;
  }
  return sum;
}

async function finished(cluster: Cluster, name: string, replicas: number): Promise<void> {
  await cluster.waitFor(
    `deployment ${name} to have ${replicas} updated and available replicas`,
    async () => {
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
