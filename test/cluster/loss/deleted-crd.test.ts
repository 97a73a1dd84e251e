/**
 * Game days: the PodProtector CRD is deleted by mistake, comes back by the commands of the page, and the core's etcd is
 * restored to before all that.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import type { EtcdSnapshot } from "../../../scripts/control-plane/etcd.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const CELL = "east";
const NAMESPACE = "shop";
const NAME = "deployment-web";
const PROMISED = 4;
/** Between two attempts to delete all pods: what is to recover shares the machine. */
const PAUSE_MS = 100;
const CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprotectors.podseidon.kubewharf.io";
const PODS_PATH = `/api/v1/namespaces/${NAMESPACE}/pods`;
const labels = { app: "web" };
/** The commands name the folder of the CRD by its path in a clone. */
const PAGE = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8").replaceAll(
  " -k crds",
  ` -k ${join(root, "crds")}`,
);

let environment: TestEnvironment;
let generator: Component;
let availability: AvailabilityJudge;
let before: EtcdSnapshot;
let terminating: EtcdSnapshot;

const annotations = { "podseidon.kubewharf.io/min-available": String(PROMISED) };
const workload = (name: string) => deployment(name, 6, { namespace: NAMESPACE, annotations });

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: [CELL], replicas: 2, cell: BARE, settle: "3s" },
    aggregatorArgs: ["--restore-after=2s", "--copy-interval=100ms"],
  });
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  for (const cluster of [environment.core, environment.cell(CELL)]) await cluster.apply([namespace]);
  await environment.core.apply([workload("web")]);
  generator = await environment.startGenerator();
  await environment.core.waitFor("the protector", async () => {
    return (await environment.core.admin.request("GET", PROTECTORS)).text.includes(NAME);
  });
  await createProtector(environment.core, NAMESPACE, "by-hand", { minAvailable: 1, selector: { matchLabels: labels } });
  await createReadyPods(environment.cell(CELL), { namespace: NAMESPACE, prefix: "web", count: PROMISED, labels });
  availability = await AvailabilityJudge.watch([environment.cell(CELL)], NAMESPACE);
  await untilCounted(PROMISED);
});

afterAll(async () => {
  await availability?.stop();
  await generator?.stop();
  await environment?.stop();
});

const PROTECTORS = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;

const untilCounted = (pods: number): Promise<void> => waitUntilSettled(environment.core, NAMESPACE, NAME, pods);

/** What clients read who delete every pod once. */
async function deleteAll(): Promise<string[]> {
  const { admin } = environment.cell(CELL);
  const names = items(await admin.get(PODS_PATH)).map((pod) => String(field(pod, "metadata", "name")));
  const answers = names.map((name) => admin.request("DELETE", `${PODS_PATH}/${name}`));
  return (await Promise.all(answers)).map(({ status, text }) => `${status} ${text}`);
}

/** Of one pod more than is promised, exactly that one can be deleted, once it is counted. */
async function expectProtection(prefix: string): Promise<void> {
  const { core } = environment;
  await createReadyPods(environment.cell(CELL), { namespace: NAMESPACE, prefix, count: 1, labels });
  let last: readonly string[] = [];
  const isMinimum = async (): Promise<boolean> => {
    last = await deleteAll();
    return last.length <= PROMISED && last.every((answer) => answer.includes("its capacity is at the minimum"));
  };
  await core.waitFor("the minimum", isMinimum).catch((cause: unknown) => {
    throw new Error(`the last answers: ${last.join("\n")}`, { cause });
  });
  await availability.catchUp();
  expect(availability.counts().total).toBe(PROMISED);
  expect(availability.lowest).toBe(PROMISED);
}

const isTerminating = async (): Promise<boolean> =>
  field(await environment.core.admin.get(CRD), "metadata", "deletionTimestamp") !== undefined;

test("while the CRD terminates, its protectors are in force, and no workload gets a new one", async () => {
  const { core } = environment;
  before = core.snapshotEtcd();
  await core.kubectl(["delete", "crd", "podprotectors.podseidon.kubewharf.io", "--wait=false"]);
  await core.waitFor("the protectors to be on their way out", async () => {
    return (await readProtector(core, NAMESPACE, NAME)).metadata.deletionTimestamp !== undefined;
  });
  await expectProtection("terminating");
  await core.apply([workload("new")]);
  await core.waitFor("the Event", async () => {
    const events = await core.admin.get(`/api/v1/namespaces/${NAMESPACE}/events`);
    return items(events).some((one) => field(one, "reason") === "NotProtected");
  });
  expect(await isTerminating()).toBe(true);
  // It has no finalizer.
  expect((await core.admin.request("GET", `${PROTECTORS}/by-hand`)).status).toBe(404);
  terminating = core.snapshotEtcd();
});

/** Runs the commands of the page while clients delete every pod again and again. */
async function bringBack(): Promise<void> {
  const { core } = environment;
  const { uid } = (await readProtector(core, NAMESPACE, NAME)).metadata;
  let isDone = false;
  const done = shellCommand(core, PAGE, "bring the CRD back").finally(() => {
    isDone = true;
  });
  while (!isDone) {
    await deleteAll();
    await delay(PAUSE_MS);
  }
  await done;
  await core.waitFor("a successor of the protector", async () => {
    await deleteAll();
    const { status, body } = await core.admin.request("GET", `${PROTECTORS}/${NAME}`);
    return status === 200 && field(body, "metadata", "uid") !== uid;
  });
}

test("the commands of the page bring it back, with all protectors, and no needed pod goes", async () => {
  await bringBack();
  await expectProtection("back");
  await environment.core.waitFor("the protector of the new workload", async () => {
    return (await environment.core.admin.request("GET", PROTECTORS)).text.includes(`"name":"deployment-new"`);
  });
});

test("so they do where the core is restored to while it terminated", async () => {
  const restored = environment.core.restoreEtcd(terminating);
  await deleteAll();
  await restored;
  await deleteAll();
  expect(await isTerminating()).toBe(true);
  await bringBack();
  await expectProtection("again");
});

test("a core that is restored to before the deletion has its protectors again, and no needed pod goes", async () => {
  const { core } = environment;
  const restored = core.restoreEtcd(before);
  await deleteAll();
  await restored;
  await expectProtection("restored");
  expect(await isTerminating()).toBe(false);
});
