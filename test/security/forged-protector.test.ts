/**
 * The account of another cell, whose cluster is taken over, makes the protector of a workload before the generator
 * does: as if it restored it, and such that no pod counts, which would leave every pod free to go.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { type ApiserverClient, field, items } from "../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../scripts/demo/install.ts";
import { asAccount, createCellAccounts } from "../../scripts/environment/cell-accounts.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { ask } from "../support/cluster/ask.ts";
import { deployment } from "../support/cluster/deployments.ts";
import { setReady } from "../support/cluster/pods.ts";
import { availableReplicas, readProtector } from "../support/cluster/protectors.ts";

const GROUP = "podseidon.kubewharf.io";
const PROTECTORS = `/apis/${GROUP}/v1alpha1/namespaces/default/podprotectors`;
const PODS = "/api/v1/namespaces/default/pods";
const NAME = "deployment-web";
const labels = { app: "web" };

let environment: TestEnvironment;
let cluster: Cluster;
let forger: ApiserverClient;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1 },
    cell: { kwok: false },
  });
  cluster = environment.core;
  await applyOverlay(cluster, "core");
  await createCellAccounts(cluster, "b");
  forger = await asAccount(cluster, "aggregator.b");
});

afterAll(async () => {
  forger?.close();
  await environment?.stop();
});

test("no pod of the workload is free to go", async () => {
  const forged = {
    ...{ apiVersion: `${GROUP}/v1alpha1`, kind: "PodProtector" },
    metadata: { name: NAME, annotations: { [`${GROUP}/restored`]: "cell b: it vanished" } },
    spec: { minAvailable: 0, minReadySeconds: 0, selector: { matchLabels: labels }, unavailableLabelPrefix: "app" },
  };
  const source = { "source-name": "web", "source-group": "apps", "source-kind": "Deployment" };
  const named = Object.fromEntries(Object.entries(source).map(([key, value]) => [`${GROUP}/${key}`, value]));
  const object = { ...forged, metadata: { ...forged.metadata, labels: named, finalizers: [`${GROUP}/generator`] } };
  await cluster.waitFor("the account's permission, and its policy", async () => {
    const answer = await forger.request("POST", PROTECTORS, object);
    return answer.status === 201;
  });
  await cluster.admin.call("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("web", 2));
  const generator = await environment.startGenerator();
  const names = async () => items(await cluster.admin.get(PODS)).map((pod) => String(field(pod, "metadata", "name")));
  await cluster.waitFor("two pods", async () => (await names()).length === 2);
  for (const name of await names()) await setReady(cluster, "default", name, true);
  await cluster.waitFor("the generator to take the protector", async () => {
    const { spec } = await readProtector(cluster, "default", NAME);
    return spec.minAvailable === 2;
  });
  const [victim = ""] = await names();
  expect(await ask(cluster, "DELETE", `${PODS}/${victim}`)).toMatchObject({ status: 429 });
  await cluster.waitFor("both to be counted", async () => {
    return availableReplicas(await readProtector(cluster, "default", NAME)) === 2;
  });
  expect(await ask(cluster, "DELETE", `${PODS}/${victim}`)).toMatchObject({ status: 429 });
  await generator.stop();
});
