import { expect, test } from "vitest";
import { HEALTH_CRITERION_ANNOTATION } from "../../shared/schema/annotations.ts";
import { found, podJson } from "../../test/support/webhook/handler-harness.ts";
import type { AdmissionRequest } from "./admission-request.ts";
import { findDisruptionTarget, isNode } from "./disruption-target.ts";

function request(change: Partial<AdmissionRequest>): AdmissionRequest {
  return {
    ...{ uid: "r", operation: "DELETE", group: "", resource: "pods", subResource: "", namespace: "default" },
    ...{ name: "web-0", user: { username: "eve", uid: undefined, groups: [], extra: {} }, dryRun: false },
    ...{ object: podJson(), oldObject: podJson() },
    ...change,
  };
}

async function targetOf(change: Partial<AdmissionRequest>, live = found({ resourceVersion: "77" })): Promise<object> {
  const cell = { id: "c", readPod: async () => live };
  return await findDisruptionTarget(request(change), cell, { requireBoundEvictions: false }, () => 1_000);
}

const EVICTION = { apiVersion: "policy/v1", kind: "Eviction" };

test("of all requests, pods' deletions, evictions and changes are looked at, and what removes a node", async () => {
  const looked: string[] = [];
  const nodes: string[] = [];
  const object = { ...podJson({ metadata: { labels: { app: "other" } } }), ...EVICTION };
  for (const operation of ["CREATE", "UPDATE", "DELETE", "CONNECT"])
    for (const resource of ["/pods", "/nodes", "/podtemplates", "metrics.k8s.io/pods", "metrics.k8s.io/nodes"])
      for (const subResource of ["", "eviction", "status", "resize"]) {
        const [group, plural = ""] = resource.split("/");
        const change = { operation, group: group ?? "", resource: plural, subResource, object };
        const name = `${operation} ${resource}/${subResource}`;
        if (Reflect.get(await targetOf(change), "kind") !== "ignored") looked.push(name);
        if (isNode(request(change))) nodes.push(name);
      }
  const [update, remove] = ["UPDATE /pods/", "DELETE /pods/"];
  expect(looked).toEqual(["CREATE /pods/eviction", update, `${update}status`, `${update}resize`, remove]);
  expect(nodes).toEqual(["UPDATE /nodes/", "UPDATE /nodes/status", "DELETE /nodes/"]);
});

test.each(["0", "", "5x", "05", "5,6"])("a deletion of a pod with the version %j is malformed", async (version) => {
  const oldObject = podJson({ metadata: { resourceVersion: version } });
  await expect(targetOf({ oldObject })).rejects.toMatchObject({ status: 400 });
});

const preferring = { annotations: { [HEALTH_CRITERION_ANNOTATION]: "Ready" } };
const stating = { annotations: { [HEALTH_CRITERION_ANNOTATION]: "Running" } };
const ofVersion = (resourceVersion: string): object => ({ deleteOptions: { preconditions: { resourceVersion } } });

test.each<[string, object, Partial<AdmissionRequest>, object]>([
  ["for the version that the pod has", ofVersion("77"), {}, { kind: "disruption" }],
  ["for another version", ofVersion("76"), {}, { kind: "conflict", wanted: "76" }],
  ["as a dry run of its caller", {}, { dryRun: true }, { dryRun: true }],
  ["as a dry run of its options", { deleteOptions: { dryRun: ["All"] } }, {}, { dryRun: true }],
  ["that is none, by the pod's criterion", { deleteOptions: {} }, {}, { dryRun: false, criterion: "Ready" }],
  [
    "by a name and a criterion of its own",
    { metadata: { name: "web-0", ...stating } },
    { name: "" },
    { criterion: "Running" },
  ],
])("an eviction %s", async (_, options, change, expected) => {
  const evict = { operation: "CREATE", subResource: "eviction", object: { ...EVICTION, ...options } };
  const live = found({ resourceVersion: "77", ...preferring });
  expect(await targetOf({ ...evict, ...change }, live)).toMatchObject(expected);
});
