/**
 * What a tenant, an account with the ClusterRole `edit` in one namespace and no other right, can do to others: on a
 * real kube-apiserver.
 */
import { afterAll, beforeAll, expect, it } from "vitest";
import { ApiserverClient } from "../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { ask } from "../support/cluster/ask.ts";
import { createReadyPods, eachAtMost } from "../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../support/cluster/protectors.ts";

const TENANT = "tenant";
const PODS = `/api/v1/namespaces/${TENANT}/pods`;
const SETTLED_WITHIN_MS = 120_000;
const CREATORS = 8;

let environment: TestEnvironment;
let cluster: Cluster;
let tenant: ApiserverClient;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1 },
    cell: { kwok: false, tokens: [{ token: TENANT, user: TENANT, groups: [] }] },
  });
  cluster = environment.core;
  tenant = new ApiserverClient({
    url: cluster.url,
    certificateAuthorityPem: cluster.identity.certificateAuthorityPem,
    token: TENANT,
  });
  const metadata = { name: TENANT, namespace: TENANT };
  await cluster.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: TENANT } },
    {
      ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", metadata },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "edit" },
      subjects: [{ kind: "User", name: TENANT }],
    },
  ]);
  await cluster.waitFor("the tenant's role", async () => (await tenant.request("GET", PODS)).status === 200);
  // While nothing is protected, nobody's pods are looked at.
  await createReadyPods(cluster, { namespace: "default", prefix: "web", count: 1, labels: { app: "web" } });
  await createProtector(cluster, "default", "web", { minAvailable: 1, selector: { matchLabels: { app: "web" } } });
  await waitUntilSettled(cluster, "default", "web", 1, SETTLED_WITHIN_MS);
});

afterAll(async () => {
  tenant?.close();
  await environment?.stop();
});

/** Pods that a tenant puts on a node past the scheduler. No kubelet runs there, so that they stay Pending. */
async function crowd(node: string, count: number, value: string): Promise<void> {
  const containers = [{ name: "app", image: "app:1", env: [{ name: "FILL", value }] }];
  const spec = { nodeName: node, tolerations: [{ operator: "Exists" }], containers };
  const names = Array.from({ length: count }, (_, index) => `${node}-${index}`);
  await eachAtMost(CREATORS, names, async (name) => {
    await tenant.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name }, spec });
  });
}

it.each([
  // 75 MB of JSON, where a `<` takes six characters.
  ["pods of megabytes", 14, "<".repeat(900_000)],
  ["more pods than a node can have", 2_001, ""],
])("%s on a node whose kubelet is dead do not keep it from being deleted", async (_, count, value) => {
  const node = await cluster.createNode();
  await crowd(node, count, value);
  expect(await ask(cluster, "DELETE", `/api/v1/nodes/${node}`)).toMatchObject({ status: 200 });
});

it("Deployments of megabytes do not keep the generator from protecting those of others", async () => {
  const deployment = (name: string, replicas: number, value: string): unknown => {
    const labels = { app: name };
    const containers = [{ name: "app", image: "app:1", env: [{ name: "FILL", value }] }];
    return {
      ...{ apiVersion: "apps/v1", kind: "Deployment" },
      metadata: { name, labels: { "podseidon.kubewharf.io/protect": "true" } },
      spec: { replicas, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers } } },
    };
  };
  const deployments = (namespace: string): string => `/apis/apps/v1/namespaces/${namespace}/deployments`;
  // Side by side in a list, 16 of them are 80 MB of JSON.
  const names = Array.from({ length: 16 }, (_, index) => `huge-${index}`);
  await eachAtMost(CREATORS, names, async (name) => {
    await tenant.call("POST", deployments(TENANT), deployment(name, 0, "<".repeat(900_000)));
  });
  await cluster.admin.call("POST", deployments("default"), deployment("shop", 1, ""));
  await environment.startGenerator();
  const path = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors/deployment-shop";
  await cluster.waitFor("the protector", async () => (await cluster.admin.request("GET", path)).status === 200, 30_000);
});
