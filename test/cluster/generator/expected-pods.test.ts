/**
 * Budgets over the workloads of three clusters, each independent of the others, with a core cluster of its own that has
 * none of them (docs/design.md#expected-pods).
 */

import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { ask, messageOf } from "../../support/cluster/ask.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import {
  generatorTransport,
  installCrd,
  installGenerator,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

const labels = { app: "db" };
const REPLICAS = 3;
const ONE_LESS = "poddisruptionbudget-one-less";
const HALF = "poddisruptionbudget-half";
const STATEFUL_SET = "/apis/apps/v1/namespaces/default/statefulsets";
/** In cell c. */
const CLONE_SET = "/apis/apps.kruise.io/v1alpha1/namespaces/default/clonesets";

let environment: TestEnvironment;
let transport: Transport;
let running: RunningGenerator;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["a", "b", "c"],
    aggregators: false,
    replicas: 1,
    settle: "40s",
    cell: BARE,
    aggregatorArgs: ["--scalable=apps.kruise.io/v1alpha1/clonesets"],
    // One of them has no more permissions than the manifests give it.
    kubeconfig: async (component, cluster) =>
      component === "aggregator-a" && cluster.name === "a"
        ? await cluster.kubeconfigFor({
            serviceAccount: { namespace: "podseidon-system", name: "podseidon-aggregator" },
          })
        : cluster.kubeconfig,
  });
  for (const base of ["accounts", "aggregator-cell-access"]) {
    const applied = await environment.cell("a").kubectl(["apply", "-k", join(root, "manifests/base", base)]);
    expect(applied).toMatchObject({ code: 0 });
  }
  await grantWorkloads(environment.cell("a"));
  await installGenerator(environment.core);
  transport = await generatorTransport(environment.core);
  running = startGenerator(transport);
  for (const cell of environment.cells.values()) await installCrd(cell, "clonesets.apps.kruise.io");
  for (const cell of environment.cells.values()) await runDatabase(cell);
  await environment.core.apply([budget("one-less", { maxUnavailable: 1 }), budget("half", { minAvailable: "50%" })]);
});

/** What an administrator grants for a kind of `--scalable`. */
async function grantWorkloads(cell: Cluster): Promise<void> {
  const name = "podseidon-aggregator-clonesets";
  const apiVersion = "rbac.authorization.k8s.io/v1";
  const rules = [{ apiGroups: ["apps.kruise.io"], resources: ["clonesets"], verbs: ["list", "watch"] }];
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name };
  const subjects = [{ kind: "ServiceAccount", name: "podseidon-aggregator", namespace: "podseidon-system" }];
  await cell.apply([
    { apiVersion, kind: "ClusterRole", metadata: { name }, rules },
    { apiVersion, kind: "ClusterRoleBinding", metadata: { name }, roleRef, subjects },
  ]);
}

afterAll(async () => {
  await running?.stop();
  transport?.close();
  await environment?.stop();
});

function budget(name: string, limits: object): object {
  const metadata = { name, namespace: "default", labels: PROTECTED };
  return { apiVersion: "policy/v1", kind: "PodDisruptionBudget", metadata, spec: { selector, ...limits } };
}

const selector = { matchLabels: labels };

async function runDatabase(cell: Cluster): Promise<void> {
  const spec = {
    ...{ replicas: REPLICAS, selector, serviceName: "db" },
    template: { metadata: { labels }, spec: { containers: [{ name: "db", image: "db:1" }] } },
  };
  const kind = cell.name === "c" ? { apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet" } : {};
  await cell.admin.call("POST", workloadsOf(cell.name), { ...kind, metadata: { name: "db" }, spec });
  await createReadyPods(cell, { namespace: "default", prefix: "db", count: REPLICAS, labels });
}

function workloadsOf(cell: string): string {
  return cell === "c" ? CLONE_SET : STATEFUL_SET;
}

async function scale(cell: string, replicas: number): Promise<void> {
  await environment.cell(cell).admin.call("PATCH", `${workloadsOf(cell)}/db`, { spec: { replicas } });
}

async function promised(): Promise<readonly number[]> {
  const protectors = await Promise.all(
    [ONE_LESS, HALF].map((name) => readProtector(environment.core, "default", name)),
  );
  return protectors.map(({ spec }) => spec.minAvailable);
}

async function untilPromised(...wanted: readonly number[]): Promise<void> {
  await expect.poll(() => promised().catch(String)).toEqual(wanted);
}

/** Deletes the protector, which the generator creates again, and waits until these cells have counted the new one. */
async function loseProtector(name: string, cells: readonly string[]): Promise<void> {
  const { metadata } = await readProtector(environment.core, "default", name);
  expect(await environment.core.kubectl(["delete", "ppr", name, "--wait=false"])).toMatchObject({ code: 0 });
  const counted = async (): Promise<readonly string[]> => {
    const now = await readProtector(environment.core, "default", name);
    if (now.metadata.uid === metadata.uid) return [];
    return (now.status?.cells ?? []).flatMap(({ cellID, aggregation }) => (aggregation?.resourceVersion ? cellID : []));
  };
  await expect.poll(async () => [...(await counted().catch(() => []))].sort()).toEqual(cells);
}

/** @returns the status, and what a denied caller is told */
async function evict(cell: string, name: string): Promise<{ status: number; message: string }> {
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name } };
  const path = `/api/v1/namespaces/default/pods/${name}/eviction`;
  const answer = await ask(environment.cell(cell), "POST", path, body);
  return { status: answer.status, message: messageOf(answer) };
}

describe("a budget over three clusters", () => {
  it("counts what the workloads of the cells ask for, not those of the core, which has none", async () => {
    await Promise.all(["a", "b"].map((cell) => environment.startAggregator(cell)));
    await untilPromised(2 * REPLICAS - 1, REPLICAS);
    const { spec, status } = await readProtector(environment.core, "default", ONE_LESS);
    expect(spec.countExpectedPods).toBe(true);
    const expected = status?.cells.map(({ cellID, aggregation }) => [cellID, aggregation?.expectedReplicas]);
    expect(new Map(Object.entries(Object.fromEntries(expected ?? [])))).toEqual(
      new Map([
        ["a", 3],
        ["b", 3],
      ]),
    );
  });

  it("grows with a cluster that joins, whose workload is of another kind", async () => {
    await environment.startAggregator("c");
    await untilPromised(8, 5);
    await waitUntilSettled(environment.core, "default", ONE_LESS, 3 * REPLICAS);
  });

  it("lets one pod go in all three of them", async () => {
    const answers = await Promise.all(["a", "b", "c"].map((cell) => evict(cell, "db-0")));
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses, answers.map(({ message }) => message).join("\n")).toEqual([201, 429, 429]);
    await waitUntilSettled(environment.core, "default", ONE_LESS, 3 * REPLICAS - 1);
    // The pod is gone, and its StatefulSet still asks for it.
    expect(await promised()).toEqual([8, 5]);
  });

  it("follows a workload that is scaled", async () => {
    await scale("a", 6);
    await untilPromised(11, 6);
    await scale("a", REPLICAS);
    await untilPromised(8, 5);
  });

  it("follows what it selects now, and not what its cells have said of other pods", async () => {
    const moved = { app: "moved" };
    const minimum = async () =>
      (await readProtector(environment.core, "default", "poddisruptionbudget-moved")).spec.minAvailable;
    await environment.core.apply([budget("moved", { maxUnavailable: 1 })]);
    await expect.poll(() => minimum().catch(String)).toBe(8);
    const spec = {
      ...{ replicas: REPLICAS, selector: { matchLabels: moved }, serviceName: "moved" },
      template: { metadata: { labels: moved }, spec: { containers: [{ name: "moved", image: "moved:1" }] } },
    };
    await environment.cell("a").admin.call("POST", STATEFUL_SET, { metadata: { name: "moved" }, spec });
    await environment.core.apply([budget("moved", { maxUnavailable: 1, selector: { matchLabels: moved } })]);
    await expect.poll(minimum).toBe(REPLICAS - 1);
  });

  it("keeps the share of a cluster that goes away, also in a new protector, until the cell is removed", async () => {
    await environment.aggregators.get("c")?.stop();
    await scale("c", 0);
    await scale("a", 4);
    await untilPromised(9, 5);
    await loseProtector(ONE_LESS, ["a", "b"]);
    await scale("a", 5);
    await untilPromised(10, 6);
    await scale("a", 4);
    await untilPromised(9, 5);
    const annotations = { "podseidon.kubewharf.io/remove-cell-once": "c" };
    for (const name of [ONE_LESS, HALF])
      await environment.core.kubectl([
        "annotate",
        "ppr",
        name,
        ...Object.entries(annotations).map((one) => one.join("=")),
      ]);
    await untilPromised(6, 4);
  });

  it("keeps the share of a workload that was erased, with its pods or without", async () => {
    const orphaned = { propagationPolicy: "Orphan" };
    const erased = await environment.cell("b").admin.request("DELETE", `${STATEFUL_SET}/db`, orphaned);
    expect(erased.status).toBe(200);
    await environment.cell("b").admin.call("PATCH", `${STATEFUL_SET}/db`, { metadata: { finalizers: null } });
    await scale("a", 5);
    await untilPromised(7, 4);
  });

  it("rests on the number that its owner states", async () => {
    const stated = ["annotate", "poddisruptionbudget", "one-less", "podseidon.kubewharf.io/expected-pods=20"];
    expect(await environment.core.kubectl(stated)).toMatchObject({ code: 0 });
    await untilPromised(19, 4);
  });

  it("requires all pods whose controller nobody knows, although they came after it", async () => {
    const cache = { app: "cache" };
    await environment.core.apply([budget("cache", { maxUnavailable: 1, selector: { matchLabels: cache } })]);
    const found = () => readProtector(environment.core, "default", "poddisruptionbudget-cache");
    const said = async () => (await found().catch(() => undefined))?.status?.cells[0]?.aggregation?.expectedReplicas;
    await expect.poll(said).toBe(0);
    for (const prefix of ["cache-a", "cache-b"])
      await createReadyPods(environment.cell("a"), { namespace: "default", prefix, count: REPLICAS, labels: cache });
    await expect.poll(async () => (await found()).spec.minAvailable).toBe(2 * REPLICAS);
    expect((await evict("a", "cache-b-0")).status).toBe(429);
  });
});
