/**
 * Taint eviction at the minimum, with the real controller: the deletions that it gives up after five tries come back,
 * by client-go's obedience to Retry-After and by the eviction retry. Preemption, which tries at once, again and again.
 */

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { refusals } from "../../../scripts/bench/rollout.ts";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import { BUNDLES, Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const REPLICAS = 4;
/** How often the taint eviction controller tries each pod. */
const TRIES = 5;
const TAINT = { key: "broken", effect: "NoExecute" };
const PLUGIN = join(BUNDLES, "kubectl-podseidon.mjs");
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";

let environment: TestEnvironment;
let cluster: Cluster;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "40s" },
    cell: { nodes: 2 },
  });
  cluster = environment.core;
  await cluster.kubectl(["cordon", "node-2"]);
  await cluster.apply([deployment("web", REPLICAS, { labels: {} })]);
  await createProtector(cluster, "default", "web", {
    minAvailable: REPLICAS,
    selector: { matchLabels: { app: "web" } },
  });
  await waitUntilSettled(cluster, "default", "web", REPLICAS);
  await cluster.kubectl(["uncordon", "node-2"]);
});

afterAll(() => environment?.stop());

async function taint(node: string, taints: readonly unknown[]): Promise<void> {
  await cluster.admin.call("PATCH", `/api/v1/nodes/${node}`, { spec: { taints } });
}

async function promise(minAvailable: number, protector = "web"): Promise<void> {
  await cluster.admin.call("PATCH", `${PROTECTORS}/${protector}`, { spec: { minAvailable } });
}

async function podsOn(node: string): Promise<readonly unknown[]> {
  return items(await cluster.admin.get(`/api/v1/pods?fieldSelector=spec.nodeName%3D${node}`));
}

/** Waits until each pod was denied for as long as taint eviction tries it. */
async function untilDenied(tries: number, pods = REPLICAS): Promise<void> {
  await cluster.waitFor(`${tries} denials of each pod`, async () => (await refusals(environment)) >= tries * pods);
}

async function untilEmpty(node: string): Promise<void> {
  await cluster.waitFor(`the pods to leave ${node}`, async () => (await podsOn(node)).length === 0);
  await waitUntilSettled(cluster, "default", "web", REPLICAS);
}

async function eventsOf(reason: string): Promise<readonly unknown[]> {
  return items(await cluster.admin.get(`/api/v1/namespaces/default/events?fieldSelector=reason%3D${reason}`));
}

/** Whom a replica has denied a deletion, by its log. */
function deniedUsers(replica: string): readonly unknown[] {
  const log = readFileSync(join(cluster.directory, "product", `${replica}.log`), "utf8");
  const denied = log.split("\n").filter((line) => line.includes('"outcome":"denied"'));
  return [...new Set(denied.map((line) => field(JSON.parse(line), "username")))];
}

/** A pod on node-1 that uses a device of that node. */
async function startDevicePod(name: string): Promise<void> {
  const labels = { app: name };
  const claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
  const spec = { devices: { requests: [{ name, exactly: { deviceClassName: name } }] } };
  await cluster.admin.call("POST", claims, { metadata: { name }, spec });
  const pod = await cluster.admin.call("POST", "/api/v1/namespaces/default/pods", {
    metadata: { name, labels },
    spec: {
      nodeName: "node-1",
      resourceClaims: [{ name, resourceClaimName: name }],
      containers: [{ name: "app", image: "app:1", resources: { claims: [{ name }] } }],
    },
  });
  const results = [{ request: name, driver: `${name}.example.com`, pool: "node-1", device: name }];
  const reservedFor = [{ resource: "pods", name, uid: field(pod, "metadata", "uid") }];
  const status = { allocation: { devices: { results } }, reservedFor };
  await cluster.admin.call("PATCH", `${claims}/${name}/status`, { status });
  await createProtector(cluster, "default", name, { minAvailable: 1, selector: { matchLabels: labels } });
  await waitUntilSettled(cluster, "default", name, 1);
}

/** As the manifests install it: with its own account, and a Lease. */
async function startEvictionRetry(): Promise<Component> {
  await cluster.apply(readFileSync(join(root, "manifests/components/eviction-retry/rbac.yaml"), "utf8"));
  const account = { namespace: "podseidon-system", name: "podseidon-eviction-retry" };
  const kubeconfig = await cluster.kubeconfigFor({ serviceAccount: account });
  return await Component.start({
    ...{ kind: "eviction-retry", name: "eviction-retry", directory: join(cluster.directory, "product") },
    args: [
      ...["--kubeconfig", kubeconfig, "--leader-elect-namespace", account.namespace],
      ...["--after=0", "--interval=200ms"],
    ],
  });
}

describe("pods at the minimum on a node with a NoExecute taint", () => {
  test("are deleted once quota is back: the client of the taint eviction controller is told to come back", async () => {
    // Fifty repeats last longer than a busy machine takes to count what follows on the first pods.
    await environment.replaceWebhooks(["told"], ["--single-attempt-retry-after=3s"]);
    await taint("node-1", [TAINT]);
    await untilDenied(TRIES + 1);
    expect(await podsOn("node-1")).toHaveLength(REPLICAS);
    await promise(REPLICAS / 2);
    await untilEmpty("node-1");
    expect(deniedUsers("told")).toEqual(["system:serviceaccount:kube-system:node-controller"]);
  });

  test("are evicted once quota is back, after the controller has given up, by the eviction retry", async () => {
    await environment.replaceWebhooks(["untold"], ["--single-attempt-retry-after=0"]);
    await promise(REPLICAS);
    await taint("node-1", []);
    await waitUntilSettled(cluster, "default", "web", REPLICAS);
    await taint("node-2", [TAINT]);
    await untilDenied(TRIES);
    await using retry = await startEvictionRetry();
    const waiting = (): Promise<number | undefined> => retry.metric("podseidon_eviction_retry_waiting_pods");
    await cluster.waitFor("every pod to wait", async () => (await waiting()) === REPLICAS);
    await cluster.waitFor("Events", async () => (await eventsOf("TaintEvictionWaiting")).length === REPLICAS);
    const [event] = await eventsOf("TaintEvictionWaiting");
    process.stdout.write(`${String(field(event, "message"))}\n`);
    expect(String(field(event, "message"))).toMatch(
      /^waits on node node-2 .*\(taint broken\).*needs 4 available pods, 4 are available/,
    );
    const status = await promisify(execFile)(process.execPath, [PLUGIN, "status", "--kubeconfig", cluster.kubeconfig]);
    expect(status.stdout).toMatch(/^4 pods of .* wait on tainted nodes for eviction: default\/web-/m);
    expect(await podsOn("node-2")).toHaveLength(REPLICAS);
    await promise(REPLICAS / 2);
    await untilEmpty("node-2");
    await cluster.waitFor("Events", async () => (await eventsOf("TaintEvictionRetried")).length === REPLICAS);
    await expect.poll(waiting).toBe(0);
  });
});

test("a pod with a tainted device is deleted once quota is back: that controller repeats by itself", async () => {
  const slices = "/apis/resource.k8s.io/v1/resourceslices";
  const pool = { name: "node-1", generation: 1, resourceSliceCount: 1 };
  const slice = { driver: "gpu.example.com", nodeName: "node-1", pool, devices: [{ name: "gpu" }] };
  await cluster.admin.call("POST", slices, { metadata: { name: "gpu" }, spec: slice });
  await startDevicePod("gpu");
  await environment.replaceWebhooks(["device"]);
  await cluster.admin.call("PATCH", `${slices}/gpu`, { spec: { devices: [{ name: "gpu", taints: [TAINT] }] } });
  await untilDenied(TRIES + 1, 1);
  expect(deniedUsers("device")).toEqual(["system:serviceaccount:kube-system:device-taint-eviction-controller"]);
  await promise(0, "gpu");
  const path = "/api/v1/namespaces/default/pods/gpu";
  await cluster.waitFor("the pod to be gone", async () => (await cluster.admin.request("GET", path)).status === 404);
});

test("a denied preemption has marked its victim: IfHealthyBudget does not keep it while it is not Ready", async () => {
  const pods = "/api/v1/namespaces/default/pods";
  const low = `${pods}/low`;
  const selector = { matchLabels: { app: "low" } };
  const start = (name: string, spec: object): Promise<unknown> => {
    // More than half of a node, and only node-1 has no taint.
    const container = { name: "app", image: "app:1", resources: { requests: { cpu: "600" } } };
    return cluster.admin.call("POST", pods, {
      metadata: { name, labels: { app: name } },
      spec: { ...spec, containers: [container] },
    });
  };
  await cluster.admin.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
    metadata: { name: "high" },
    value: 1,
  });
  await start("low", {});
  await createProtector(cluster, "default", "low", {
    minAvailable: 1,
    unhealthyPodPolicy: "IfHealthyBudget",
    selector,
  });
  await waitUntilSettled(cluster, "default", "low", 1);
  await environment.replaceWebhooks(["preempted"]);
  await start("high", { priorityClassName: "high" });
  await untilDenied(1, 1);
  expect(conditionStatus(await cluster.admin.get(low), "DisruptionTarget")).toBe("True");
  await cluster.admin.call("PATCH", low, { metadata: { annotations: { [KWOK_ANNOTATIONS.unready]: "true" } } });
  await cluster.waitFor("the victim to be gone", async () => (await cluster.admin.request("GET", low)).status === 404);
});

/** It waits for node-lifecycle, whose grace is 50 s. */
test.runIf(process.env.PODSEIDON_TEST_SIZE === "full")(
  "pods of a node that is out of service go once they are not Ready",
  async () => {
    // Fifty repeats last longer than the grace.
    await environment.replaceWebhooks(["fenced"], ["--single-attempt-retry-after=5s"]);
    await promise(REPLICAS);
    const [full = ""] = items(await cluster.admin.get("/api/v1/namespaces/default/pods")).map((pod) =>
      String(field(pod, "spec", "nodeName")),
    );
    await taint(full, [{ key: "node.kubernetes.io/out-of-service", value: "nodeshutdown", effect: "NoExecute" }]);
    await untilDenied(TRIES);
    expect(await podsOn(full)).toHaveLength(REPLICAS);
    cluster.processes.kwok.freeze();
    try {
      const isEmpty = async (): Promise<boolean> => (await podsOn(full)).length === 0;
      await cluster.waitFor("the pods to be removed", isEmpty);
    } finally {
      cluster.processes.kwok.thaw();
    }
  },
);
