/**
 * The CRD in the core is edited: it serves no status any more, or no protectors. kube-apiserver then says of the status
 * of each protector that it is not found, as of one that was deleted.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { ask } from "../../support/cluster/ask.ts";
import { createReadyPods, setReady } from "../../support/cluster/pods.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";
import { CELL, labels, NAME, NAMESPACE, PODS, PROMISED, PROTECTOR, startFivePods } from "./five-pods.ts";

const CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprotectors.podseidon.kubewharf.io";

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await startFivePods();
});

afterAll(() => environment?.stop());

/** Edits a field of the CRD's version, and waits until the apiserver serves `path` or no longer does. */
async function edit(name: string, value: unknown, path: string, status: number): Promise<void> {
  const { admin } = environment.core;
  const patch = [{ op: "add", path: `/spec/versions/0/${name}`, value }];
  await admin.call("PATCH", CRD, patch, { contentType: "application/json-patch+json" });
  const isThere = async (): Promise<boolean> => (await admin.request("GET", path)).status === status;
  await environment.core.waitFor(`${path} to answer ${status}`, isThere);
}

/** What clients read who delete the pods, one after the other. */
async function deletePods(...names: readonly string[]): Promise<string[]> {
  const answers: string[] = [];
  for (const name of names) {
    const { status, text } = await ask(environment.cell(CELL), "DELETE", `${PODS}/${name}`);
    answers.push(`${status} ${text}`);
  }
  return answers;
}

const left = async (): Promise<number> => items(await environment.cell(CELL).admin.get(PODS)).length;

test("while it serves no status, no pod goes of a protector that was made by hand", async () => {
  await edit("subresources", {}, `${PROTECTOR}/status`, 404);
  for (const answer of await deletePods("web-0", "web-1", "web-2")) {
    expect(answer).toMatch(/^500 .*the core does not serve the status of PodProtectors: apply its CRD again/);
  }
  expect(await left()).toBe(PROMISED + 2);
});

test("a pod that fails meanwhile is counted no more once the status is served again", async () => {
  await setReady(environment.cell(CELL), NAMESPACE, "web-0", false);
  await setReady(environment.cell(CELL), NAMESPACE, "web-1", false);
  await deletePods("web-2");
  await edit("subresources", { status: {} }, `${PROTECTOR}/status`, 200);
  await waitUntilSettled(environment.core, NAMESPACE, NAME, PROMISED);
  for (const answer of await deletePods("web-2", "web-3", "web-4")) expect(answer).toMatch(/^429 /);
});

test("while it serves no protectors, no available pod goes, and one that is spare goes afterwards", async () => {
  await setReady(environment.cell(CELL), NAMESPACE, "web-0", true);
  await waitUntilSettled(environment.core, NAMESPACE, NAME, PROMISED + 1);
  await edit("served", false, PROTECTOR, 404);
  for (const answer of await deletePods("web-2")) expect(answer).toMatch(/^500 /);
  await edit("served", true, PROTECTOR, 200);
  const isDeleted = async (): Promise<boolean> => (await deletePods("web-2"))[0]?.startsWith("200") === true;
  await environment.core.waitFor("the spare pod to go", isDeleted);
  for (const answer of await deletePods("web-0", "web-3", "web-4")) expect(answer).toMatch(/^429 /);
});

/** Every process starts anew, and knows nothing. */
async function restartAll(): Promise<void> {
  await environment.replaceWebhooks(["webhook-3", "webhook-4"]);
  await environment.aggregators.get(CELL)?.stop();
  await environment.startAggregator(CELL);
}

test("while it drops what a protector must have, and all processes start again, no available pod goes", async () => {
  const { admin } = environment.core;
  const spec = field(await admin.get(CRD), "spec");
  await createReadyPods(environment.cell(CELL), { namespace: NAMESPACE, prefix: "more", count: 1, labels });
  await waitUntilSettled(environment.core, NAMESPACE, NAME, PROMISED + 1);
  const schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
  const patch = [
    { op: "remove", path: `${schema}/properties/summary` },
    { op: "replace", path: `${schema}/required`, value: ["cells"] },
  ];
  await admin.call("PATCH", CRD, patch, { contentType: "application/json-patch+json" });
  const isDropped = async (): Promise<boolean> => field(await admin.get(PROTECTOR), "status", "summary") === undefined;
  await environment.core.waitFor("the field to be dropped", isDropped);
  await restartAll();
  for (const answer of await deletePods("more-0", "web-0")) expect(answer).toMatch(/^(429|500) /);
  await admin.call("PATCH", CRD, [{ op: "replace", path: "/spec", value: spec }], {
    contentType: "application/json-patch+json",
  });
  const isDeleted = async (): Promise<boolean> => (await deletePods("more-0"))[0]?.startsWith("200") === true;
  await environment.core.waitFor("the spare pod to go", isDeleted);
  await waitUntilSettled(environment.core, NAMESPACE, NAME, PROMISED);
  for (const answer of await deletePods("web-0", "web-3", "web-4")) expect(answer).toMatch(/^429 /);
});
