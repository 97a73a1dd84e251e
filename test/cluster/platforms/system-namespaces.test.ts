/**
 * A platform whose kube-apiserver reaches the webhook through agents in kube-system (konnectivity on AKS and GKE): when
 * the agents are lost, so is the webhook, and the agents' replacement must not ask it.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../../scripts/demo/install.ts";
import { messageOf } from "../../support/cluster/ask.ts";
import { deployment } from "../../support/cluster/deployments.ts";

/** Nobody listens there: the webhook is out of reach. */
const CLOSED_PORT = 1;
const AGENTS = "kube-system";
const TENANT = "shop";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start({ nodes: 2 });
  await cluster.kubectl(["cordon", "node-2"]);
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: TENANT } }]);
  await cluster.apply([AGENTS, TENANT].map((namespace) => deployment("agent", 1, { namespace, labels: {} })));
  for (const namespace of [AGENTS, TENANT])
    await cluster.waitFor(`a pod in ${namespace}`, async () => (await podOn("node-1", namespace)) !== undefined);
  await cluster.kubectl(["uncordon", "node-2"]);
});

afterAll(() => cluster?.stop());

async function podOn(node: string, namespace: string): Promise<string | undefined> {
  const query = `labelSelector=app%3Dagent&fieldSelector=spec.nodeName%3D${node},status.phase%3DRunning`;
  const [pod] = items(await cluster.admin.get(`/api/v1/namespaces/${namespace}/pods?${query}`));
  return pod === undefined ? undefined : String(field(pod, "metadata", "name"));
}

async function deletion(path: string): Promise<string> {
  const answer = await cluster.admin.request("DELETE", `${path}?dryRun=All`);
  return answer.status < 300 ? "allowed" : messageOf(answer);
}

async function podDeletion(namespace: string): Promise<string> {
  return await deletion(`/api/v1/namespaces/${namespace}/pods/${await podOn("node-1", namespace)}`);
}

/** Before a machine that takes over the name of another one joins, GKE deletes the Node of the other one. */
function nodeDeletion(): Promise<string> {
  return deletion("/api/v1/nodes/node-1");
}

test("agents of kube-system come back on another node although the webhook is out of reach", async () => {
  await applyOverlay(cluster, "demo/worker-1", { servicePort: CLOSED_PORT });
  await cluster.waitFor("everybody to be asked about", async () =>
    (await Promise.all([podDeletion(AGENTS), podDeletion(TENANT), nodeDeletion()])).every((one) =>
      one.includes("failed calling webhook"),
    ),
  );
  const components = ["without-system-namespaces", "without-node-deletions"];
  await applyOverlay(cluster, "demo/worker-1", { servicePort: CLOSED_PORT, components });
  await cluster.waitFor("nobody to be asked about agents", async () => (await podDeletion(AGENTS)) === "allowed");
  expect(await nodeDeletion()).toBe("allowed");
  const taints = [{ key: "broken", effect: "NoExecute" }];
  await cluster.admin.call("PATCH", "/api/v1/nodes/node-1", { spec: { taints } });
  await cluster.waitFor("the agent on another node", async () => (await podOn("node-2", AGENTS)) !== undefined);
  expect(await podDeletion(TENANT)).toContain("failed calling webhook");
});
