/** What the operator of a database meets, which deletes pods itself and moves roles (docs/how-to/operators.md). */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { load, loadAll } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, expect, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { block, shellCommand } from "../../support/cluster/documented.ts";
import { OtherWebhook } from "../../support/cluster/other-webhook.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";
import { eventually, GROUP, protectorPath, readObject } from "../../support/generator/generator-harness.ts";

const PAGE = readFileSync(new URL("../../../docs/how-to/operators.md", import.meta.url), "utf8");
const GENERATOR_PAGE = readFileSync(new URL("../../../docs/generator.md", import.meta.url), "utf8");
const argsOf = (page: string, name: string): string[] =>
  v.parse(v.object({ args: v.array(v.string()) }), load(block(page, name))).args;
const args = [...argsOf(PAGE, "all instances"), ...argsOf(GENERATOR_PAGE, "groups of pods")];
const namespace = "default";
const PODS = `/api/v1/namespaces/${namespace}/pods`;
const ROLE = "cnpg.io/instanceRole";
const INSTANCES = ["pg-1", "pg-2", "pg-3"];
const PROTECTOR = "cluster-pg";

let environment: TestEnvironment;
let generator: Component;
let owner: object;

/** Installs a kind of any fields. */
async function serve(group: string, kind: string, plural: string): Promise<void> {
  const open = { type: "object", "x-kubernetes-preserve-unknown-fields": true };
  const versions = [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: open } }];
  const spec = { group, names: { kind, plural }, scope: "Namespaced", versions };
  const definition = { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition" };
  await environment.core.apply([{ ...definition, metadata: { name: `${plural}.${group}` }, spec }]);
  const path = `/apis/${group}/v1/namespaces/${namespace}/${plural}`;
  const isServed = async (): Promise<boolean> => (await environment.core.admin.request("GET", path)).status === 200;
  await environment.core.waitFor("the kind to be served", isServed);
}

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "8s" },
    cell: { nodes: 1, scheduler: false },
  });
  await serve("postgresql.cnpg.io", "Cluster", "clusters");
  const group = "postgresql.cnpg.io";
  const clusters = `/apis/${group}/v1/namespaces/${namespace}/clusters`;
  const metadata = { name: "pg", labels: PROTECTED };
  const cluster = { apiVersion: `${group}/v1`, kind: "Cluster", metadata, spec: { instances: INSTANCES.length } };
  const uid = field(await environment.core.admin.call("POST", clusters, cluster), "metadata", "uid");
  owner = { apiVersion: `${group}/v1`, kind: "Cluster", name: "pg", uid, controller: true };
  for (const name of INSTANCES) await createInstance(name, name === "pg-1" ? "primary" : "replica");
  generator = await environment.startGenerator(["--leader-elect=false", ...args]);
  await eventually(environment.core, protectorPath(namespace, PROTECTOR), (one) => one !== undefined);
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

async function createInstance(name: string, role: string): Promise<void> {
  const labels = { "cnpg.io/cluster": "pg", "cnpg.io/podRole": "instance", [ROLE]: role };
  const metadata = { name, labels, ownerReferences: [owner] };
  const spec = { nodeName: "node-1", terminationGracePeriodSeconds: 1, containers: [{ name: "db", image: "db:1" }] };
  await environment.core.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
}

const settled = (): Promise<void> => waitUntilSettled(environment.core, namespace, PROTECTOR, INSTANCES.length);
const remove = (name: string): ReturnType<typeof ask> => ask(environment.core, "DELETE", `${PODS}/${name}`);

/** As an operator does: it deletes the pod, waits until it is gone, and creates it anew. */
async function update(name: string): Promise<void> {
  await settled();
  const { status, text } = await remove(name);
  expect(status, text).toBe(200);
  await eventually(environment.core, `${PODS}/${name}`, (one) => one === undefined);
  await createInstance(name, "replica");
}

test("a budget over the only primary refuses its deletion to the operator, too, and says so", async () => {
  const name = "pg-primary";
  const path = `/apis/policy/v1/namespaces/${namespace}/poddisruptionbudgets/${name}`;
  const [metadata, selector] = [{ name, namespace, labels: PROTECTED }, { matchLabels: { [ROLE]: "primary" } }];
  const budget = { apiVersion: "policy/v1", kind: "PodDisruptionBudget", metadata };
  await environment.core.apply([{ ...budget, spec: { minAvailable: 1, selector } }]);
  const own = protectorPath(namespace, `poddisruptionbudget-${name}`);
  const isImpossible = (one: unknown): boolean => conditionStatus(one, "DisruptionImpossible") === "True";
  await eventually(environment.core, own, isImpossible);
  const { status, text } = await remove("pg-1");
  expect([status, text]).toEqual([429, expect.stringContaining(`poddisruptionbudget-${name} needs 1 available pod`)]);
  const declined = { metadata: { annotations: { [`${GROUP}/protect`]: "false" } } };
  await environment.core.admin.call("PATCH", path, declined);
  await eventually(environment.core, own, (one) => one === undefined);
});

test("a pod whose eviction another webhook turns down holds its quota, for its operator's deletion alone", async () => {
  await settled();
  const other = await OtherWebhook.start(environment.core);
  other.opinion = () => false;
  const evict = (name: string, query = ""): ReturnType<typeof ask> => {
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } };
    return ask(environment.core, "POST", `${PODS}/${name}/eviction${query}`, eviction);
  };
  await other.register(environment.core);
  const isAsked = async (): Promise<boolean> => (await evict("pg-2", "?dryRun=All")).status === 403;
  await environment.core.waitFor("the other webhook to be asked", isAsked);
  const turnedDown = await evict("pg-2");
  expect([turnedDown.status, turnedDown.text]).toEqual([403, expect.stringContaining("refused by another webhook")]);
  other.opinion = () => true;

  const { status, text } = await remove("pg-3");
  expect([status, text]).toEqual([429, expect.stringContaining("1 of them reserved by disruptions that")]);
  expect((await remove("pg-2")).status).toBe(200);
  await other.unregister(environment.core);
  await other.stop();
  await eventually(environment.core, `${PODS}/pg-2`, (one) => one === undefined);
  await createInstance("pg-2", "replica");
});

test("a promise over all instances lets the operator update them one by one, with a switchover between", async () => {
  for (const name of ["pg-2", "pg-3"]) await update(name);
  await settled();
  await environment.core.admin.call("PATCH", `${PODS}/pg-2`, { metadata: { labels: { [ROLE]: "primary" } } });
  await environment.core.admin.call("PATCH", `${PODS}/pg-1`, { metadata: { labels: { [ROLE]: "replica" } } });
  await update("pg-1");
  await settled();
  const answers = await Promise.all(INSTANCES.map(remove));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 429, 429]);
  const stored = await readObject(environment.core, protectorPath(namespace, PROTECTOR));
  expect(field(stored, "spec", "minAvailable")).toBe(2);
});

test("of a database of one instance no pod is promised, and an Event says so", async () => {
  const cluster = `/apis/postgresql.cnpg.io/v1/namespaces/${namespace}/clusters/pg`;
  await environment.core.admin.call("PATCH", cluster, { spec: { instances: 1 } });
  const isFree = (one: unknown): boolean => field(one, "spec", "minAvailable") === 0;
  await eventually(environment.core, protectorPath(namespace, PROTECTOR), isFree);
  const events = `/api/v1/namespaces/${namespace}/events?fieldSelector=reason%3DNotProtected`;
  await environment.core.waitFor("the Event", async () => {
    const texts = items(await environment.core.admin.get(events)).map((one) => String(field(one, "message")));
    return texts.some((text) => /^none of its pods is promised \(replicas 1 - maxUnavailable 1 /.test(text));
  });
});

test("a budget over pods that have a StatefulSet each spares one of them", async () => {
  const [labels, selector] = [{ cluster: "pgo" }, { matchLabels: { cluster: "pgo" } }];
  const sets = INSTANCES.map((name) => {
    const own = { ...labels, instance: name };
    const template = { metadata: { labels: own }, spec: { containers: [{ name: "db", image: "db:1" }] } };
    const updateStrategy = { type: "OnDelete" };
    const spec = { replicas: 1, serviceName: "pgo", selector: { matchLabels: own }, updateStrategy, template };
    return { apiVersion: "apps/v1", kind: "StatefulSet", metadata: { name, namespace }, spec };
  });
  const metadata = { name: "pgo", namespace, labels: PROTECTED };
  const budget = { apiVersion: "policy/v1", kind: "PodDisruptionBudget", metadata };
  await environment.core.apply([...sets, { ...budget, spec: { maxUnavailable: 1, selector } }]);
  const spares = (one: unknown): boolean => field(one, "spec", "minAvailable") === INSTANCES.length - 1;
  await eventually(environment.core, protectorPath(namespace, "poddisruptionbudget-pgo"), spares);
});

test("a replica of a Ray cluster has several hosts, and the old cluster of a RayService goes when told", async () => {
  const { core } = environment;
  const path = "/apis/ray.io/v1/namespaces/shop/rayclusters/serve-old";
  await serve("ray.io", "RayCluster", "rayclusters");
  // As KubeRay creates it, with the labels of the RayService.
  const labels = { ...PROTECTED, "ray.io/originated-from-cr-name": "serve" };
  const metadata = { name: "serve-old", namespace: "shop", labels };
  const workerGroupSpecs = [{ groupName: "tpu", replicas: 2, minReplicas: 0, numOfHosts: 4 }];
  await core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } },
    { apiVersion: "ray.io/v1", kind: "RayCluster", metadata, spec: { workerGroupSpecs } },
  ]);
  const protector = protectorPath("shop", "raycluster-serve-old-tpu");
  await eventually(core, protector, (one) => field(one, "spec", "minAvailable") === 6);

  const { stdout } = await core.kubectl(["kustomize", join(root, "manifests/overlays/core")]);
  const [policy, ...rest] = loadAll(stdout)
    .filter((one) => field(one, "metadata", "name") === "podseidon-workload-deletions")
    .sort((one) => (field(one, "kind") === "ValidatingAdmissionPolicy" ? -1 : 1));
  const clusters = { apiGroups: ["ray.io"], apiVersions: ["*"], operations: ["DELETE"], resources: ["rayclusters"] };
  const patch = [{ op: "add", path: "/spec/matchConstraints/resourceRules/-", value: clusters }];
  await core.apply([policy, ...rest]);
  const at = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/podseidon-workload-deletions";
  await core.admin.call("PATCH", at, patch, { contentType: "application/json-patch+json" });
  const remove = (query = ""): ReturnType<typeof core.admin.request> =>
    core.admin.request("DELETE", `${path}?propagationPolicy=Background${query}`);
  await core.waitFor("the policy to be enforced", async () => (await remove("&dryRun=All")).status === 403);
  const { status, text } = await remove();
  expect([status, text]).toEqual([403, expect.stringContaining("podseidon.kubewharf.io/protect=false")]);

  await shellCommand(core, PAGE, "an old Ray cluster");
  expect((await remove()).status).toBe(200);
  await eventually(core, path, (one) => one === undefined);
});
