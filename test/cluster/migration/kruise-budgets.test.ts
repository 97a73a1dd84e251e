/**
 * PodUnavailableBudgets over real workloads: the generator's minimums equal what OpenKruise's own controller computes
 * (`status.desiredAvailable`), before and after a scaling, and differ where the page of the migration says so. With
 * PODSEIDON_TEST_SIZE=full only, because OpenKruise is built for it.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { ensureKruise, kruiseVersion } from "../../support/cluster/test-tools.ts";
import {
  generatorTransport,
  installGenerator,
  protectorPath,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";
import { startKruiseManager } from "../../support/neighbours/kruise-manager.ts";

const WAIT_MS = 4 * 60_000;
const NODES = 2;
const BUDGETS = "/apis/policy.kruise.io/v1alpha1/namespaces/default/podunavailablebudgets";
const TOTAL = "pub.kruise.io/protect-total-replicas";
const API_VERSIONS = {
  Deployment: "apps/v1",
  StatefulSet: "apps/v1",
  ReplicaSet: "apps/v1",
  DaemonSet: "apps/v1",
  ReplicationController: "v1",
  CloneSet: "apps.kruise.io/v1alpha1",
  AdvancedStatefulSet: "apps.kruise.io/v1beta1",
  Pod: "v1",
} as const;
type Kind = keyof typeof API_VERSIONS;

interface Case {
  readonly pods: readonly (readonly [Kind, number])[];
  readonly limit: Readonly<Record<string, number | string>>;
  /** The budget names the workload. */
  readonly target?: Kind;
  readonly annotations?: Readonly<Record<string, string>>;
  /** What the page says is different: OpenKruise's number, and the one here. */
  readonly differs?: readonly [number, number];
}

const CASES: Readonly<Record<string, Case>> = {
  number: { pods: [["Deployment", 5]], limit: { maxUnavailable: 1 } },
  percentage: { pods: [["Deployment", 5]], limit: { maxUnavailable: "30%" } },
  minimum: { pods: [["Deployment", 5]], limit: { minAvailable: 4 } },
  "minimum-percentage": { pods: [["Deployment", 5]], limit: { minAvailable: "30%" } },
  all: { pods: [["Deployment", 5]], limit: { maxUnavailable: "100%" } },
  more: { pods: [["Deployment", 5]], limit: { maxUnavailable: 9 } },
  "target-deployment": { pods: [["Deployment", 5]], target: "Deployment", limit: { maxUnavailable: "30%" } },
  "target-stateful": { pods: [["StatefulSet", 3]], target: "StatefulSet", limit: { maxUnavailable: "40%" } },
  "target-replica": { pods: [["ReplicaSet", 2]], target: "ReplicaSet", limit: { maxUnavailable: 1 } },
  "target-controller": {
    ...{ pods: [["ReplicationController", 2]], target: "ReplicationController", limit: { maxUnavailable: 1 } },
  },
  "target-clone": { pods: [["CloneSet", 4]], target: "CloneSet", limit: { minAvailable: "60%" } },
  "target-advanced": {
    pods: [["AdvancedStatefulSet", 4]],
    target: "AdvancedStatefulSet",
    limit: { maxUnavailable: 1 },
  },
  "target-zero": { pods: [["Deployment", 0]], target: "Deployment", limit: { maxUnavailable: 1 } },
  "target-daemon": { pods: [["DaemonSet", NODES]], target: "DaemonSet", limit: { minAvailable: 1 } },
  clone: { pods: [["CloneSet", 4]], limit: { minAvailable: "60%" } },
  advanced: { pods: [["AdvancedStatefulSet", 4]], limit: { maxUnavailable: "30%" } },
  two: {
    pods: [
      ["Deployment", 3],
      ["StatefulSet", 4],
    ],
    limit: { maxUnavailable: "50%" },
  },
  mixed: {
    pods: [
      ["Deployment", 3],
      ["Pod", 2],
    ],
    limit: { maxUnavailable: 1 },
  },
  bare: { pods: [["Pod", 2]], limit: { maxUnavailable: 1 }, differs: [0, 2] },
  "bare-minimum": { pods: [["Pod", 2]], limit: { minAvailable: "50%" }, differs: [0, 2] },
  total: { pods: [["Deployment", 5]], limit: { maxUnavailable: "20%" }, annotations: { [TOTAL]: "10" } },
  "total-none": { pods: [["Deployment", 5]], limit: { maxUnavailable: 1 }, annotations: { [TOTAL]: "0" } },
  "total-target": {
    ...{ pods: [["Deployment", 5]], target: "Deployment", limit: { maxUnavailable: "20%" } },
    annotations: { [TOTAL]: "10" },
  },
  "total-bare": { pods: [["Pod", 2]], limit: { maxUnavailable: 1 }, annotations: { [TOTAL]: "2" } },
  daemon: { pods: [["DaemonSet", NODES]], limit: { maxUnavailable: 1 }, differs: [0, NODES] },
  "daemon-mixed": {
    pods: [
      ["DaemonSet", NODES],
      ["StatefulSet", 3],
    ],
    limit: { maxUnavailable: 1 },
    differs: [1, NODES + 2],
  },
};

function objectsOf(name: string, kind: Kind, pods: number): readonly object[] {
  const labels = { case: name };
  const metadata = { name, namespace: "default" };
  const podSpec = { terminationGracePeriodSeconds: 1, containers: [{ name: "app", image: "app:1" }] };
  const apiVersion = API_VERSIONS[kind];
  if (kind === "Pod") {
    return Array.from({ length: pods }, (_, index) => ({
      ...{ apiVersion, kind, metadata: { ...metadata, name: `${name}-bare-${index}`, labels }, spec: podSpec },
    }));
  }
  // Pods of one case belong to one budget, and to one workload of each kind.
  const own = { ...labels, kind };
  const selector = kind === "ReplicationController" ? own : { matchLabels: own };
  const template = { metadata: { labels: own }, spec: podSpec };
  const serviceName = kind.endsWith("StatefulSet") ? { serviceName: name } : {};
  const replicas = kind === "DaemonSet" ? {} : { replicas: pods };
  const shownKind = kind === "AdvancedStatefulSet" ? "StatefulSet" : kind;
  return [{ apiVersion, kind: shownKind, metadata, spec: { ...replicas, ...serviceName, selector, template } }];
}

function budgetOf(name: string, { limit, target, annotations }: Case): object {
  const kind = target === "AdvancedStatefulSet" ? "StatefulSet" : target;
  const of =
    target === undefined
      ? { selector: { matchLabels: { case: name } } }
      : { targetRef: { apiVersion: API_VERSIONS[target], kind, name } };
  const metadata = { name, namespace: "default", labels: PROTECTED, annotations };
  return { apiVersion: "policy.kruise.io/v1alpha1", kind: "PodUnavailableBudget", metadata, spec: { ...of, ...limit } };
}

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")(`beside OpenKruise ${kruiseVersion()}`, () => {
  let cluster: Cluster;
  let manager: ManagedProcess;
  let transport: Transport;
  let running: RunningGenerator;

  beforeAll(async () => {
    const kruise = await ensureKruise();
    cluster = await Cluster.start({ nodes: NODES });
    await installGenerator(cluster);
    manager = await startKruiseManager(cluster, kruise, []);
    transport = await generatorTransport(cluster);
    running = startGenerator(transport);
    for (const [name, one] of Object.entries(CASES)) {
      const workloads = one.pods.flatMap(([kind, pods]) => objectsOf(name, kind, pods));
      await cluster.apply([...workloads, budgetOf(name, one)]);
    }
  }, 60 * 60_000);

  afterAll(async () => {
    await running?.stop();
    transport?.close();
    await manager?.kill("SIGKILL");
    await cluster?.stop();
  });

  /** Both numbers of each case, theirs first. */
  async function numbers(): Promise<Readonly<Record<string, readonly unknown[]>>> {
    const [budgets, protectors] = [await cluster.admin.get(BUDGETS), await cluster.admin.get(protectorPath("default"))];
    const named = (list: unknown, name: string): unknown =>
      items(list).find((object) => field(object, "metadata", "name") === name);
    const of = (name: string): readonly unknown[] => [
      field(named(budgets, name), "status", "desiredAvailable"),
      field(named(protectors, `podunavailablebudget-${name}`), "spec", "minAvailable"),
    ];
    return Object.fromEntries(Object.keys(CASES).map((name) => [name, of(name)]));
  }

  const isExpected = ([name, [theirs, ours]]: readonly [string, readonly unknown[]]): boolean => {
    const { differs } = CASES[name] ?? {};
    if (differs === undefined) return theirs !== undefined && theirs === ours;
    return theirs === differs[0] && ours === differs[1];
  };

  async function compared(): Promise<void> {
    const differing = async () => Object.entries(await numbers()).filter((one) => !isExpected(one));
    await cluster.waitFor("the numbers", async () => (await differing()).length === 0, WAIT_MS).catch(() => undefined);
    // Read once more: none changes any more.
    expect(Object.fromEntries(await differing())).toEqual({});
  }

  test(`${Object.keys(CASES).length} budgets, before and after a scaling`, async () => {
    await compared();
    const before = await numbers();
    for (const name of ["percentage", "minimum-percentage", "target-deployment", "total", "total-none"])
      await cluster.kubectl(["scale", "deployment", name, "--replicas=9"]);
    const total = async () => field(await cluster.admin.get(`${BUDGETS}/percentage`), "status", "totalReplicas");
    await cluster.waitFor("OpenKruise to see it", async () => (await total()) === 9, WAIT_MS);
    await compared();
    const after = await numbers();
    expect([before.percentage, after.percentage]).toEqual([
      [3, 3],
      [6, 6],
    ]);
    expect(after.total).toEqual(before.total);
  });
});
