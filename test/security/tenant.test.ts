/**
 * What a tenant, an account with the ClusterRole `edit` in one namespace and no other right, can do to others: on a
 * real kube-apiserver.
 */

import { afterAll, beforeAll, expect, it } from "vitest";
import { ApiserverClient, field, items } from "../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { ask } from "../support/cluster/ask.ts";
import { deployment } from "../support/cluster/deployments.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../support/cluster/protectors.ts";

const TENANT = "tenant";
const PODS = `/api/v1/namespaces/${TENANT}/pods`;
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
    // Of the release register.
    { apiVersion: "v1", kind: "Namespace", metadata: { name: "podseidon-system" } },
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
  await waitUntilSettled(cluster, "default", "web", 1);
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
  // A slow machine needs longer for the pods than the request may take.
  await cluster.waitFor("the node to be deleted", async () => {
    const { status, text } = await ask(cluster, "DELETE", `/api/v1/nodes/${node}`);
    expect(status, text).toBeOneOf([200, 503]);
    return status === 200;
  });
});

const deploymentsIn = (namespace: string): string => `/apis/apps/v1/namespaces/${namespace}/deployments`;
const protectorsIn = (namespace: string): string =>
  `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${namespace}/podprotectors`;

function filled(name: string): unknown {
  const env = [{ name: "FILL", value: "<".repeat(900_000) }];
  return deployment(name, 0, { namespace: TENANT, podSpec: { containers: [{ name: "app", image: "app:1", env }] } });
}

async function withGenerator(work: () => Promise<void>): Promise<void> {
  const generator = await environment.startGenerator();
  try {
    await work();
  } finally {
    await generator.stop();
  }
}

/** Names of the protectors of a namespace. */
async function protectors(namespace: string): Promise<readonly unknown[]> {
  return items(await cluster.admin.get(protectorsIn(namespace))).map((one) => field(one, "metadata", "name"));
}

it("Deployments of megabytes do not keep the generator from protecting those of others", async () => {
  // Side by side in a list, 16 of them are 80 MB of JSON.
  const names = Array.from({ length: 16 }, (_, index) => `huge-${index}`);
  await eachAtMost(CREATORS, names, async (name) => {
    await tenant.call("POST", deploymentsIn(TENANT), filled(name));
  });
  await cluster.admin.call("POST", deploymentsIn("default"), deployment("shop", 1));
  await withGenerator(async () => {
    await cluster.waitFor("the protector", async () => (await protectors("default")).includes("deployment-shop"));
  });
  // The generator of the next test need not read them.
  await cluster.admin.call("DELETE", deploymentsIn(TENANT));
});

it("a protector made by hand is a floor: neither a workload of its name nor the tenant can change it", async () => {
  const hand = `${protectorsIn(TENANT)}/deployment-floor`;
  const named = async () => (await protectors(TENANT)).filter((name) => String(name).startsWith("deployment-floor"));
  await createProtector(cluster, TENANT, "deployment-floor", {
    minAvailable: 1,
    selector: { matchLabels: { app: "floor" } },
  });
  const before = field(await cluster.admin.get(hand), "spec");
  await tenant.call("POST", deploymentsIn(TENANT), deployment("floor", 4, { namespace: TENANT }));
  await withGenerator(async () => {
    await cluster.waitFor("a protector beside it", async () => (await named()).length === 2);
    const annotations = { "podseidon.kubewharf.io/protect": "false" };
    await tenant.call("PATCH", `${deploymentsIn(TENANT)}/floor`, { metadata: { annotations } });
    await cluster.waitFor("its end", async () => (await named()).length === 1);
  });
  expect(field(await cluster.admin.get(hand), "spec")).toEqual(before);
  for (const [method, path] of [
    ["PATCH", hand],
    ["PATCH", `${hand}/status`],
    ["DELETE", hand],
  ] as const)
    expect(await tenant.request(method, path, { spec: { minAvailable: 0 } })).toMatchObject({ status: 403 });
});
