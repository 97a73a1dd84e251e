import { describe, expect, test } from "vitest";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { plugins } from "./plugins.ts";

const [plugin] = plugins({ protectSelector: "podseidon.kubewharf.io/protect=true", protectNonZero: true });
const [lenient] = plugins({ protectSelector: "", protectNonZero: false });
if (plugin === undefined || lenient === undefined) throw new Error("there is no plugin for Deployments");

function deployment(spec: object = {}, metadata: object = {}): unknown {
  return {
    metadata: {
      name: "web",
      namespace: "shop",
      uid: "u1",
      resourceVersion: "7",
      labels: { "podseidon.kubewharf.io/protect": "true" },
      ...metadata,
    },
    spec: {
      replicas: 10,
      minReadySeconds: 3,
      selector: { matchLabels: { app: "web" } },
      strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: "25%", maxUnavailable: "20%" } },
      ...spec,
    },
  };
}

test("a Deployment requires one protector, with the minimum of its controller", () => {
  expect(plugin.interpret(deployment())).toEqual({
    namespace: "shop",
    name: "web",
    uid: "u1",
    resourceVersion: "7",
    finalizers: [],
    deleting: false,
    decision: "Protected",
    protectors: [
      {
        name: "deployment-web",
        spec: { minAvailable: 8, minReadySeconds: 3, selector: { matchLabels: { app: "web" } } },
        derivation: "replicas 10 - maxUnavailable 2 (20% rounded down) = minAvailable 8",
      },
    ],
    scale: { replicas: 10, selector: { matchLabels: { app: "web" } }, controller: undefined, podLabels: {} },
  });
});

const DELETED = { deletionTimestamp: "2026-01-01T00:00:00Z" };

describe("whether a Deployment is protected", () => {
  test.each([
    ["it is labelled", plugin, deployment(), "Protected"],
    ["it is not labelled", plugin, deployment({}, { labels: {} }), "NotSelected"],
    ["it has no labels at all", plugin, deployment({}, { labels: undefined }), "NotSelected"],
    ["every object is selected", lenient, deployment({}, { labels: {} }), "Protected"],
    ["it is scaled to zero", plugin, deployment({ replicas: 0 }), "Protected"],
    ["it is deleted while it asks for replicas", plugin, deployment({}, DELETED), "DeletingWithReplicas"],
    [
      "it is deleted with the default of one replica",
      plugin,
      deployment({ replicas: undefined }, DELETED),
      "DeletingWithReplicas",
    ],
    ["it is deleted at zero replicas", plugin, deployment({ replicas: 0 }, DELETED), "Deleting"],
    ["it is deleted without --protect-non-zero", lenient, deployment({}, DELETED), "Deleting"],
    ["it is deleted and not labelled", plugin, deployment({}, { ...DELETED, labels: {} }), "NotSelected"],
  ])("%s", (_, with_, object, decision) => {
    const source = with_.interpret(object);
    expect(source.decision).toBe(decision);
    expect(source.protectors).toHaveLength(decision === "Protected" || decision === "DeletingWithReplicas" ? 1 : 0);
  });
});

test("the strategy is read with numbers, and without parameters", () => {
  const minimum = (strategy: unknown): number | undefined =>
    plugin.interpret(deployment({ strategy })).protectors[0]?.spec.minAvailable;
  expect(minimum({ type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 3 } })).toBe(7);
  expect(minimum({ type: "RollingUpdate" })).toBe(8);
  expect(minimum({ type: "RollingUpdate", rollingUpdate: null })).toBe(8);
  expect(minimum({ type: "Recreate" })).toBe(8);
  expect(minimum(undefined)).toBe(8);
  expect(minimum({ type: "RollingUpdate", rollingUpdate: { maxUnavailable: { odd: true } } })).toBe(10);
});

test("under Recreate only evictions are denied, and the user is told, unless an annotation sets the number", () => {
  const strategy = { type: "Recreate" };
  const source = plugin.interpret(deployment({ strategy }));
  expect(source.protectors[0]?.spec).toMatchObject({ minAvailable: 8, protectedOperations: ["EVICT"] });
  expect(source.why).toMatch(/only evictions/);
  const annotations = { "podseidon.kubewharf.io/max-unavailable": "25%" };
  const stated = plugin.interpret(deployment({ strategy }, { annotations }));
  expect(stated.protectors[0]?.spec).toEqual({ minAvailable: 8, minReadySeconds: 3, selector: source.scale?.selector });
  expect(stated.why).toBeUndefined();
});

describe("where none of the pods is promised, the user is told", () => {
  const statefulSets = pluginNamed("statefulset");
  const why = (spec: object, annotations: object = {}, from = statefulSets): string | undefined =>
    from.interpret(deployment({ ...(from === plugin ? {} : { strategy: undefined }), ...spec }, { annotations }))
      .protectors[0]?.none;

  test("of a StatefulSet of one pod, a rollout that takes all pods, and one pod under Recreate", () => {
    expect(why({ replicas: 1 })).toMatch(
      /^none of its pods is promised .*replicas 1 - maxUnavailable 1 = minAvailable 0/,
    );
    expect(why({ replicas: 1, updateStrategy: { type: "OnDelete" } })).toMatch(/^none of its pods is promised/);
    expect(why({ strategy: { rollingUpdate: { maxUnavailable: "100%" } } }, {}, plugin)).toMatch(/^none of its pods/);
    expect(why({ replicas: 1, strategy: { type: "Recreate" } }, {}, plugin)).toMatch(/^none of its pods is promised/);
  });

  test("not where some are, nothing is asked for, or an annotation says so", () => {
    expect(why({ replicas: 2 })).toBeUndefined();
    expect(why({ replicas: 0 })).toBeUndefined();
    expect(why({ replicas: 1 }, {}, plugin)).toBeUndefined();
    expect(why({ replicas: 1 }, { "podseidon.kubewharf.io/max-unavailable": "1" })).toBeUndefined();
    expect(why({ replicas: 1 }, { "podseidon.kubewharf.io/min-running": "1" })).toBeUndefined();
  });
});

test.each<[string, object, object, number]>([
  ["min-available", { "podseidon.kubewharf.io/min-available": "4" }, {}, 4],
  ["min-available, a percentage, rounded up", { "podseidon.kubewharf.io/min-available": "75%" }, {}, 8],
  ["min-available of more than there are", { "podseidon.kubewharf.io/min-available": "20" }, {}, 10],
  ["min-available at zero replicas", { "podseidon.kubewharf.io/min-available": "4" }, { replicas: 0 }, 0],
  ["max-unavailable", { "podseidon.kubewharf.io/max-unavailable": "10%" }, {}, 9],
  ["max-unavailable of 0 %", { "podseidon.kubewharf.io/max-unavailable": "0%" }, {}, 10],
  [
    "both: the stricter",
    { "podseidon.kubewharf.io/min-available": "4", "podseidon.kubewharf.io/max-unavailable": "5" },
    {},
    5,
  ],
  ["an unreadable number: all", { "podseidon.kubewharf.io/min-available": "four" }, {}, 10],
  ["a negative number is unreadable: all", { "podseidon.kubewharf.io/min-available": "-1" }, {}, 10],
  ["a negative percentage is unreadable: all", { "podseidon.kubewharf.io/min-available": "-5%" }, {}, 10],
  ["no more than all", { "podseidon.kubewharf.io/max-unavailable": "-50%" }, {}, 10],
])("an annotation sets the number: %s", (_, annotations, spec, expected) => {
  const [required] = plugin.interpret(deployment(spec, { annotations })).protectors;
  expect(required?.spec.minAvailable).toBe(expected);
});

test("a paused Deployment keeps its minimum", () => {
  expect(plugin.interpret(deployment({ paused: true })).protectors[0]?.spec.minAvailable).toBe(8);
});

test.each([[null], [{}], [{ metadata: {} }], [deployment({ selector: undefined })], [deployment({ replicas: "ten" })]])(
  "an object that is not a Deployment is rejected: %j",
  (raw) => {
    expect(() => plugin.interpret(raw)).toThrow();
  },
);
