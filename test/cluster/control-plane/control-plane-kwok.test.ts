import { afterAll, beforeAll, describe, expect, onTestFailed, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { KWOK_ANNOTATIONS as annotation } from "../../../scripts/control-plane/kwok/annotations.ts";
import { deployment } from "../../support/cluster/deployments.ts";

/** What the simulated kubelets do with pods and nodes, and that it can be directed pod by pod. */

const TIMEOUT_MS = 300_000;
let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start({ name: "kwok", nodes: 2 });
}, TIMEOUT_MS);

afterAll(() => cluster?.stop());

const PODS = "/api/v1/namespaces/default/pods";

interface PodOptions {
  readonly annotations?: Record<string, string>;
  readonly gates?: readonly string[];
  readonly resizePolicy?: string;
}

async function createPod(name: string, options: PodOptions = {}): Promise<void> {
  const cpu = { requests: { cpu: "100m" }, limits: { cpu: "100m" } };
  const resizePolicy = { resourceName: "cpu", restartPolicy: options.resizePolicy ?? "NotRequired" };
  await cluster.admin.call("POST", PODS, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, annotations: options.annotations ?? {} },
    spec: {
      containers: [{ name: "main", image: "image:1", resources: cpu, resizePolicy: [resizePolicy] }],
      readinessGates: (options.gates ?? []).map((conditionType) => ({ conditionType })),
    },
  });
}

const getPod = (name: string): Promise<unknown> => cluster.admin.get(`${PODS}/${name}`);

async function podBecomes(name: string, what: string, holds: (pod: unknown) => boolean): Promise<unknown> {
  let pod: unknown;
  await cluster.waitFor(`pod ${name} to be ${what}`, async () => {
    pod = await getPod(name);
    return holds(pod);
  });
  return pod;
}

const ready =
  (status: string) =>
  (pod: unknown): boolean =>
    conditionStatus(pod, "Ready") === status;
const reason = (pod: unknown, type: string): unknown => {
  const conditions = field(pod, "status", "conditions");
  return field(Array.isArray(conditions) ? conditions.find((one) => field(one, "type") === type) : undefined, "reason");
};

async function annotate(name: string, annotations: Record<string, string | null>): Promise<void> {
  await cluster.admin.call("PATCH", `${PODS}/${name}`, { metadata: { annotations } });
}

async function setCondition(name: string, type: string, status: string): Promise<void> {
  const body = { status: { conditions: [{ type, status }] } };
  const contentType = "application/strategic-merge-patch+json";
  await cluster.admin.call("PATCH", `${PODS}/${name}/status`, body, { contentType });
}

async function isGone(name: string): Promise<boolean> {
  return (await cluster.admin.request("GET", `${PODS}/${name}`)).status === 404;
}

test("a deployment becomes ready and is scaled down", { timeout: TIMEOUT_MS }, async () => {
  onTestFailed(() => void cluster.keepLogs());
  await cluster.apply([deployment("web", 5, { podAnnotations: { [annotation.readyAfter]: "300ms" } })]);
  const rollout = await cluster.kubectl(["rollout", "status", "deployment/web", "--timeout=300s"]);
  expect(rollout).toMatchObject({ code: 0 });
  expect((await cluster.kubectl(["scale", "deployment/web", "--replicas=2"])).code).toBe(0);
  await cluster.waitFor("three pods to be gone", async () => {
    return items(await cluster.admin.get(`${PODS}?labelSelector=app%3Dweb`)).length === 2;
  });
});

describe("readiness", { timeout: TIMEOUT_MS }, () => {
  test("a pod is ready at once by default, as a kubelet reports it", async () => {
    await createPod("plain");
    const pod = await podBecomes("plain", "ready", ready("True"));
    expect(field(pod, "status", "phase")).toBe("Running");
    expect(field(pod, "status", "observedGeneration")).toBe(field(pod, "metadata", "generation"));
    expect(field(pod, "status", "containerStatuses", 0, "ready")).toBe(true);
    expect(field(pod, "status", "containerStatuses", 0, "resources", "requests", "cpu")).toBe("100m");
  });

  test("a pod that is never ready stays so until it is told otherwise", async () => {
    await createPod("never", { annotations: { [annotation.readyAfter]: "never" } });
    const pod = await podBecomes("never", "running", (found) => field(found, "status", "phase") === "Running");
    expect(conditionStatus(pod, "Ready")).toBe("False");
    expect(reason(pod, "Ready")).toBe("ContainersNotReady");
    await annotate("never", { [annotation.readyAfter]: null });
    await podBecomes("never", "ready", ready("True"));
  });

  test("every readiness gate has to be true beside the containers, and is followed when it changes", async () => {
    await createPod("gated", { gates: ["example.test/a", "example.test/b"] });
    const waiting = await podBecomes("gated", "running", (pod) => conditionStatus(pod, "ContainersReady") === "True");
    expect(conditionStatus(waiting, "Ready")).toBe("False");
    expect(reason(waiting, "Ready")).toBe("ReadinessGatesNotReady");
    await setCondition("gated", "example.test/a", "True");
    expect(conditionStatus(await getPod("gated"), "Ready")).toBe("False");
    await setCondition("gated", "example.test/b", "True");
    await podBecomes("gated", "ready", ready("True"));
    await setCondition("gated", "example.test/a", "False");
    const again = await podBecomes("gated", "unready", ready("False"));
    expect(conditionStatus(again, "ContainersReady")).toBe("True");
  });

  test("gates that are true before the containers are do not make the pod ready", async () => {
    await createPod("early", { gates: ["example.test/a"], annotations: { [annotation.readyAfter]: "never" } });
    await setCondition("early", "example.test/a", "True");
    const pod = await podBecomes("early", "running", (found) => field(found, "status", "phase") === "Running");
    expect(conditionStatus(pod, "Ready")).toBe("False");
    await annotate("early", { [annotation.readyAfter]: null });
    await podBecomes("early", "ready", ready("True"));
  });

  test("the annotation makes a pod unready and ready again", async () => {
    await createPod("switched");
    await podBecomes("switched", "ready", ready("True"));
    await annotate("switched", { [annotation.unready]: "true" });
    const unready = await podBecomes("switched", "unready", ready("False"));
    expect(conditionStatus(unready, "ContainersReady")).toBe("False");
    expect(field(unready, "status", "containerStatuses", 0, "ready")).toBe(false);
    await annotate("switched", { [annotation.unready]: null });
    await podBecomes("switched", "ready", ready("True"));
  });

  test("an annotation that comes during the time to ready holds the pod unready", async () => {
    // Longer than a busy machine takes to say that it runs, and to take the annotation.
    await createPod("caught", { annotations: { [annotation.readyAfter]: "12s" } });
    await podBecomes("caught", "running", (pod) => field(pod, "status", "phase") === "Running");
    await annotate("caught", { [annotation.unready]: "true" });
    const version = field(await getPod("caught"), "metadata", "resourceVersion");
    await createPod("witness", { annotations: { [annotation.readyAfter]: "12500ms" } });
    await podBecomes("witness", "ready", ready("True"));
    const held = await getPod("caught");
    expect(conditionStatus(held, "Ready")).toBe("False");
    expect(field(held, "metadata", "resourceVersion")).toBe(version);
    await annotate("caught", { [annotation.unready]: null });
    await podBecomes("caught", "ready", ready("True"));
  });

  test("a pod lapses by itself and recovers, whatever updates it in the meantime", async () => {
    // Each state lasts longer than a busy machine takes between two looks.
    await createPod("lapsing", { annotations: { [annotation.unreadyAfter]: "6s", [annotation.unreadyFor]: "9s" } });
    await podBecomes("lapsing", "ready", ready("True"));
    await annotate("lapsing", { "example.test/note": "update" });
    await podBecomes("lapsing", "unready", ready("False"));
    await podBecomes("lapsing", "ready again", ready("True"));
  });
});

describe("deletion", { timeout: TIMEOUT_MS }, () => {
  const deletion = { apiVersion: "v1", kind: "DeleteOptions" };

  test("a pod without a time to terminate goes at once", async () => {
    await createPod("quick");
    await podBecomes("quick", "ready", ready("True"));
    await cluster.admin.call("DELETE", `${PODS}/quick`, deletion);
    await cluster.waitFor("quick to be gone", () => isGone("quick"));
  });

  test("a pod that is held stays terminating, still reported ready, until it is let go", async () => {
    await createPod("held", { annotations: { [annotation.terminateAfter]: "never" } });
    await podBecomes("held", "ready", ready("True"));
    await cluster.admin.call("DELETE", `${PODS}/held`, { ...deletion, gracePeriodSeconds: 1 });
    await createPod("later", { annotations: { [annotation.readyAfter]: "1500ms" } });
    await podBecomes("later", "ready", ready("True"));
    const pod = await getPod("held");
    expect(field(pod, "metadata", "deletionTimestamp")).toBeTypeOf("string");
    expect(conditionStatus(pod, "Ready")).toBe("True");
    await annotate("held", { [annotation.terminateAfter]: "200ms" });
    await cluster.waitFor("held to be gone", () => isGone("held"));
  });

  test("the grace period ends a termination that takes longer", async () => {
    await createPod("slow", { annotations: { [annotation.terminateAfter]: "1h" } });
    await podBecomes("slow", "ready", ready("True"));
    await cluster.admin.call("DELETE", `${PODS}/slow`, { ...deletion, gracePeriodSeconds: 1 });
    await cluster.waitFor("slow to be gone", () => isGone("slow"));
  });

  test("a finalizer keeps a terminated pod, which is reported as finished", async () => {
    await createPod("finalized", { annotations: { [annotation.terminateAfter]: "100ms" } });
    await podBecomes("finalized", "ready", ready("True"));
    await cluster.admin.call("PATCH", `${PODS}/finalized`, { metadata: { finalizers: ["example.test/hold"] } });
    await cluster.admin.call("DELETE", `${PODS}/finalized`, deletion);
    const pod = await podBecomes("finalized", "finished", (found) => field(found, "status", "phase") === "Succeeded");
    expect(conditionStatus(pod, "Ready")).toBe("False");
    await cluster.admin.call("PATCH", `${PODS}/finalized`, { metadata: { finalizers: [] } });
    await cluster.waitFor("finalized to be gone", () => isGone("finalized"));
  });
});

describe("changes in place", { timeout: TIMEOUT_MS }, () => {
  test("another image restarts the container", async () => {
    await createPod("updated");
    await podBecomes("updated", "ready", ready("True"));
    await annotate("updated", { [annotation.readyAfter]: "never" });
    const patch = { spec: { containers: [{ name: "main", image: "image:2" }] } };
    const contentType = "application/strategic-merge-patch+json";
    await cluster.admin.call("PATCH", `${PODS}/updated`, patch, { contentType });
    const pod = await podBecomes("updated", "unready", ready("False"));
    expect(field(pod, "status", "containerStatuses", 0)).toMatchObject({
      image: "image:2",
      restartCount: 1,
      ready: false,
    });
    expect(field(pod, "status", "observedGeneration")).toBe(2);
  });

  const resized = {
    spec: { containers: [{ name: "main", resources: { requests: { cpu: "200m" }, limits: { cpu: "200m" } } }] },
  };
  const resize = (name: string): Promise<unknown> =>
    cluster.admin.call("PATCH", `${PODS}/${name}/resize`, resized, {
      contentType: "application/strategic-merge-patch+json",
    });
  const cpuOf = (pod: unknown): unknown => field(pod, "status", "containerStatuses", 0, "resources", "requests", "cpu");

  test.each([
    ["without a restart", "NotRequired", 0],
    ["with a restart where the policy asks for it", "RestartContainer", 1],
  ])("a resize is done %s", async (_name, resizePolicy, restarts) => {
    const name = `resized-${restarts}`;
    await createPod(name, { resizePolicy });
    await podBecomes(name, "ready", ready("True"));
    await resize(name);
    await podBecomes(name, "resized", (pod) => cpuOf(pod) === "200m");
    const pod = await podBecomes(name, "ready", ready("True"));
    expect(field(pod, "status", "containerStatuses", 0, "restartCount")).toBe(restarts);
  });

  test("a resize is deferred and then done", async () => {
    await createPod("deferred", { annotations: { [annotation.resize]: "Deferred" } });
    await podBecomes("deferred", "ready", ready("True"));
    await resize("deferred");
    const pod = await podBecomes(
      "deferred",
      "pending",
      (found) => conditionStatus(found, "PodResizePending") === "True",
    );
    expect(reason(pod, "PodResizePending")).toBe("Deferred");
    expect(cpuOf(pod)).toBe("100m");
    await annotate("deferred", { [annotation.resize]: null });
    const done = await podBecomes("deferred", "resized", (found) => cpuOf(found) === "200m");
    expect(conditionStatus(done, "PodResizePending")).toBeUndefined();
  });
});

test("a node goes down and comes back by annotation", { timeout: TIMEOUT_MS }, async () => {
  const name = await cluster.createNode({ name: "fragile" });
  const becomes = (status: string): Promise<void> =>
    cluster.waitFor(`the node to be ${status}`, async () => {
      return conditionStatus(await cluster.admin.get(`/api/v1/nodes/${name}`), "Ready") === status;
    });
  const set = (value: string | null): Promise<unknown> =>
    cluster.admin.call("PATCH", `/api/v1/nodes/${name}`, {
      metadata: { annotations: { [annotation.nodeNotReady]: value } },
    });
  await set("true");
  await becomes("False");
  await set(null);
  await becomes("True");
});
