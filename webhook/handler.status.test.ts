import { describe, expect, test } from "vitest";
import {
  ALLOWED,
  admissionReview,
  DENIED,
  handler,
  type JsonObject,
  podJson,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";

const READY = { type: "Ready", status: "True" };
const gate = (status: string): JsonObject => ({ type: "InPlaceUpdateReady", status });
const gated = (status: JsonObject): JsonObject => ({
  ...podJson({ status }),
  spec: { readinessGates: [{ conditionType: "InPlaceUpdateReady" }, { conditionType: "example.com/healthy" }] },
});
const HOOKED = { spec: { readinessGates: [{ conditionType: "KruisePodReady" }] } };
const hooked = (status: string): JsonObject => ({
  ...podJson({ status: { conditions: [READY, { type: "KruisePodReady", status }] } }),
  ...HOOKED,
});
const before = gated({ conditions: [READY, gate("True"), { type: "example.com/healthy", status: "True" }] });

function write(object: JsonObject, oldObject: JsonObject = before, request: JsonObject = {}): string {
  return admissionReview({ operation: "UPDATE", subResource: "status", oldObject, object, ...request });
}

const FAILED = gated({ phase: "Failed" });
const KUBELET = { userInfo: { username: "system:node:n", groups: ["system:nodes", "system:authenticated"] } };
const EVICTED = gated({ conditions: [{ type: "Ready", status: "False", reason: "Evict" }, gate("True")] });
const CLOSED = gated({ conditions: [READY, gate("False")] });

describe("a status write", () => {
  test.each<[string, string, JsonObject]>([
    ["that fails a running pod is a deletion", write(FAILED), { operation: "DELETE", done: "set to Failed" }],
    ["that ends it well is one too", write(gated({ phase: "Succeeded" })), { operation: "DELETE" }],
    [
      "by which Volcano begins an eviction is one too",
      write(EVICTED),
      { operation: "DELETE", done: "taken out of service for its eviction (condition Ready: Evict)" },
    ],
    ["that closes a voluntary gate is a change in place", write(CLOSED), { operation: "UPDATE" }],
    [
      "that closes it, and says further down that it is open, is one too",
      write(gated({ conditions: [READY, gate("False"), gate("True")] })),
      { operation: "UPDATE" },
    ],
    [
      "by which a lifecycle hook of OpenKruise begins too",
      write(hooked("False"), hooked("True")),
      { operation: "UPDATE" },
    ],
    ["that drops its condition is one too", write(gated({ conditions: [READY] })), { operation: "UPDATE" }],
  ])("%s", async (_name, body, expected) => {
    const { asked, records, ask } = handler();
    await ask(body);
    expect(asked).toMatchObject([{ ...expected, podReadMs: undefined, reread: undefined }]);
    expect(records).toMatchObject([{ kind: "status", outcome: "unprotected" }]);
  });

  const unready = gated({ conditions: [{ type: "Ready", status: "False" }, gate("True")] });
  test.each<[string, string]>([
    ["of the pod's kubelet", write(FAILED, before, KUBELET)],
    ["of a kubelet that closes a gate", write(CLOSED, before, KUBELET)],
    ["of a kubelet that gives Volcano's reason", write(EVICTED, before, KUBELET)],
    ["that begins the eviction of a pod that is not Ready", write(EVICTED, unready)],
    ["that sets a pod to not Ready for another reason", write(unready)],
    ["on a pod that has ended", write(FAILED, gated({ phase: "Succeeded" }))],
    ["on a pod that is not Ready", write(FAILED, unready)],
    ["that closes a gate of a pod that is not Ready", write(CLOSED, unready)],
    ["that closes a gate that reports health", write(gated({ conditions: [READY, gate("True")] }))],
    ["that closes what is no gate of the pod", write(podJson(), { ...before, spec: {} })],
    ["that changes nothing of this", write(before)],
    ["on what is no pod, and ends nothing", write({}, {})],
    ["that fails a terminating pod", write(FAILED, { ...before, metadata: terminating(before) })],
  ])("%s is allowed without asking", async (_name, body) => {
    const { asked, ask } = handler(DENIED);
    expect(responseOf(await ask(body))).toEqual({ uid: "request-1", allowed: true });
    expect(asked).toEqual([]);
  });

  const relabelled = { ...before, metadata: { ...Object(before.metadata), labels: { app: "other" } } };

  test("that gives the pod other labels takes it from the protectors that it leaves", async () => {
    const { asked, ask } = handler();
    await ask(write(relabelled));
    expect(asked).toMatchObject([{ operation: "UPDATE", labelsAfter: { app: "other" }, done: "relabelled" }]);
  });

  test("that also closes a gate of a pod that is not Ready takes it from them, too: some count it", async () => {
    const { asked, ask } = handler();
    await ask(write({ ...CLOSED, metadata: relabelled.metadata }, unready));
    expect(asked).toMatchObject([{ operation: "UPDATE", labelsAfter: { app: "other" }, done: "relabelled" }]);
  });

  test("that fails a pod and gives it other labels is a deletion", async () => {
    const { asked, ask } = handler();
    await ask(write({ ...relabelled, ...FAILED, metadata: relabelled.metadata }));
    expect(asked).toMatchObject([{ operation: "DELETE" }]);
    expect(asked[0]).not.toHaveProperty("labelsAfter");
  });

  test("by which a node gives its pod other labels is a fact", async () => {
    const { asked, ask } = handler(DENIED);
    await ask(write(relabelled, before, KUBELET));
    expect(asked).toEqual([]);
  });

  test("that is denied says what it would do", async () => {
    const response = responseOf(await handler(DENIED).ask(write(FAILED)));
    expect(JSON.stringify(response)).toContain("pod default/web-0 may not be set to Failed now: PodProtector");
    const closed = responseOf(await handler(DENIED).ask(write(CLOSED)));
    expect(JSON.stringify(closed)).toContain(
      "may not be taken out of service by its readiness gate InPlaceUpdateReady",
    );
  });

  test("asks nobody where the cluster has opted out, and knows the gates and groups of the options", async () => {
    const rules = { reviewsStatus: true, nodeGroups: ["fleet"], voluntaryGates: ["example.com/healthy"] };
    const out = handler(ALLOWED, { statusRules: { ...rules, reviewsStatus: false } });
    await out.ask(write(FAILED));
    expect(out.asked).toEqual([]);
    const own = handler(ALLOWED, { statusRules: rules });
    await own.ask(write(FAILED, before, { userInfo: { username: "vk", groups: ["fleet"] } }));
    expect(own.asked).toEqual([]);
    await own.ask(write(gated({ conditions: [READY, gate("True")] }), before, KUBELET));
    expect(own.asked).toMatchObject([{ operation: "UPDATE" }]);
  });
});

function terminating(pod: JsonObject): JsonObject {
  return { ...Object(pod.metadata), deletionTimestamp: "2026-01-01T00:00:00Z" };
}
