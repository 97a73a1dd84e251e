/** The scenes of the demo, in order. Each begins and ends with ten available pods. */
import { COUNTED_CONDITION, COUNTED_GATE } from "../../shared/schema/annotations.ts";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { NAMESPACE, OWNER_CRD, ownerCrd, WORKLOAD } from "./federation.ts";
import { type DemoScene, type DemoStage, reviewsSince } from "./stage.ts";

export const REPLICAS = 10;
export const PROMISED = 8;
const SCALED_DOWN = 6;
const HOLD_MS = 5_000;
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${WORKLOAD}`;

/** Plays `act`, and checks that at least `floor` pods were available after every change of a pod. */
async function withFloor(stage: DemoStage, floor: number, act: () => Promise<void>): Promise<void> {
  stage.availability.from();
  await act();
  const { lowest, lowestBecause } = stage.availability;
  if (floor === PROMISED) stage.lowest = Math.min(stage.lowest, lowest);
  const because = lowest < floor ? ` (${lowestBecause})` : "";
  stage.promise(lowest >= floor, `never fewer than ${floor} available: the lowest was ${lowest}${because}`);
}

async function isRolledOut(worker: Cluster, image: string): Promise<boolean> {
  const deployment = await worker.admin.get(DEPLOYMENT);
  const wanted = field(deployment, "spec", "replicas");
  const current = field(deployment, "spec", "template", "spec", "containers", 0, "image") === image;
  const observed = field(deployment, "status", "observedGeneration") === field(deployment, "metadata", "generation");
  const counts = ["replicas", "updatedReplicas", "availableReplicas"].map((name) => field(deployment, "status", name));
  return current && observed && counts.every((count) => count === wanted);
}

async function inAll(stage: DemoStage, holds: (worker: Cluster) => Promise<boolean>): Promise<boolean> {
  return (await Promise.all(stage.workers.map(holds))).every(Boolean);
}

/** Gives the workload this image, waits for the rollouts in both clusters, and returns the webhook's answers. */
async function rollOut(stage: DemoStage, image: string): Promise<string> {
  const before = await stage.reviews();
  await withFloor(stage, PROMISED, async () => {
    await stage.kubectl([stage.core], `--namespace ${NAMESPACE} set image deployment/${WORKLOAD} web=${image}`);
    await stage.until("both rollouts", () => inAll(stage, (worker) => isRolledOut(worker, image)));
    await stage.untilWhole(REPLICAS);
  });
  const { admitted, refused, busy } = reviewsSince(await stage.reviews(), before);
  return `${admitted} disruptions allowed, ${refused} denied, ${busy} told to retry`;
}

const rollingUpdate: DemoScene = {
  title: "Business as usual: a rolling update, in both clusters at once",
  async play(stage) {
    stage.narrator.say(
      "The core's Deployment gets a new image. The federation passes it on, and " +
        "both Deployment controllers replace their pods at the same time.",
    );
    stage.promise(true, `both rollouts are complete: ${await rollOut(stage, "web:v2")}`);
  },
};

const scaling: DemoScene = {
  title: `Business as usual: down to ${SCALED_DOWN}, and up again`,
  async play(stage) {
    stage.narrator.say("Fewer replicas are a smaller promise; the generator writes it before the federation acts.");
    const scale = `--namespace ${NAMESPACE} scale deployment/${WORKLOAD}`;
    await stage.kubectl([stage.core], `${scale} --replicas=${SCALED_DOWN}`);
    let promised = await stage.required();
    await withFloor(stage, SCALED_DOWN - 1, async () => {
      await stage.untilWhole(SCALED_DOWN);
      promised = await stage.required();
    });
    stage.promise(
      promised === SCALED_DOWN - 1,
      `${SCALED_DOWN} replicas, maxUnavailable 20%: ${promised} are promised now`,
    );
    await stage.kubectl([stage.core], `${scale} --replicas=${REPLICAS}`);
    await stage.untilWhole(REPLICAS);
    await stage.until(`the promise of ${PROMISED}`, async () => (await stage.required()) === PROMISED);
  },
};

const massDeletion: DemoScene = {
  title: "Accident: kubectl delete pods --all, in both clusters at the same moment",
  async play(stage) {
    await withFloor(stage, PROMISED, async () => {
      const results = await stage.kubectl(stage.workers, `--namespace ${NAMESPACE} delete pods --all`);
      const deleted = results.reduce((sum, { stdout }) => sum + count(stdout, /^pod "[^"]+" deleted/gm), 0);
      const refused = results.flatMap(({ stderr }) => refusals(stderr));
      stage.narrator.say(
        `Of ${REPLICAS} pods kubectl could delete ${deleted}; ${refused.length} were denied, the first one so:`,
      );
      stage.narrator.quote(refused[0] ?? "(none)");
      stage.promise(
        deleted + refused.length === REPLICAS && deleted >= REPLICAS - PROMISED,
        `every pod got an answer: ${deleted} were deleted, ${refused.length} denied`,
      );
      await stage.untilWhole(REPLICAS);
    });
  },
};

const drain: DemoScene = {
  title: "Maintenance: kubectl drain of a node",
  async play(stage) {
    const [worker] = stage.workers;
    if (worker === undefined) return;
    const node = await busiestNode(worker);
    await withFloor(stage, PROMISED, async () => {
      const [result] = await stage.kubectl([worker], `drain ${node.name} --ignore-daemonsets --timeout=90s`);
      const [waited] = refusals(result?.stderr ?? "");
      if (waited !== undefined) {
        stage.narrator.say("While too few were available, drain was told to wait, and did:");
        stage.narrator.quote(waited);
      }
      const left = await podsOn(worker, node.name);
      stage.promise(
        result?.code === 0 && left === 0,
        `the node is empty: ${node.pods} pods left it, as fast as others took over`,
      );
      await stage.untilWhole(REPLICAS);
    });
    await worker.kubectl(["uncordon", node.name]);
  },
};

const cascade: DemoScene = {
  title: "Catastrophe: the CRD of the federation's objects is deleted, in both clusters",
  async play(stage) {
    stage.narrator.say(
      "With the CRD go its objects, with them the Deployments that they own, with those the " +
        "ReplicaSets, and then the garbage collectors come for the pods. Nobody makes new ones.",
    );
    const before = await stage.reviews();
    await withFloor(stage, PROMISED, async () => {
      await stage.kubectl(stage.workers, `delete crd ${OWNER_CRD}`);
      await stage.until("the cascade to reach the pods", async () => {
        const { total, terminating } = stage.availability.counts();
        return total === PROMISED && terminating === 0 && (await workloads(stage)) === 0;
      });
      // Counts denials from the start, because each one doubles the time until a collector tries to delete the pod
      // again.
      const sinceMs = performance.now();
      await stage.until("the garbage collectors to be denied, and some time to pass", async () => {
        const { refused } = reviewsSince(await stage.reviews(), before);
        return refused >= PROMISED && performance.now() - sinceMs >= HOLD_MS;
      });
      const { refused } = reviewsSince(await stage.reviews(), before);
      const { total } = stage.availability.counts();
      stage.promise(
        total === PROMISED,
        `the Deployments and ReplicaSets are gone, ${total} pods are still there; ` +
          `the garbage collectors were denied ${refused} times`,
      );
      stage.narrator.say(
        "An operator puts the CRD back; the federation makes its objects " +
          "again, and the old pods may go as new ones take over.",
      );
      await Promise.all(stage.workers.map((worker) => worker.apply([ownerCrd])));
      await stage.until("new Deployments in both clusters", () =>
        inAll(stage, (worker) => isRolledOut(worker, "web:v2").catch(() => false)),
      );
      await stage.untilWhole(REPLICAS);
    });
    stage.promise(true, "recovered: ten new pods, and the garbage collectors got their old ones");
  },
};

const guardedDeletion: DemoScene = {
  title: "Accident: kubectl delete deployment, in the core",
  async play(stage) {
    const [result] = await stage.kubectl([stage.core], `--namespace ${NAMESPACE} delete deployment ${WORKLOAD}`);
    stage.narrator.quote(result?.stderr ?? "");
    const { deletionTimestamp } = Object(field(await stage.core.admin.get(DEPLOYMENT), "metadata"));
    stage.promise(
      result?.code !== 0 && deletionTimestamp === undefined,
      "the Deployment is whole: a protected workload that asks for replicas is not deleted by mistake",
    );
  },
};

const countedGate: DemoScene = {
  title: "Second act: a rolling update with the counted gate",
  async play(stage) {
    stage.narrator.say(
      "In a namespace with this label a new pod is Ready only when its aggregator has stored the count that " +
        "contains it, so no controller asks for an old pod too early.",
    );
    await stage.kubectl(stage.workers, `label namespace ${NAMESPACE} ${COUNTED_GATE}=enabled --overwrite`);
    // An apiserver matches with its own copy of the namespace, which a watch updates.
    await stage.until("new pods to get the gate", () => inAll(stage, addsGate));
    const answers = await rollOut(stage, "web:v3");
    const gated = (await Promise.all(stage.workers.map(podsOf))).flat().filter(isGated).length;
    stage.promise(gated === REPLICAS, `${gated} new pods have the gate: ${answers}`);
  },
};

const killedAggregator: DemoScene = {
  title: "Outage: the aggregator of worker-1 is killed, and somebody deletes all pods there",
  async play(stage) {
    const [worker] = stage.workers;
    const pod = worker === undefined ? undefined : stage.processOf(worker, "podseidon-aggregator");
    const pid = pod?.process.pid;
    if (worker === undefined || pod === undefined || pid === undefined) return;
    stage.narrator.command(`kill -9 ${pid}   # ${pod.process.name}`);
    process.kill(pid, "SIGKILL");
    await withFloor(stage, PROMISED, async () => {
      await stage.kubectl([worker], `--namespace ${NAMESPACE} delete pods --all`);
      await stage.until("the kubelet to start it again", () => ![undefined, pid].includes(pod.process.pid));
      stage.promise(true, "its kubelet has started it again");
      await stage.untilWhole(REPLICAS);
    });
  },
};

export const SCENES: readonly DemoScene[] = [
  ...[rollingUpdate, scaling, massDeletion, drain, cascade],
  ...[guardedDeletion, countedGate, killedAggregator],
];

/** Whether a dry run adds the gate to a pod like those of the workload. */
async function addsGate(worker: Cluster): Promise<boolean> {
  const [pod] = await podsOf(worker);
  const labels = field(pod, "metadata", "labels");
  const dry = await worker.admin.call("POST", `/api/v1/namespaces/${NAMESPACE}/pods?dryRun=All`, {
    metadata: { name: "like-the-others", labels },
    spec: { containers: [{ name: "web", image: "web:v3" }] },
  });
  return isGated(dry);
}

function isGated(pod: unknown): boolean {
  return items(field(pod, "spec"), "readinessGates").some((gate) => field(gate, "conditionType") === COUNTED_CONDITION);
}

function count(text: string, pattern: RegExp): number {
  return [...text.matchAll(pattern)].length;
}

function refusals(stderr: string): string[] {
  return stderr
    .split("\n")
    .filter((line) => line.includes("podseidon.kubewharf.io") && line.includes("denied the request"));
}

async function podsOf(worker: Cluster): Promise<readonly unknown[]> {
  return items(await worker.admin.get(`/api/v1/namespaces/${NAMESPACE}/pods`));
}

async function podsOn(worker: Cluster, node: string): Promise<number> {
  return (await podsOf(worker)).filter((pod) => field(pod, "spec", "nodeName") === node).length;
}

async function busiestNode(worker: Cluster): Promise<{ readonly name: string; readonly pods: number }> {
  const byNode = Map.groupBy(await podsOf(worker), (pod) => String(field(pod, "spec", "nodeName")));
  const [first] = [...byNode].sort(([, a], [, b]) => b.length - a.length);
  return { name: first?.[0] ?? "node-1", pods: first?.[1].length ?? 0 };
}

async function workloads(stage: DemoStage): Promise<number> {
  const lists = await Promise.all(
    stage.workers.flatMap((worker) =>
      ["deployments", "replicasets"].map((kind) => worker.admin.get(`/apis/apps/v1/namespaces/${NAMESPACE}/${kind}`)),
    ),
  );
  return lists.reduce<number>((sum, list) => sum + items(list).length, 0);
}
