/**
 * Which status writes and changes of pods the webhook configuration asks about, as it ships: a real kube-apiserver
 * evaluates its match conditions. No webhook runs, so a write that it asks about fails.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ApiCallOptions } from "../../scripts/control-plane/api-client.ts";
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
  await createSizedPod("resized", "NotRequired");
  await createSizedPod("restarted", "RestartContainer");
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

async function createSizedPod(name: string, restartPolicy: string): Promise<void> {
  const resizePolicy = [{ resourceName: "cpu", restartPolicy }];
  const container = { name: "app", image: "app:1", resources: { requests: { cpu: "1" } }, resizePolicy };
  const spec = { containers: [container] };
  await cluster.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name }, spec });
}

/** A merge patch replaces the list of conditions. */
function write(pod: string, status: object): Promise<string> {
  return patch(`${pod}/status`, { status });
}

/** Changes nothing. */
async function patch(path: string, body: object, options: ApiCallOptions = {}): Promise<string> {
  const { status: code, text } = await cluster.admin.request("PATCH", `${PODS}/${path}?dryRun=All`, body, options);
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

const app = (change: object): object => ({ containers: [{ name: "app", ...change }] });
const littleCpu = app({ resources: { requests: { cpu: "1m" } } });

test.each<[string, "asked" | "passed", string, object]>([
  ["a new image", "asked", "resized", app({ image: "app:2" })],
  ["a deadline", "asked", "resized", { activeDeadlineSeconds: 600 }],
  [
    "an ephemeral container",
    "passed",
    "resized/ephemeralcontainers",
    { ephemeralContainers: [{ name: "b", image: "b" }] },
  ],
  ["a resize that may restart a container", "asked", "restarted/resize", littleCpu],
  ["a resize that restarts none, to hardly any CPU", "passed", "resized/resize", littleCpu],
])("%s is %s", async (_, expected, path, spec) => {
  const contentType = "application/strategic-merge-patch+json";
  expect(await patch(path, { spec }, { contentType })).toBe(expected);
});
