import { expect, test } from "vitest";
import type { ProtectionSource, Scale } from "../sources/protection-source.ts";
import { WORKLOAD_KINDS, workloadPlugin } from "../sources/workload-kinds.ts";
import { type FoundWorkload, WorkloadScales } from "./workload-scales.ts";

const labels = { app: "web" };

function workload(kind: string, replicas: number, owner?: string): readonly [string, ProtectionSource] {
  const row = WORKLOAD_KINDS.find((one) => one.kind.kind === kind);
  if (row === undefined) throw new Error(kind);
  const references = [{ apiVersion: "example.com/v1", kind: "Owner", name: "o", uid: owner, controller: true }];
  const metadata = {
    ...{
      name: `${kind}-${replicas}`.toLowerCase(),
      namespace: "shop",
      uid: `${kind}-${replicas}`,
      resourceVersion: "5",
    },
    ...(owner === undefined ? {} : { ownerReferences: references }),
  };
  const spec = { replicas, selector: { matchLabels: labels }, template: { metadata: { labels } } };
  const plugin = workloadPlugin(row, { select: () => "NotSelected", protectNonZero: true });
  return [`${plugin.name}/shop/${metadata.name}`, plugin.interpret({ metadata, spec })];
}

function workloadAdded(kind: string, replicas: number): [string, undefined, ProtectionSource] {
  const [key, source] = workload(kind, replicas);
  return [key, undefined, source];
}

function newScales(unlisted?: string, found?: ProtectionSource): WorkloadScales {
  const kinds = new Map(
    WORKLOAD_KINDS.map(({ kind }) => [
      kind.kind.toLowerCase(),
      { ready: kind.kind !== unlisted, get: () => (kind.kind === "Deployment" ? found : undefined) },
    ]),
  );
  const unused = new Proxy({}, {}) as never;
  return new WorkloadScales({ api: unused, kinds, clock: unused, timeoutMs: 1_000 });
}

test("a workload that an operator's object controls counts where the core has no pods", () => {
  const scales = newScales();
  for (const [key, source] of [
    workload("Deployment", 3),
    workload("Deployment", 7, "uid-of-a-shop"),
    workload("StatefulSet", 2, "uid-of-a-shop"),
    workload("ReplicaSet", 3, "Deployment-3"),
  ])
    scales.changed(key, undefined, source);
  const found = scales.byTemplate("budget", "shop", () => true) as FoundWorkload[];
  expect(found.map(({ replicas }) => replicas).sort()).toEqual([2, 3, 7]);
});

test.each<[string, (source: ProtectionSource) => ProtectionSource | undefined, boolean]>([
  ["nothing that counts", (source) => ({ ...source, resourceVersion: "6" }), false],
  ["its replicas", (source) => withScale(source, { replicas: 4 }), true],
  ["the labels of its pods", (source) => withScale(source, { podLabels: { app: "api" } }), true],
  ["its selector", (source) => withScale(source, { selector: { matchLabels: { app: "api" } } }), true],
  [
    "its controller",
    (source) => withScale(source, { controller: { apiVersion: "apps/v1", kind: "Deployment", name: "d", uid: "d" } }),
    true,
  ],
  ["its UID", (source) => ({ ...source, uid: "another" }), true],
  ["everything: it is gone", () => undefined, true],
])("a budget depends on any workload of its namespace, which changes %s", (_, change, isTold) => {
  const scales = newScales();
  const [key, source] = workload("Deployment", 3);
  scales.changed(key, undefined, source);
  scales.byTemplate("budget", "shop", () => true);
  expect([...scales.changed(key, source, change(source))]).toEqual(isTold ? ["budget"] : []);
  scales.forget("budget");
  expect([...scales.changed(key, undefined, source)]).toEqual([]);
});

test("a budget is told of no workload with other pods, unless that controls one of its own", () => {
  const scales = newScales();
  const [key, other] = workload("Deployment", 3);
  const [ownKey, own] = workload("StatefulSet", 2, "Deployment-3");
  const ofOthers = withScale(other, { podLabels: { app: "api" } });
  scales.changed(...workloadAdded("StatefulSet", 9));
  scales.changed(ownKey, undefined, own);
  for (const budget of ["first", "second"]) scales.byTemplate(budget, "shop", ({ app }) => app === "web");
  scales.byTemplate("third", "shop", ({ app }) => app === "api");
  expect([...scales.changed(key, undefined, ofOthers)]).toEqual(["first", "second", "third"]);
  expect([...scales.changed(key, ofOthers, withScale(ofOthers, { replicas: 4 }))]).toEqual(["third"]);
  expect([...scales.changed(ownKey, own, withScale(own, { replicas: 4 }))]).toEqual(["first", "second"]);
  expect([...scales.changed(key, ofOthers, undefined)]).toEqual(["first", "second", "third"]);
  scales.forget("first");
  expect([...scales.changed(ownKey, own, undefined)]).toEqual(["second"]);
});

test("workloads with other pods don't count, and none do until each kind is listed", () => {
  const [key, source] = workload("Deployment", 3);
  const counted = (scales: WorkloadScales, matches: boolean) => {
    scales.changed(key, undefined, source);
    const found = scales.byTemplate("budget", "shop", () => matches) as FoundWorkload[] | undefined;
    return found?.map(({ what }) => what);
  };
  const listed = newScales();
  expect(counted(listed, true)).toEqual(["Deployment deployment-3"]);
  listed.changed(key, source, undefined);
  expect(listed.byTemplate("budget", "shop", () => true)).toEqual([]);
  expect(counted(newScales(), false)).toEqual([]);
  const waiting = newScales("StatefulSet");
  expect(counted(waiting, true)).toBeUndefined();
  waiting.byTemplate("another", "shop", () => true);
  expect([...waiting.dependentsOfKind("statefulset")]).toEqual(["budget", "another"]);
  waiting.forget("budget");
  for (const plugin of ["deployment", "statefulset"])
    expect([...waiting.dependentsOfKind(plugin)]).toEqual(["another"]);
  expect([...waiting.dependentsOfKind("replicationcontroller")]).toEqual([]);
});

test("a budget depends on the workload that it names, which is none of another group's", async () => {
  const [key, source] = workload("Deployment", 3);
  const scales = newScales(undefined, source);
  const name = source.name;
  const { signal } = new AbortController();
  const found = await scales.find("budget", { apiVersion: "apps/v1", kind: "Deployment", name }, "shop", signal);
  expect(found).toMatchObject({ kind: "found", replicas: 3 });
  const changed = () => [...scales.changed(key, source, withScale(source, { replicas: 4 }))];
  expect(changed()).toEqual(["budget"]);
  scales.forget("budget");
  expect(changed()).toEqual([]);
  // It is asked for by discovery, which this test does not have.
  const other = { apiVersion: "example.com/v1", kind: "Deployment", name };
  await expect(scales.find("budget", other, "shop", signal)).rejects.toThrow();
});

function withScale(source: ProtectionSource, change: Partial<Scale>): ProtectionSource {
  if (source.scale === undefined) throw new Error("the workload has no scale");
  return { ...source, scale: { ...source.scale, ...change } };
}
