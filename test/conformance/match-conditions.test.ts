/**
 * Which status writes of pods the webhook configuration asks about, as it ships: a real kube-apiserver evaluates its
 * match conditions. No webhook runs, so a write that it asks about fails.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../scripts/demo/install.ts";

const PODS = "/api/v1/namespaces/default/pods";
const GATE = "InPlaceUpdateReady";
const open = { type: GATE, status: "True" };
const closed = { type: GATE, status: "False" };
const healthy = ["Initialized", "PodScheduled", "ContainersReady", "Ready"].map((type) => ({ type, status: "True" }));
const endsSoon = { type: "DisruptionTarget", status: "True" };
const pulled = { type: "KruisePodReady", status: "True" };
const ready = { type: "Ready", status: "True" };
const unready = (reason: string): object => ({ type: "Ready", status: "False", reason });
let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  const spec = { readinessGates: [{ conditionType: GATE }], containers: [{ name: "app", image: "app:1" }] };
  for (const [name, conditions] of [
    ["opened", [open]],
    ["closed", [closed, open]],
    ["ready", [ready]],
    ["unready", [unready("Evict")]],
  ]) {
    await cluster.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name }, spec });
    await cluster.admin.call("PATCH", `${PODS}/${name}/status`, { status: { phase: "Running", conditions } });
  }
  await createPodOfManyGates();
  await applyOverlay(cluster, "single-cluster");
  await cluster.waitFor(
    "the webhook to be asked",
    async () => (await write("opened", { phase: "Failed" })) === "asked",
  );
});

afterAll(() => cluster?.stop());

/** As large as etcd lets it be: the cost of a match condition is bounded, and beyond it the write is refused. */
async function createPodOfManyGates(): Promise<void> {
  const readinessGates = Array.from({ length: 60_000 }, () => ({ conditionType: "KruisePodReady" }));
  const spec = { readinessGates, containers: [{ name: "app", image: "app:1" }] };
  await cluster.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name: "gates" }, spec });
  const conditions = [...healthy, pulled];
  await cluster.admin.call("PATCH", `${PODS}/gates/status`, { status: { phase: "Running", conditions } });
}

/** A merge patch replaces the list of conditions. Changes nothing. */
async function write(pod: string, status: object): Promise<string> {
  const path = `${PODS}/${pod}/status?dryRun=All`;
  const { status: code, text } = await cluster.admin.request("PATCH", path, { status });
  if (text.includes("failed calling webhook")) return "asked";
  return code === 200 ? "passed" : text;
}

test.each<[string, "asked" | "passed", string, object]>([
  ["ends the pod", "asked", "opened", { phase: "Succeeded" }],
  ["closes a voluntary gate", "asked", "opened", { conditions: [closed] }],
  ["takes it away", "asked", "opened", { conditions: [] }],
  ["closes it for a kubelet, for which the first entry counts", "asked", "opened", { conditions: [closed, open] }],
  ["sets a Ready pod to not Ready to evict it", "asked", "ready", { conditions: [unready("Evict")] }],
  ["does so for another reason", "passed", "ready", { conditions: [unready("ContainersNotReady")] }],
  ["finds the pod not Ready already", "passed", "unready", { conditions: [unready("Evict"), open] }],
  ["leaves it open", "passed", "opened", { conditions: [open, { type: "example.com/other", status: "False" }] }],
  ["opens it", "passed", "closed", { conditions: [open] }],
  ["says a preemption or eviction comes", "passed", "gates", { conditions: [...healthy, pulled, endsSoon] }],
  ["closes one of thousands of gates", "asked", "gates", { conditions: healthy }],
])("a status write that %s is %s", async (_, expected, pod, status) => {
  expect(await write(pod, status)).toBe(expected);
});
