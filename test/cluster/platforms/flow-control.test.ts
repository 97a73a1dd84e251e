/**
 * A kube-apiserver whose seats (priority and fairness) are few, where many clients delete at once. Each deletion keeps
 * its seat until the webhook has answered, which needs a seat itself, for the write of the reservation.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiserverClient } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { createReadyPods, readyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const SYSTEM = "podseidon-system";
const PODS = 60;
const MINIMUM = 20;
const OPERATOR = { namespace: "default", name: "operator" };

let environment: TestEnvironment;

/** ServiceAccounts that may do everything, as who they are decides what they wait for. */
async function createAccounts(cluster: Cluster): Promise<void> {
  const accounts = [OPERATOR, { namespace: SYSTEM, name: "podseidon-webhook" }];
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" };
  await cluster.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM } },
    ...accounts.map((metadata) => ({ apiVersion: "v1", kind: "ServiceAccount", metadata })),
    {
      ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name: "all" }, roleRef },
      subjects: accounts.map((account) => ({ kind: "ServiceAccount", ...account })),
    },
  ]);
  await cluster.apply(readFileSync("manifests/base/namespace/flow-control.yaml", "utf8"));
}

beforeAll(async () => {
  let created: Promise<void> | undefined;
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1 },
    cell: {
      ...BARE,
      flags: { "kube-apiserver": { "max-requests-inflight": "4", "max-mutating-requests-inflight": "2" } },
    },
    kubeconfig: async (_, cluster) => {
      created ??= createAccounts(cluster);
      await created;
      return await cluster.kubeconfigFor({ serviceAccount: { namespace: SYSTEM, name: "podseidon-webhook" } });
    },
  });
  const { core } = environment;
  const selector = { matchLabels: { app: "app" } };
  await createProtector(core, "default", "app", { minAvailable: MINIMUM, selector });
  await createReadyPods(core, { namespace: "default", prefix: "app", count: PODS, labels: { app: "app" } });
  await waitUntilSettled(core, "default", "app", PODS);
});

afterAll(() => environment?.stop());

test("deletions that wait for the webhook don't take the seats that its writes need", async () => {
  const { core } = environment;
  const client = new ApiserverClient({
    ...{ url: core.url, certificateAuthorityPem: core.identity.certificateAuthorityPem },
    token: await core.serviceAccountToken(OPERATOR.namespace, OPERATOR.name),
  });
  let isOver = false;
  const repeated = Array.from({ length: PODS }, async (_, index) => {
    const path = `/api/v1/namespaces/default/pods/app-${index}`;
    // As an operator that knows no backoff.
    while (!isOver && (await client.request("DELETE", path).catch(() => undefined))?.status !== 200);
  });
  try {
    const gone = async () => (await readyPods([core], "app")) <= MINIMUM;
    await core.waitFor("all pods that can be spared to be gone", gone);
  } finally {
    isOver = true;
    await Promise.all(repeated);
    client.close();
  }
  expect(await readyPods([core], "app")).toBe(MINIMUM);
});
