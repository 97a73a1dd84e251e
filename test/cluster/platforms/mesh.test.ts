/**
 * A service mesh that takes the pods of each namespace that does not say otherwise. kube-apiserver is in no mesh, so
 * podseidon stays outside.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { newTriggerPod } from "../../../controllers/update-trigger/trigger-pod.ts";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { root } from "../../../scripts/root.ts";

const NAMESPACES = ["podseidon-system", "podseidon-update-trigger"];

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  for (const part of ["namespace", "update-trigger"])
    await cluster.apply(readFileSync(join(root, "manifests/base", part, "namespace.yaml"), "utf8"));
  // Istio's own selector.
  const namespaceSelector = { matchExpressions: [{ key: "istio-injection", operator: "DoesNotExist" }] };
  const rule = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };
  const sidecar = `Object.spec.initContainers{name: "istio-init", image: "proxy"}`;
  const policyName = "mesh";
  await cluster.apply([
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingAdmissionPolicy",
      metadata: { name: policyName },
      spec: {
        ...{ failurePolicy: "Fail", reinvocationPolicy: "Never" },
        matchConstraints: { namespaceSelector, resourceRules: [rule] },
        mutations: [
          {
            patchType: "ApplyConfiguration",
            applyConfiguration: { expression: `Object{spec: Object.spec{initContainers: [${sidecar}]}}` },
          },
        ],
      },
    },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingAdmissionPolicyBinding",
      metadata: { name: policyName },
      spec: { policyName },
    },
  ]);
  const containers = [{ name: "app", image: "app" }];
  const probe = { apiVersion: "v1", kind: "Pod", metadata: { name: "probe" }, spec: { containers } };
  await cluster.waitFor("the mesh to be in force", async () => {
    const { body } = await cluster.admin.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", probe);
    return field(body, "spec", "initContainers") !== undefined;
  });
});

afterAll(() => cluster?.stop());

test.each(NAMESPACES)("a pod of %s stays outside, and is admitted", async (namespace) => {
  const own = newTriggerPod(namespace, "probe", { mark: { counter: 0, lineage: [] }, atMs: 0, labels: {} });
  const path = `/api/v1/namespaces/${namespace}/pods?dryRun=All`;
  const { status, body, text } = await cluster.admin.request("POST", path, own);
  expect([status, status === 201 ? "" : text]).toEqual([201, ""]);
  expect(field(body, "spec", "initContainers")).toBeUndefined();
});
