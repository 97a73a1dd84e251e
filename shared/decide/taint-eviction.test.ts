import { expect, test } from "vitest";
import { parsePlacedPods, parseTaintedNode } from "../schema/taints.ts";
import { evictedAfterMs } from "./taint-eviction.ts";

const KEY = "node.kubernetes.io/unreachable";
const node = (...taints: unknown[]) =>
  parseTaintedNode({ metadata: { name: "node-1", uid: "n", resourceVersion: "1" }, spec: { taints } }).taints;
const DOWN = node({ key: KEY, effect: "NoExecute" });

function pod(tolerations: unknown, change: Record<string, unknown> = {}, status: Record<string, unknown> = {}) {
  const conditions = [{ type: "Ready", status: "True" }, { type: "DisruptionTarget" }];
  const metadata = { namespace: "shop", name: "web-0", uid: "u", ...change };
  const raw = { metadata, spec: { nodeName: "node-1", tolerations }, status: { conditions, ...status } };
  const [parsed] = parsePlacedPods({ items: [raw] });
  if (parsed === undefined) throw new Error("no pod");
  return parsed;
}

type TolerationCase = [string, unknown, ReturnType<typeof node>, number | undefined];

test.each<TolerationCase>([
  ["no toleration", undefined, DOWN, 0],
  ["no taint", undefined, [], undefined],
  ["only taints of other effects", null, node({ key: KEY, effect: "NoSchedule" }), undefined],
  ["for ever, by key", [{ key: KEY, operator: "Exists" }], DOWN, undefined],
  ["for ever, by anything", [{ operator: "Exists" }], DOWN, undefined],
  ["for ever, by effect", [{ operator: "Exists", effect: "NoExecute" }], DOWN, undefined],
  ["another effect", [{ operator: "Exists", effect: "NoSchedule" }], DOWN, 0],
  ["another key", [{ key: "gpu", operator: "Exists" }], DOWN, 0],
  ["another value", [{ key: KEY, value: "x" }], DOWN, 0],
  ["another value, as Equal", [{ key: KEY, operator: "Equal", value: "x" }], DOWN, 0],
  ["the same value", [{ key: "a", value: "x" }], node({ key: "a", value: "x", effect: "NoExecute" }), undefined],
  ["an operator of a later version", [{ key: KEY, operator: "Gt", value: "3" }], DOWN, undefined],
  ["for a time", [{ key: KEY, operator: "Exists", tolerationSeconds: 300 }], DOWN, 300_000],
  ["for less than no time", [{ key: KEY, operator: "Exists", tolerationSeconds: -1 }], DOWN, 0],
  [
    "the first toleration that fits, as Kubernetes reads them",
    [
      { operator: "Exists", tolerationSeconds: 9 },
      { key: KEY, operator: "Exists" },
    ],
    DOWN,
    9000,
  ],
  ...[
    ["a", KEY],
    [KEY, "a"],
  ].map(
    (keys): TolerationCase => [
      "the least of several taints",
      [
        { key: "a", operator: "Exists", tolerationSeconds: 9 },
        { key: KEY, operator: "Exists", tolerationSeconds: 5 },
      ],
      node(...keys.map((key) => ({ key, effect: "NoExecute" }))),
      5000,
    ],
  ),
])("tolerations: %s", (_, tolerations, taints, expected) => {
  expect(evictedAfterMs(pod(tolerations), taints)).toBe(expected);
});

test.each<[string, Record<string, unknown>, Record<string, unknown>]>([
  ["terminates already", { deletionTimestamp: "2026-01-01T00:00:00Z" }, {}],
  ["has ended", {}, { phase: "Failed" }],
  ["is static", { annotations: { "kubernetes.io/config.mirror": "x" } }, {}],
  ["nobody has tried to take away", {}, { conditions: [{ type: "Ready", status: "True" }] }],
])("a pod that %s stays", (_, metadata, status) => {
  expect(evictedAfterMs(pod([], metadata, status), DOWN)).toBeUndefined();
});
