import { describe, expect, test } from "vitest";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import {
  type ClusterBudget,
  clusterBudgetOf,
  type MergedBudget,
  mergedBudgetOf,
  unreadableBudget,
} from "./cluster-budget.ts";
import type { ClusterPart } from "./cluster-parts.ts";
import { type MergeInput, planMerge, type WantedBudget } from "./merge.ts";

const SELECTOR = { matchLabels: { app: "db" } };
const OTHER = { matchLabels: { app: "cache" } };
const KEEP_MS = 600_000;

function budget(part: ClusterPart, selector: LabelSelector = SELECTOR): ClusterBudget {
  return { namespace: "ns", name: "db", uid: "uid", resourceVersion: "1", selector, part };
}

type Cluster = MergeInput["clusters"][number];

function listed(name: string, found?: ClusterBudget): Cluster {
  return { name, isListed: true, budget: found };
}

function silent(name: string): Cluster {
  return { name, isListed: false, budget: undefined };
}

function planned(clusters: readonly Cluster[], stored: readonly MergedBudget[] = [], goneMs = 0) {
  const input = { namespace: "ns", name: "db", clusters, stored, goneForMs: () => goneMs, keepMs: KEEP_MS };
  return planMerge(input);
}

/** What the plan creates or updates, as the core would store it. */
function stored({ labels, annotations, spec }: WantedBudget, name = "db"): MergedBudget {
  const kept = (record: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(Object.entries(record).filter(([, value]) => value !== null));
  const metadata = { namespace: "ns", name, uid: name, resourceVersion: "1", labels, annotations: kept(annotations) };
  return mergedBudgetOf({ metadata, spec: kept(spec) });
}

function storedFor(...clusters: readonly Cluster[]): MergedBudget[] {
  return planned(clusters).creates.map(({ names, wanted }, index) => stored(wanted, names[index]));
}

function show({ creates, updates, deletes, againMs }: ReturnType<typeof planMerge>): string[] {
  const clusters = (wanted: WantedBudget): string =>
    `${wanted.annotations["podseidon.kubewharf.io/cluster-budgets"]}`.replace(/^.*"clusters":/, "").replaceAll('"', "");
  return [
    ...creates.map(({ names, wanted }) => `create ${names[0]} ${clusters(wanted)}`),
    ...updates.map(({ stored: { name }, wanted }) => `update ${name} ${clusters(wanted)}`),
    ...deletes.map(({ name }) => `delete ${name}`),
    ...(againMs === undefined ? [] : [`again in ${againMs}`]),
  ];
}

const [A, B] = [budget({ minAvailable: 2 }), budget({ maxUnavailable: "25%" })];

describe("the budgets of one name in several clusters", () => {
  test.each<[string, readonly Cluster[], readonly MergedBudget[], number, readonly string[]]>([
    ["become one", [listed("a", A), listed("b", B)], [], 0, ["create db {a:{minAvailable:2},b:{maxUnavailable:25%}}}"]],
    ["are left as they are", [listed("a", A), listed("b", B)], storedFor(listed("a", A), listed("b", B)), 0, []],
    [
      "follow a change of one of them at once",
      [listed("a", A), listed("b", budget({ maxUnavailable: 1 }))],
      storedFor(listed("a", A), listed("b", B)),
      0,
      ["update db {a:{minAvailable:2},b:{maxUnavailable:1}}}"],
    ],
    [
      "keep what a cluster asked for that has just lost its budget",
      [listed("a", A), listed("b")],
      storedFor(listed("a", A), listed("b", B)),
      1000,
      ["again in 599000"],
    ],
    [
      "drop it after the delay",
      [listed("a", A), listed("b")],
      storedFor(listed("a", A), listed("b", B)),
      KEEP_MS,
      ["update db {a:{minAvailable:2}}}"],
    ],
    [
      "keep what a cluster asked for that does not answer, for as long as it takes",
      [listed("a", A), silent("b")],
      storedFor(listed("a", A), listed("b", B)),
      10 * KEEP_MS,
      [],
    ],
    ["end with the last of them, after the delay", [listed("a")], storedFor(listed("a", A)), KEEP_MS, ["delete db"]],
    ["stay until then", [listed("a")], storedFor(listed("a", A)), KEEP_MS - 1, ["again in 1"]],
    [
      "of a cluster that is not configured any more are dropped",
      [listed("b", B)],
      storedFor(listed("a", A), listed("b", B)),
      0,
      ["update db {b:{maxUnavailable:25%}}}"],
    ],
  ])("%s", (_, clusters, before, goneMs, expected) => {
    expect(show(planned(clusters, before, goneMs))).toEqual(expected);
  });

  test("with different selectors are budgets of their own, and none takes the selector of another", () => {
    const before = storedFor(listed("a", A), listed("b", A));
    const plan = planned([listed("a", budget({ minAvailable: 0 }, OTHER)), listed("b", A)], before, KEEP_MS);
    expect(show(plan)).toEqual(["create db {a:{minAvailable:0}}}", "update db {b:{minAvailable:2}}}"]);
    expect(plan.creates[0]?.names[1]).toMatch(/^db-[0-9a-f]{8}$/);
    expect(plan.creates[0]?.wanted.spec.selector).toEqual(OTHER);
    expect(plan.updates[0]?.wanted.spec.selector).toEqual(SELECTOR);
  });

  test("are suspended in the clusters that say so, and ask the probe of the first that has one", () => {
    const [first] = planned([
      listed("a", A),
      listed("b", budget({ minAvailable: 1, suspend: true, endpoint: "one:1" })),
      listed("c", budget({ suspend: true, endpoint: "two:2" })),
    ]).creates;
    expect(first?.wanted.spec).toMatchObject({
      ...{ minAvailable: 2, maxUnavailable: null, suspend: true },
      probe: { endpoint: "one:1", enabled: true },
    });
    expect(first?.wanted.annotations["podseidon.kubewharf.io/suspend-cells"]).toBe("b,c");
  });

  // An object with such keys has them in the order of their numbers.
  test("the first cluster is the first flag's, also where clusters are named by numbers", () => {
    const [first] = planned([
      listed("10", budget({ minAvailable: 1, endpoint: "one:1" })),
      listed("2", budget({ minAvailable: 2, suspend: true, endpoint: "two:2" })),
    ]).creates;
    expect(first?.wanted.spec).toMatchObject({ minAvailable: 1, probe: { endpoint: "one:1" } });
  });

  test("keep the suspension and the probe of a cluster that does not answer, also over a restart", () => {
    const asked = budget({ minAvailable: 1, suspend: true, endpoint: "one:1" });
    expect(show(planned([silent("a")], storedFor(listed("a", asked))))).toEqual([]);
  });

  test("are one where their selectors say the same in another order, and one of two of them goes", () => {
    const some = (labels: Readonly<Record<string, string>>, values: readonly string[]) => {
      const [one, other] = [
        { key: "b", operator: "In", values: [...values] },
        { key: "a", operator: "Exists" },
      ];
      const matchExpressions = values[0] === "x" ? [one, other] : [other, one];
      return budget({ minAvailable: 1 }, { matchLabels: labels, matchExpressions });
    };
    const [a, b] = [
      listed("a", some({ k: "1", l: "2" }, ["x", "y"])),
      listed("b", some({ l: "2", k: "1" }, ["y", "x"])),
    ];
    expect(show(planned([a, b]))).toEqual(["create db {a:{minAvailable:1},b:{minAvailable:1}}}"]);
    const [before, copy] = [...storedFor(a), ...storedFor(a).map((one) => ({ ...one, name: "copy" }))];
    if (before === undefined || copy === undefined) throw new Error("there are two");
    expect(show(planned([a], [before, copy]))).toEqual(["delete copy"]);
  });

  // Its protector is released, and another one's finalizer may keep the object for ever.
  test("are made again while somebody has one of them deleted, and the other one of them stays", () => {
    const [before] = storedFor(listed("a", A));
    if (before === undefined) throw new Error("there is one");
    const deleted = { ...before, deleting: true };
    const made = { ...before, name: "db-2" };
    expect(show(planned([listed("a", A)], [deleted]))).toEqual(["create db {a:{minAvailable:2}}}"]);
    expect(show(planned([silent("a")], [deleted]))).toEqual(["create db {a:{minAvailable:2}}}"]);
    expect(show(planned([listed("a", A)], [deleted, made]))).toEqual([]);
    expect(show(planned([listed("a")], [deleted], KEEP_MS))).toEqual([]);
  });
});

describe("a budget of a cluster", () => {
  const metadata = { namespace: "ns", name: "db", uid: "u", resourceVersion: "1" };
  test.each<[string, object, object, unknown]>([
    ["asks by its selector", {}, { selector: SELECTOR, minAvailable: "50%" }, SELECTOR],
    ["without a selector asks for all pods of the namespace, as x-pdb reads it", {}, { minAvailable: 1 }, {}],
    [
      "may decline",
      { annotations: { "podseidon.kubewharf.io/protect": "false" } },
      { selector: SELECTOR, minAvailable: 1 },
      undefined,
    ],
    [
      "may decline by its label",
      { labels: { "podseidon.kubewharf.io/protect": "false" } },
      { selector: SELECTOR, minAvailable: 1 },
      undefined,
    ],
    ["that is being deleted is gone", { deletionTimestamp: "2026-01-01T00:00:00Z" }, { selector: SELECTOR }, undefined],
  ])("%s", (_, more, spec, selector) => {
    expect(clusterBudgetOf({ metadata: { ...metadata, ...more }, spec }).selector).toEqual(selector);
  });

  // The core would refuse what it is part of, and with that what the other clusters ask for.
  test.each<[string, object, object]>([
    ["a probe's endpoint with an account", { probe: { endpoint: "user@one:1" } }, {}],
    ["a probe's endpoint that is too long", { probe: { endpoint: "x".repeat(300_000) } }, {}],
    ["a limit that is too long", { minAvailable: "9".repeat(300_000) }, { minAvailable: "unreadable" }],
    ["a limit that is no whole number", { minAvailable: 2.5 }, { minAvailable: "unreadable" }],
    ["a limit beyond an int32", { maxUnavailable: 1e300 }, { maxUnavailable: "unreadable" }],
  ])("has no part that a budget of the core can't have: %s", (_, stated, expected) => {
    const { part } = clusterBudgetOf({ metadata, spec: { selector: SELECTOR, ...stated } });
    expect(JSON.parse(JSON.stringify(part))).toEqual(expected);
  });

  test("has a selector that the core can store", () => {
    for (const selector of [{ matchLabels: { "a b": "c" } }, { matchExpressions: [{ key: "app", operator: "Odd" }] }])
      expect(() => clusterBudgetOf({ metadata, spec: { selector } })).toThrow("spec.selector");
  });

  test("with a long name has a valid other name in the core", () => {
    const name = `${"a".repeat(243)}.${"b".repeat(9)}`;
    const cluster = listed("a", { ...budget({ minAvailable: 1 }), name });
    const input = { namespace: "ns", name, clusters: [cluster], stored: [], goneForMs: () => 0, keepMs: KEEP_MS };
    expect(planMerge(input).creates[0]?.names[1]).toMatch(/^a{243}-[0-9a-f]{8}$/);
  });

  test("says whether it is suspended and who is asked", () => {
    const { part } = clusterBudgetOf({ metadata, spec: { suspend: true, probe: { endpoint: "one:1" } } });
    expect(part).toMatchObject({ suspend: true, endpoint: "one:1" });
  });

  test("that can't be read is what it was last, unless it is another one, or declines", () => {
    const last = { ...budget({ minAvailable: 1 }), uid: "u" };
    const raw = (annotations = {}) => ({ metadata: { ...metadata, annotations }, spec: "?" });
    expect(unreadableBudget(raw(), () => last)).toBe(last);
    expect(unreadableBudget(raw(), () => ({ ...last, uid: "v" }))).toMatchObject({ isUnreadable: true, uid: "u" });
    const declining = unreadableBudget(raw({ "podseidon.kubewharf.io/protect": "false" }), () => last);
    expect([declining?.selector, declining?.isUnreadable]).toEqual([undefined, undefined]);
  });

  test("does not ask a probe that is disabled", () => {
    const spec = { selector: SELECTOR, probe: { endpoint: "one:1", enabled: false } };
    expect(clusterBudgetOf({ metadata, spec }).part).toEqual({ minAvailable: undefined, maxUnavailable: undefined });
  });
});

test("the limits of the first cluster are in the spec, and are put back where somebody has changed them", () => {
  const [created] = planned([listed("b", B), listed("a", A)]).creates;
  expect(created?.wanted.spec).toMatchObject({ minAvailable: null, maxUnavailable: "25%" });
  const [merged] = storedFor(listed("a", A));
  if (merged === undefined) throw new Error("nothing was created");
  expect(planned([listed("a", A)], [merged]).updates).toEqual([]);
  for (const changed of [{ minAvailable: 1 }, { maxUnavailable: 5 }]) {
    const edited = { ...merged, spec: { ...merged.spec, ...changed } };
    expect(planned([listed("a", A)], [edited]).updates).toMatchObject([{ wanted: { spec: { minAvailable: 2 } } }]);
  }
  expect(planned([listed("a", A)], [{ ...merged, spec: { ...merged.spec, probe: null } }]).updates).toEqual([]);
});

test("of several that are gone, the one that is kept for the shortest time says when to look again", () => {
  const before = storedFor(listed("a", A), listed("b", B), listed("c", A));
  const goneMs = new Map([
    ["a", 100],
    ["b", 500],
    ["c", 300],
  ]);
  const input = { namespace: "ns", name: "db", stored: before, keepMs: KEEP_MS };
  const clusters = ["a", "b", "c"].map((name) => listed(name));
  const goneForMs = (cluster: string): number => goneMs.get(cluster) ?? 0;
  expect(planMerge({ ...input, clusters, goneForMs }).againMs).toBe(KEEP_MS - 500);
});
