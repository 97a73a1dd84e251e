/**
 * Random PodDisruptionBudgets over real workloads. The generator's minimums equal what the real disruption controller
 * computes (`status.desiredHealthy`), before and after everything is scaled.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { type Group, Groups } from "../../support/generator/budget-groups.ts";
import {
  eventually,
  generatorTransport,
  installCrd,
  installGenerator,
  protectorPath,
  type RunningGenerator,
  readObject,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const BUDGETS = FULL ? 300 : 30;
const SEED = 20_261_121;
const SETTLED_WITHIN_MS = FULL ? 480_000 : 240_000;

let cluster: Cluster;
let transport: Transport;
let running: RunningGenerator;

beforeAll(async () => {
  cluster = await Cluster.start({ nodes: FULL ? 10 : 3 });
  await installGenerator(cluster);
  await installCrd(cluster, "workloads.fleet.example.com");
  // The controller-manager discovers kinds at its start, and then only twice a minute.
  const { "kube-controller-manager": manager } = cluster.processes;
  await manager.kill();
  await manager.start();
  transport = await generatorTransport(cluster);
  running = startGenerator(transport);
});

afterAll(async () => {
  await running?.stop();
  transport?.close();
  await cluster?.stop();
});

interface Pair {
  readonly group: Group;
  readonly budget: unknown;
  readonly protector: unknown;
}

async function pairs(groups: Groups): Promise<Pair[]> {
  const [budgets, protectors] = await Promise.all([
    cluster.admin.get(`/apis/policy/v1/namespaces/${groups.namespace}/poddisruptionbudgets`),
    cluster.admin.get(protectorPath(groups.namespace)),
  ]);
  const named = (list: unknown, name: string): unknown =>
    items(list).find((object) => field(object, "metadata", "name") === name);
  return groups.all.map((group) => ({
    group,
    budget: named(budgets, group.name),
    protector: named(protectors, `poddisruptionbudget-${group.name}`),
  }));
}

/** True when the disruption controller has seen the present state of the group. */
function isCurrent({ group, budget }: Pair): boolean {
  return (
    field(budget, "status", "observedGeneration") === field(budget, "metadata", "generation") &&
    field(budget, "status", "expectedPods") === group.expectedPods()
  );
}

function derived({ protector }: Pair): unknown {
  return field(protector, "spec", "minAvailable");
}

async function compared(groups: Groups): Promise<number> {
  let last: Pair[] = [];
  let differing: Pair[] = [];
  const isSettled = async (): Promise<boolean> => {
    last = await pairs(groups);
    differing = last.filter(
      (pair) => !isCurrent(pair) || derived(pair) !== field(pair.budget, "status", "desiredHealthy"),
    );
    return differing.length === 0;
  };
  await cluster.waitFor("the budgets to be equal", isSettled, SETTLED_WITHIN_MS).catch((cause: unknown) => {
    const texts = differing.slice(0, 5).map((pair) => {
      const { group, budget, protector } = pair;
      const annotations = field(protector, "metadata", "annotations");
      const status = JSON.stringify(field(budget, "status"));
      return `${group.describe()}: ${status}, derived ${derived(pair)} ${JSON.stringify(annotations)}`;
    });
    throw new Error(`${differing.length} of ${last.length} budgets differ: ${texts.join("\n")}`, { cause });
  });
  // Read once more: no budget changes any more.
  const again = await pairs(groups);
  for (const pair of again) expect(derived(pair)).toBe(field(pair.budget, "status", "desiredHealthy"));
  return again.length;
}

test(`${BUDGETS} budgets require what the disruption controller computes, before and after a scaling`, async () => {
  const groups = new Groups("budgets", BUDGETS, SEED);
  await groups.create(cluster);
  const before = await compared(groups);
  await groups.scale(cluster);
  const after = await compared(groups);
  process.stdout.write(
    `budgets: ${before} of ${BUDGETS} equal to desiredHealthy, ${after} of ${BUDGETS} after scaling, ` +
      `over ${groups.workloads} workloads\n`,
  );
  const limits = groups.all.map(({ limit }) => Object.keys(limit)[0] + typeof Object.values(limit)[0]);
  expect(new Set(limits).size).toBe(4);
  const failures = running.events.filter((event) => event.kind === "failed" && event.tag === "rejected");
  expect(failures).toEqual([]);
});

test("a StatefulSet that is deleted without its pods, to be created again, leaves the budget its number", async () => {
  const namespace = "orphans";
  const labels = { app: "db" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "app", image: "app:1" }] } };
  const budget = `/apis/policy/v1/namespaces/${namespace}/poddisruptionbudgets/db`;
  const protector = protectorPath(namespace, "poddisruptionbudget-db");
  const status = async (name: string): Promise<unknown> => field(await readObject(cluster, budget), "status", name);
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } }]);
  const metadata = { name: "db", namespace };
  const set = {
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata,
    spec: { replicas: 3, serviceName: "db", selector: { matchLabels: labels }, template },
  };
  await cluster.apply([
    set,
    {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata: { ...metadata, labels: PROTECTED },
      spec: { maxUnavailable: 1, selector: { matchLabels: labels } },
    },
  ]);
  await cluster.waitFor("the pods", async () => (await status("currentHealthy")) === 3);
  await eventually(cluster, protector, (one) => field(one, "spec", "minAvailable") === 2);
  await cluster.kubectl(["delete", "statefulset", "db", "--namespace", namespace, "--cascade=orphan"]);
  // The disruption controller has seen the pods without a controller, and allows no eviction.
  await cluster.waitFor("the orphans", async () => (await status("expectedPods")) === 0);
  expect(await status("disruptionsAllowed")).toBe(0);
  const derivation = (one: unknown): string =>
    String(field(one, "metadata", "annotations", "podseidon.kubewharf.io/derivation"));
  const kept = await eventually(cluster, protector, (one) => derivation(one).includes("its pods have no controller"));
  expect(field(kept, "spec", "minAvailable")).toBe(2);
  await cluster.apply([set]);
  await cluster.waitFor("their adoption", async () => (await status("expectedPods")) === 3);
  await eventually(cluster, protector, (one) => derivation(one).startsWith("expected 3 (StatefulSet db 3)"));
});
