/**
 * A tool that backs up and restores objects, such as Velero (docs/how-to/backup-tools.md), which does not run here: the
 * tests send what it sends. Pods come first, then their ReplicaSets, Deployments and protectors, all with finalizers,
 * labels and annotations, with two more labels, and without owners and status.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import { afterAll, beforeAll, expect, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { ask } from "../../support/cluster/ask.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { block } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { eventually, GROUP, protectorPath } from "../../support/generator/generator-harness.ts";

const PAGE = readFileSync(new URL("../../../docs/how-to/backup-tools.md", import.meta.url), "utf8");
const NAMESPACE = "shop";
const COPY = "shop-copy";
const ELSEWHERE = "elsewhere";
const ALONE = "alone";
const GENERATED = "deployment-web";
const BY_HAND = "by-hand";
const PODS = 4;
const labels = { app: "web" };
const NODE = "/api/v1/nodes/node-1";
const podsPath = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;
const deploymentPath = (namespace: string): string => `/apis/apps/v1/namespaces/${namespace}/deployments/web`;
/** In Velero's order. */
const COLLECTIONS = [
  podsPath,
  (namespace: string) => `/apis/apps/v1/namespaces/${namespace}/replicasets`,
  (namespace: string) => `/apis/apps/v1/namespaces/${namespace}/deployments`,
  (namespace: string) => protectorPath(namespace),
] as const;

let environment: TestEnvironment;
let generator: Component;
/** What the backup has of each collection. */
let backup: readonly (readonly unknown[])[];

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "3s" },
    cell: { nodes: 1 },
  });
  const { core } = environment;
  generator = await environment.startGenerator();
  const names = [NAMESPACE, COPY, ELSEWHERE, ALONE];
  await core.apply(names.map((name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } })));
  await createProtector(core, NAMESPACE, BY_HAND, { minAvailable: 1, selector: { matchLabels: labels } });
  const spec = { strategy: { rollingUpdate: { maxUnavailable: 1 } } };
  await core.apply([deployment("web", PODS, { namespace: NAMESPACE, spec })]);
  await untilCounted(NAMESPACE);
  backup = await Promise.all(COLLECTIONS.map(async (path) => items(await core.admin.get(path(NAMESPACE)))));
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

async function untilCounted(namespace: string): Promise<void> {
  const { core } = environment;
  await eventually(core, protectorPath(namespace, GENERATED), (one) => one !== undefined);
  for (const name of [GENERATED, BY_HAND]) await waitUntilSettled(core, namespace, name, PODS);
}

/** The object as it is created again, in this namespace. */
function restored(object: unknown, kind: string, apiVersion: string, namespace: string): object {
  const metadata = field(object, "metadata");
  const { nodeName: _, priority: __, ...spec } = { ...Object(field(object, "spec")) };
  const more = { "velero.io/backup-name": "nightly", "velero.io/restore-name": "nightly-1" };
  return {
    ...{ apiVersion, kind, spec },
    metadata: {
      ...{ name: field(metadata, "name"), namespace },
      labels: { ...Object(field(metadata, "labels")), ...more },
      annotations: field(metadata, "annotations"),
      finalizers: field(metadata, "finalizers"),
    },
  };
}

const KINDS = ["Pod", "ReplicaSet", "Deployment", "PodProtector"] as const;
const VERSIONS = ["v1", "apps/v1", "apps/v1", `${GROUP}/v1alpha1`] as const;

/** Creates all objects of the backup, and returns the answers other than 201, with the objects' names. */
async function restore(namespace: string): Promise<string[]> {
  const answers: string[] = [];
  for (const [index, path] of COLLECTIONS.entries()) {
    for (const object of backup[index] ?? []) {
      const body = restored(object, KINDS[index] ?? "", VERSIONS[index] ?? "", namespace);
      const { status } = await environment.core.admin.request("POST", path(namespace), body);
      if (status !== 201) answers.push(`${status} ${field(object, "metadata", "name")}`);
    }
  }
  return answers;
}

const podNames = async (namespace: string): Promise<unknown[]> =>
  items(await environment.core.admin.get(podsPath(namespace)))
    .filter((pod) => field(pod, "metadata", "deletionTimestamp") === undefined)
    .map((pod) => field(pod, "metadata", "name"));

const namesIn = (index: number): unknown[] => (backup[index] ?? []).map((one) => field(one, "metadata", "name"));

/** All pods of the backup are there and no other. One of them can go, and no second one before it is replaced. */
async function expectProtection(namespace: string): Promise<void> {
  const { core } = environment;
  await untilCounted(namespace);
  expect(await podNames(namespace)).toEqual(namesIn(0));
  const [deployment, { metadata }] = await Promise.all([
    core.admin.get(deploymentPath(namespace)),
    readProtector(core, namespace, GENERATED),
  ]);
  expect(metadata.ownerReferences?.map(({ uid }) => uid)).toEqual([field(deployment, "metadata", "uid")]);
  // What replaces a pod finds no node.
  await core.admin.call("PATCH", NODE, { spec: { unschedulable: true } });
  const decided: number[] = [];
  for (const name of namesIn(0)) {
    const isDecided = async (): Promise<boolean> => {
      const { status, text } = await core.admin.request("DELETE", `${podsPath(namespace)}/${name}`);
      const isAtMinimum = text.includes("its capacity is at the minimum");
      if (status === 200 || isAtMinimum) decided.push(status);
      return status === 200 || isAtMinimum;
    };
    await core.waitFor(`a decision about ${name}`, isDecided);
  }
  expect(decided).toEqual([200, 429, 429, 429]);
  await core.admin.call("PATCH", NODE, { spec: { unschedulable: null } });
}

test("a namespace that is restored under another name keeps its pods and has protectors of its own", async () => {
  const { core } = environment;
  const before = await readProtector(core, NAMESPACE, GENERATED);
  // The generator is faster than the tool, which leaves what exists as it is.
  for (const answer of await restore(COPY)) expect(answer).toBe(`409 ${GENERATED}`);
  await expectProtection(COPY);
  const after = await readProtector(core, NAMESPACE, GENERATED);
  expect([after.metadata.uid, after.spec]).toEqual([before.metadata.uid, before.spec]);
});

test("a restore over what is there changes nothing", async () => {
  const answers = await restore(NAMESPACE);
  expect(answers).toEqual(backup.flatMap((_, index) => namesIn(index).map((name) => `409 ${name}`)));
  expect(await podNames(NAMESPACE)).toEqual(namesIn(0));
});

test("a workload that was deleted, and its protector released, is protected again", async () => {
  const { core } = environment;
  await core.admin.call("PATCH", deploymentPath(NAMESPACE), { spec: { replicas: 0 } });
  await core.admin.call("DELETE", deploymentPath(NAMESPACE));
  await core.admin.call("DELETE", protectorPath(NAMESPACE, BY_HAND));
  for (const path of COLLECTIONS) await eventually(core, path(NAMESPACE), (list) => items(list).length === 0);
  for (const answer of await restore(NAMESPACE)) expect(answer).toBe(`409 ${GENERATED}`);
  await expectProtection(NAMESPACE);
});

test("an older promise is repaired, and a workload from before it was protected ends its protector", async () => {
  const { core } = environment;
  await core.admin.call("PATCH", protectorPath(COPY, GENERATED), { spec: { minAvailable: 1 } });
  await eventually(core, protectorPath(COPY, GENERATED), (one) => field(one, "spec", "minAvailable") === 3);
  const metadata = { labels: { [`${GROUP}/protect`]: null }, finalizers: null };
  await core.admin.call("PATCH", deploymentPath(COPY), { metadata });
  await eventually(core, protectorPath(COPY, GENERATED), (one) => one === undefined);
  expect((await readProtector(core, COPY, BY_HAND)).spec.minAvailable).toBe(1);
});

test("protectors from a file whose owners are gone: the generator's are replaced, others are collected", async () => {
  const { core } = environment;
  const owner = { apiVersion: "v1", kind: "ConfigMap", name: "owner", uid: "11111111-2222-3333-4444-555555555555" };
  const { stdout } = await core.kubectl(["get", "podprotectors", "--namespace", NAMESPACE, "--output", "json"]);
  const file = join(core.directory, "protectors.json");
  writeFileSync(
    file,
    stdout
      .replaceAll(`"namespace": "${NAMESPACE}"`, `"namespace": "${ELSEWHERE}"`)
      .replace(`"name": "${BY_HAND}"`, `"name": "${BY_HAND}", "ownerReferences": [${JSON.stringify(owner)}]`),
  );
  expect(await core.kubectl(["create", "--filename", file])).toMatchObject({ code: 0 });
  const isReplaced = (one: unknown): boolean =>
    one !== undefined &&
    field(one, "metadata", "deletionTimestamp") === undefined &&
    field(one, "metadata", "ownerReferences") === undefined &&
    conditionStatus(one, "SourceVanished") === "True";
  const replaced = await eventually(core, protectorPath(ELSEWHERE, GENERATED), isReplaced);
  await eventually(core, protectorPath(ELSEWHERE, BY_HAND), (one) => one === undefined);
  // Its workload comes later, and takes it over.
  const [deployment] = backup[2] ?? [];
  const made = await core.admin.call(
    "POST",
    COLLECTIONS[2](ELSEWHERE),
    restored(deployment, "Deployment", "apps/v1", ELSEWHERE),
  );
  const isAdopted = (one: unknown): boolean =>
    field(one, "metadata", "ownerReferences", 0, "uid") === field(made, "metadata", "uid") &&
    conditionStatus(one, "SourceVanished") === "False";
  const adopted = await eventually(core, protectorPath(ELSEWHERE, GENERATED), isAdopted);
  expect(field(adopted, "metadata", "uid")).toBe(field(replaced, "metadata", "uid"));
});

test("a restored status is believed, and lets a pod go for those of a cell that is not there", async () => {
  const { core } = environment;
  const [saved] = (backup[3] ?? []).filter((one) => field(one, "metadata", "name") === BY_HAND);
  await core.admin.call("POST", protectorPath(ALONE), restored(saved, "PodProtector", `${GROUP}/v1alpha1`, ALONE));
  const path = protectorPath(ALONE, BY_HAND);
  const cell = field(saved, "status", "cells", 0);
  const more = [{ op: "add", path: "/status/cells/-", value: { ...Object(cell), cellID: "gone" } }];
  await eventually(core, path, (one) => items(field(one, "status"), "cells").length === 1);
  await core.admin.call("PATCH", `${path}/status`, more, { contentType: "application/json-patch+json" });
  await createReadyPods(core, { namespace: ALONE, prefix: "web", count: 1, labels });
  await waitUntilSettled(core, ALONE, BY_HAND, 1 + PODS);
  expect((await ask(core, "DELETE", `${podsPath(ALONE)}/web-0`)).status).toBe(200);
});

test("the page's rules take the finalizer off a workload, and its restore leaves the protectors out", async () => {
  const { core } = environment;
  await generator.stop();
  const rules = items(load(block(PAGE, "without finalizers")), "resourceModifierRules");
  expect(rules.map((rule) => field(rule, "conditions", "labelSelector", "matchLabels"))).toEqual([
    PROTECTED,
    PROTECTED,
  ]);
  const patch: unknown = JSON.parse(String(field(rules[0], "mergePatches", 0, "patchData")));
  expect(field(await core.admin.get(deploymentPath(ELSEWHERE)), "metadata", "finalizers")).toHaveLength(1);
  const patched = await core.admin.call("PATCH", deploymentPath(ELSEWHERE), patch);
  expect(field(patched, "metadata", "finalizers")).toBeUndefined();
  const crds = items(await core.admin.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"));
  const excluded = field(load(block(PAGE, "what to restore")), "spec", "excludedResources");
  expect(excluded).toEqual(crds.map((crd) => field(crd, "metadata", "name")));
});
