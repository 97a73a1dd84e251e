import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse } from "../../../shared/kube/client/transport.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { repairProtector } from "./repair.ts";

const present = parsePodProtector({
  metadata: {
    namespace: "shop",
    name: "deployment-web",
    uid: "p1",
    resourceVersion: "9",
    generation: 3,
    labels: { "a/b": "1" },
    annotations: { released: "x", derivation: "old" },
    finalizers: ["f"],
  },
  spec: { minAvailable: 5, minReadySeconds: 0, selector: {} },
});
const changed = (metadata: Partial<PodProtector["metadata"]>, minAvailable = 5): PodProtector => ({
  ...present,
  metadata: { ...present.metadata, ...metadata },
  spec: { ...present.spec, minAvailable },
});

/** The result of the repair, and its request. */
async function repair(wanted: PodProtector, response: Partial<ApiResponse> = {}, from = present) {
  const requests: ApiRequest[] = [];
  const request = async (made: ApiRequest): Promise<ApiResponse> => {
    requests.push(made);
    return { status: 200, headers: {}, body: JSON.stringify(wanted), ...response };
  };
  const api = new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close() {} });
  const result = await repairProtector({ api, timeoutMs: 1000 }, from, wanted);
  const [{ method, contentType, body } = { method: undefined, contentType: undefined, body: undefined }] = requests;
  return { result, method, contentType, body: JSON.parse(body ?? "null") };
}

test("spec, labels and annotations are patched, if UID and generation are as they were", async () => {
  const wanted = changed({ labels: { "a/b": "2" }, annotations: { derivation: "new" } }, 7);
  const { method, contentType, body, result } = await repair(wanted);
  expect([method, contentType, result.kind]).toEqual(["PATCH", "application/json-patch+json", "ok"]);
  expect(body).toEqual([
    { op: "test", path: "/metadata/uid", value: "p1" },
    { op: "test", path: "/metadata/generation", value: 3 },
    { op: "add", path: "/metadata/labels/a~1b", value: "2" },
    { op: "remove", path: "/metadata/annotations/released" },
    { op: "add", path: "/metadata/annotations/derivation", value: "new" },
    { op: "replace", path: "/spec", value: { minAvailable: 7, minReadySeconds: 0, selector: {} } },
  ]);
});

test.each<[string, PodProtector, PodProtector?]>([
  ["finalizers", changed({ finalizers: [] })],
  ["owner references", changed({ ownerReferences: [{ apiVersion: "v1", kind: "K", name: "n", uid: "u" }] })],
  ["annotations where there are none", changed({ annotations: { a: "b" } }), changed({ annotations: undefined })],
])("%s are written with the version that was read", async (_, wanted, from) => {
  const { method, body } = await repair(wanted, {}, from);
  expect([method, body.metadata.resourceVersion]).toEqual(["PUT", "9"]);
});

test.each([
  ["a failed test is a conflict", "the server rejected our request due to an error in our request", "conflict"],
  ["an invalid spec is rejected", "PodProtector is invalid: spec.minAvailable: Invalid value", "rejected"],
])("%s", async (_, message, kind) => {
  const body = JSON.stringify({ kind: "Status", code: 422, reason: "Invalid", message, details: {} });
  expect((await repair(changed({}, 6), { status: 422, body })).result.kind).toBe(kind);
});
