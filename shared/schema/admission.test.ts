import { describe, expect, test } from "vitest";
import { jsonPatch, parseEviction, parseWireReview, reviewResponse } from "./admission.ts";

const POD_KIND = { group: "", version: "v1", kind: "Pod" };
const POD_RESOURCE = { group: "", version: "v1", resource: "pods" };

/** As kube-apiserver 1.36 sends it for a DELETE, nulls included. */
const DELETE_REVIEW = {
  kind: "AdmissionReview",
  apiVersion: "admission.k8s.io/v1",
  request: {
    uid: "r-1",
    kind: POD_KIND,
    resource: POD_RESOURCE,
    requestKind: POD_KIND,
    requestResource: POD_RESOURCE,
    name: "web-1",
    namespace: "shop",
    operation: "DELETE",
    userInfo: {
      username: "eve",
      groups: ["system:authenticated"],
      extra: { "authentication.kubernetes.io/credential-id": ["x"] },
    },
    object: null,
    oldObject: { kind: "Pod" },
    dryRun: false,
    options: { kind: "DeleteOptions", apiVersion: "meta.k8s.io/v1", gracePeriodSeconds: 30 },
  },
};

function review(changes: object): unknown {
  return { ...DELETE_REVIEW, request: { ...DELETE_REVIEW.request, ...changes } };
}

describe("an admission review", () => {
  test("gives its request", () => {
    expect(parseWireReview(DELETE_REVIEW)).toBe(DELETE_REVIEW.request);
  });

  test("needs no name, as in a deletecollection", () => {
    expect(parseWireReview(review({ name: undefined })).name).toBeUndefined();
  });

  test.each<[string, unknown, string]>([
    ["no object", [], ""],
    ["nothing inside", {}, "apiVersion"],
    ["another kind", { ...DELETE_REVIEW, kind: "Pod" }, "kind"],
    ["a version that is not served", { ...DELETE_REVIEW, apiVersion: "admission.k8s.io/v1beta1" }, "apiVersion"],
    ["no request", { ...DELETE_REVIEW, request: undefined }, "request"],
    ["no UID", review({ uid: "" }), "request.uid"],
    ["an unknown operation", review({ operation: "BURN" }), "request.operation"],
    ["a dry run that is a text", review({ dryRun: "true" }), "request.dryRun"],
    ["a resource without a name", review({ resource: { group: "", version: "v1" } }), "request.resource.resource"],
    ["a UID that no object has", review({ uid: "u".repeat(254) }), "request.uid"],
    ["a name that no object has", review({ name: "n".repeat(254) }), "request.name"],
    ["a namespace that no object has", review({ namespace: "n".repeat(64) }), "request.namespace"],
    ["a caller of too long a name", review({ userInfo: { username: "u".repeat(4097) } }), "request.userInfo.username"],
  ])("is refused: %s", (_, raw, path) => {
    expect(() => parseWireReview(raw)).toThrow(expect.objectContaining({ name: "SchemaError", path }));
  });
});

describe("an eviction", () => {
  const eviction = (changes: object = {}): object => ({
    apiVersion: "policy/v1",
    kind: "Eviction",
    metadata: { name: "web-1" },
    ...changes,
  });

  test.each([
    ["policy/v1", eviction()],
    ["policy/v1beta1", eviction({ apiVersion: "policy/v1beta1" })],
    [
      "with options",
      eviction({
        deleteOptions: { dryRun: ["All"], gracePeriodSeconds: 0, preconditions: { uid: "u", resourceVersion: "1" } },
      }),
    ],
    ["with null", eviction({ metadata: null, deleteOptions: null })],
    ["with null inside", eviction({ deleteOptions: { dryRun: null, preconditions: null, gracePeriodSeconds: null } })],
  ])("is read: %s", (_, raw) => {
    expect(parseEviction(raw)).toBe(raw);
  });

  test.each<[string, unknown, string]>([
    ["another kind", eviction({ kind: "Pod" }), "kind"],
    ["another version", eviction({ apiVersion: "policy/v2" }), "apiVersion"],
    ["a dry run that is a boolean", eviction({ deleteOptions: { dryRun: true } }), "deleteOptions.dryRun"],
    [
      "a UID that is a number",
      eviction({ deleteOptions: { preconditions: { uid: 1 } } }),
      "deleteOptions.preconditions.uid",
    ],
    ["a name that no pod has", eviction({ metadata: { name: "n".repeat(254) } }), "metadata.name"],
    [
      "a UID that no pod has",
      eviction({ deleteOptions: { preconditions: { uid: "u".repeat(254) } } }),
      "deleteOptions.preconditions.uid",
    ],
    [
      "a version that no pod has",
      eviction({ deleteOptions: { preconditions: { resourceVersion: "1".repeat(254) } } }),
      "deleteOptions.preconditions.resourceVersion",
    ],
  ])("is refused: %s", (_, raw, path) => {
    expect(() => parseEviction(raw)).toThrow(expect.objectContaining({ name: "SchemaError", path }));
  });
});

test("a response carries the request's UID and a readable patch", () => {
  const operations = [{ op: "add", path: "/deleteOptions/preconditions/uid", value: "u-ä" }] as const;
  const answer = reviewResponse({ uid: "r-1", allowed: true, ...jsonPatch(operations) });
  expect(answer).toMatchObject({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: "r-1", patchType: "JSONPatch" },
  });
  expect(JSON.parse(Buffer.from(answer.response.patch ?? "", "base64").toString())).toEqual(operations);
});
