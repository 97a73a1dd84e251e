import { expect, test } from "vitest";
import type { ProtectionSource, Scale } from "../sources/protection-source.ts";
import { WORKLOAD_KINDS, workloadPlugin } from "../sources/workload-kinds.ts";
import { WorkloadScales } from "./workload-scales.ts";

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

function newScales(): WorkloadScales {
  const kinds = new Map(
    WORKLOAD_KINDS.map(({ kind }) => [kind.kind.toLowerCase(), { ready: true, get: () => undefined }]),
  );
  const unused = new Proxy({}, {}) as never;
  return new WorkloadScales({ api: unused, discovery: unused, kinds, clock: unused, timeoutMs: 1_000 });
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
  const found = scales.byTemplate("budget", "shop", () => true);
  expect(found?.map(({ replicas }) => replicas).sort()).toEqual([2, 3, 7]);
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

function withScale(source: ProtectionSource, change: Partial<Scale>): ProtectionSource {
  if (source.scale === undefined) throw new Error("the workload has no scale");
  return { ...source, scale: { ...source.scale, ...change } };
}
