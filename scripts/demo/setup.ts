/** The three clusters of the demo, the workload, and the project installed around it. */

import { BARE, Cluster, type ClusterOptions } from "../control-plane/cluster.ts";
import { KWOK_ANNOTATIONS } from "../control-plane/kwok/annotations.ts";
import { AvailabilityJudge } from "./availability.ts";
import { Federation, NAMESPACE, OWNER_CRD, ownerCrd, WORKLOAD } from "./federation.ts";
import { install } from "./install.ts";
import type { Narrator } from "./narrator.ts";
import { PROMISED, REPLICAS } from "./scenes.ts";
import { DemoStage } from "./stage.ts";

const NODES = 2;

export const AUDIT_LOG = "files/audit.log";
/** Deletions and evictions of pods, with the webhook's audit annotations. */
const AUDIT_POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  rules: [
    { level: "Metadata", verbs: ["delete", "deletecollection"], resources: [{ group: "", resources: ["pods"] }] },
    { level: "Metadata", verbs: ["create"], resources: [{ group: "", resources: ["pods/eviction"] }] },
    { level: "None" },
  ],
};
const AUDITED: ClusterOptions = {
  files: { "audit.yaml": JSON.stringify(AUDIT_POLICY) },
  flags: { "kube-apiserver": { "audit-policy-file": "$FILES/audit.yaml", "audit-log-path": "$FILES/audit.log" } },
};

const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };

/** Pods take two seconds to become ready and one to end, so that a viewer can follow. */
const workload = {
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: { name: WORKLOAD, namespace: NAMESPACE, labels: { "podseidon.kubewharf.io/protect": "true" } },
  spec: {
    replicas: REPLICAS,
    selector: { matchLabels: { app: WORKLOAD } },
    strategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "20%", maxSurge: "20%" } },
    template: {
      metadata: {
        labels: { app: WORKLOAD },
        annotations: { [KWOK_ANNOTATIONS.readyAfter]: "2s", [KWOK_ANNOTATIONS.terminateAfter]: "1s" },
      },
      spec: { containers: [{ name: "web", image: "web:v1" }] },
    },
  },
};

/** All running parts; `stop` ends them in order. */
export interface Demo {
  readonly clusters: readonly Cluster[];
  readonly stage: DemoStage;
  stop(): Promise<void>;
}

export async function startClusters(): Promise<readonly [Cluster, Cluster, Cluster]> {
  // The core runs no controllers: the promises do not depend on them.
  return await Promise.all([
    Cluster.start({ name: "core", ...BARE }),
    Cluster.start({ name: "worker-1", nodes: NODES, ...AUDITED }),
    Cluster.start({ name: "worker-2", nodes: NODES, ...AUDITED }),
  ]);
}

/** Installs the project, deploys the workload, and resolves when ten pods are available and eight are promised. */
export async function setUp(
  core: Cluster,
  workers: readonly Cluster[],
  bundles: string,
  narrator: Narrator,
): Promise<Demo> {
  await Promise.all([core.apply([namespace]), ...workers.map(prepareWorker)]);
  narrator.say("Applying manifests/ and starting the project's processes under its ServiceAccounts.");
  const installation = await install(core, workers, bundles, (description) => narrator.say(description));
  narrator.say(
    `${installation.pods.length} processes are ready: ${tally(installation.pods.map(({ deployment }) => deployment))}.`,
  );
  await core.apply([workload]);
  const federation = new Federation(core, workers);
  federation.start();
  const availability = await AvailabilityJudge.watch(workers, NAMESPACE);
  const stage = new DemoStage(core, workers, availability, narrator, installation);
  await stage.untilWhole(REPLICAS);
  await stage.until(`the promise of ${PROMISED}`, async () => (await stage.required()) === PROMISED);
  const clusters = [core, ...workers];
  const stop = async (): Promise<void> => {
    await federation.stop();
    await availability.stop();
    await installation.stop();
    await Promise.all(clusters.map((cluster) => cluster.stop()));
  };
  return { clusters, stage, stop };
}

/**
 * Creates the federation's kind before the garbage collector starts, because the collector looks for new kinds only
 * every 30 s.
 */
async function prepareWorker(worker: Cluster): Promise<void> {
  await worker.apply([namespace, ownerCrd]);
  await worker.waitFor(`${OWNER_CRD} to be served`, async () => {
    const answer = await worker.admin.request("GET", "/apis/fleet.example.com/v1/workloads");
    return answer.status === 200;
  });
  await worker.processes["kube-controller-manager"].restart();
}

/** `2 a, 1 b` */
function tally(names: readonly string[]): string {
  return [...Map.groupBy(names, (name) => name)].map(([name, all]) => `${all.length} ${name}`).join(", ");
}
