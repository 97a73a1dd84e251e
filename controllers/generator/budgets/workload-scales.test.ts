import { expect, test } from "vitest";
import type { ProtectionSource } from "../sources/protection-source.ts";
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

test("a workload that an operator's object controls counts where the core has no pods", () => {
  const kinds = new Map(
    WORKLOAD_KINDS.map(({ kind }) => [kind.kind.toLowerCase(), { ready: true, get: () => undefined }]),
  );
  const unused = new Proxy({}, {}) as never;
  const scales = new WorkloadScales({ api: unused, discovery: unused, kinds, clock: unused, timeoutMs: 1_000 });
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
