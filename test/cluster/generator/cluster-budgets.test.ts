/**
 * XPodDisruptionBudgets of one name in two worker clusters, read by the generator of the core
 * (docs/design.md#budgets-of-worker-clusters), with the permissions of the manifests.
 */

import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ApiAnswer, field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../../scripts/demo/install.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { ask, messageOf } from "../../support/cluster/ask.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { installCrd, protectorPath, readObject } from "../../support/generator/generator-harness.ts";

const labels = { app: "db" };
const selector = { matchLabels: labels };
const REPLICAS = 4;
const PROTECTOR = "xpoddisruptionbudget-db";
const CRD = "xpoddisruptionbudgets.x-pdb.form3.tech";
const BUDGETS = "/apis/x-pdb.form3.tech/v1alpha1/namespaces/default/xpoddisruptionbudgets";

let environment: TestEnvironment;
let generator: Component | undefined;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["a", "b"], replicas: 1, settle: "40s", cell: BARE });
  const { core } = environment;
  await applyOverlay(core, "core", { components: ["cluster-budgets"] });
  await installCrd(core, CRD);
  for (const cell of environment.cells.values()) {
    await installCrd(cell, CRD);
    for (const base of ["namespace", "budget-access"])
      expect(await cell.kubectl(["apply", "-k", join(root, "manifests/base", base)])).toMatchObject({ code: 0 });
    const pods = { metadata: { labels }, spec: { containers: [{ name: "db", image: "db:1" }] } };
    const spec = { replicas: REPLICAS, selector, serviceName: "db", template: pods };
    await cell.apply([
      { apiVersion: "apps/v1", kind: "StatefulSet", metadata: { name: "db", namespace: "default" }, spec },
    ]);
    await createReadyPods(cell, { namespace: "default", prefix: "db", count: REPLICAS, labels });
  }
  await startGenerator();
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

/** `unreachable`: a cluster whose kubeconfig names a port at which nobody listens. */
async function startGenerator(unreachable?: string): Promise<void> {
  await generator?.stop();
  const { core } = environment;
  const account = (name: string) => ({ serviceAccount: { namespace: "podseidon-system", name } });
  const budgets = await Promise.all(
    ["a", "b"].map(async (cell) => {
      const server = cell === unreachable ? { server: "https://127.0.0.1:1" } : {};
      const reader = await environment.cell(cell).kubeconfigFor(account("podseidon-budgets"), server);
      return `--budget-cluster=${cell}=${reader}`;
    }),
  );
  const kubeconfig = await core.kubeconfigFor(account("podseidon-generator"));
  generator = await Component.start({
    kind: "generator",
    name: `generator-without-${unreachable ?? "none"}`,
    directory: join(core.directory, "product"),
    args: ["--kubeconfig", kubeconfig, "--leader-elect=false", "--budget-removal-delay=1s", ...budgets],
  });
}

async function applyBudget(cell: string, spec: object, name = "db"): Promise<void> {
  const kind = { apiVersion: "x-pdb.form3.tech/v1alpha1", kind: "XPodDisruptionBudget" };
  const path = `${BUDGETS}/${name}`;
  const isThere = (await readObject(environment.cell(cell), path)) !== undefined;
  const metadata = { name, namespace: "default" };
  if (isThere) await environment.cell(cell).admin.call("PATCH", path, { spec: { ...NOTHING, ...spec, selector } });
  else await environment.cell(cell).admin.call("POST", BUDGETS, { ...kind, metadata, spec: { selector, ...spec } });
}

const NOTHING = { minAvailable: null, maxUnavailable: null, suspend: null, probe: null };

async function untilPromised(minAvailable: number): Promise<void> {
  const promised = () => readProtector(environment.core, "default", PROTECTOR).then(({ spec }) => spec.minAvailable);
  await expect.poll(() => promised().catch(String)).toBe(minAvailable);
}

async function evict(cell: Cluster, name: string): Promise<ApiAnswer> {
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name } };
  return await ask(cell, "POST", `/api/v1/namespaces/default/pods/${name}/eviction`, body);
}

test("the strictest of two budgets counts, over the pods of both clusters, and denies in both", async () => {
  await applyBudget("a", { minAvailable: "50%" });
  await untilPromised(4);
  await applyBudget("b", { maxUnavailable: 1 });
  await untilPromised(7);
  const { metadata, spec } = await readProtector(environment.core, "default", PROTECTOR);
  expect(metadata.annotations?.["podseidon.kubewharf.io/derivation"]).toContain("as cluster b asks");
  expect(spec).toMatchObject({ selector, countExpectedPods: true });
  await waitUntilSettled(environment.core, "default", PROTECTOR, 2 * REPLICAS);
  const answers = await Promise.all([...environment.cells.values()].map((cell) => evict(cell, "db-0")));
  expect(answers.map(({ status }) => status).sort(), answers.map(messageOf).join("; ")).toEqual([201, 429]);
});

test("a cluster that asks for less, suspends, or names other pods takes nothing from another's budget", async () => {
  await applyBudget("b", { minAvailable: 0, suspend: true });
  await untilPromised(4);
  const path = `${BUDGETS}/db`;
  await expect
    .poll(async () => (await readProtector(environment.core, "default", PROTECTOR)).spec.suspend)
    .toMatchObject({ enabled: true, cells: ["b"] });
  const other = { matchLabels: { app: "cache" } };
  await environment.cell("b").admin.call("PATCH", path, { spec: { ...NOTHING, minAvailable: 0, selector: other } });
  await expect
    .poll(async () => (await readProtector(environment.core, "default", PROTECTOR)).spec.suspend)
    .toBeUndefined();
  const { spec } = await readProtector(environment.core, "default", PROTECTOR);
  expect(spec).toMatchObject({ minAvailable: 4, selector });
});

test("what a cluster asked for stays while it does not answer, over a restart", async () => {
  await applyBudget("b", { maxUnavailable: 1 });
  await untilPromised(7);
  await startGenerator("b");
  await applyBudget("a", { minAvailable: 1 });
  const stated = async () => {
    const merged = await readObject(environment.core, `${BUDGETS}/db`);
    return JSON.parse(String(field(merged, "metadata", "annotations", "podseidon.kubewharf.io/cluster-budgets")));
  };
  await expect.poll(stated).toMatchObject({ clusters: { a: { minAvailable: 1 }, b: { maxUnavailable: 1 } } });
  await untilPromised(7);
});

test("one cluster deletes its budget, and that of the other stays; with the last the protection ends", async () => {
  await startGenerator();
  await environment.cell("b").admin.call("DELETE", `${BUDGETS}/db`);
  await untilPromised(1);
  await environment.cell("a").admin.call("DELETE", `${BUDGETS}/db`);
  await expect.poll(() => readObject(environment.core, `${BUDGETS}/db`)).toBeUndefined();
  const gone = () =>
    readProtector(environment.core, "default", PROTECTOR).then(
      () => "there",
      () => "gone",
    );
  await expect.poll(gone).toBe("gone");
});

test("what somebody deletes in the core is there under another name while their finalizer keeps it", async () => {
  const { core } = environment;
  await applyBudget("a", { minAvailable: 1 }, "kept");
  await expect.poll(() => readObject(core, `${BUDGETS}/kept`)).toBeDefined();
  const finalizers = (all: readonly string[]) =>
    core.admin.call("PATCH", `${BUDGETS}/kept`, { metadata: { finalizers: all } });
  await finalizers(["example.com/mine"]);
  await core.admin.call("DELETE", `${BUDGETS}/kept`);
  const others = async (): Promise<unknown[]> =>
    items(await core.admin.get(protectorPath("default")))
      .filter((one) => String(field(one, "metadata", "name")).startsWith("xpoddisruptionbudget-kept-"))
      .map((one) => field(one, "spec", "minAvailable"));
  await expect.poll(others).toEqual([1]);
  expect(field(await readObject(core, `${BUDGETS}/kept`), "metadata", "deletionTimestamp")).toBeDefined();
  await finalizers([]);
});
