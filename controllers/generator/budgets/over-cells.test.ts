import { describe, expect, test } from "vitest";
import { INT32_MAX } from "../../../shared/decide/minimum/workload-minimum.ts";
import { STALE_AFTER_MS } from "../../../shared/schema/podprotector.ts";
import { makeCell, makeProtector, makeSpec } from "../../../test/support/decide/fixtures.ts";
import {
  type GivenBudget,
  minimum,
  ofDeployment,
  ref,
  resolve,
  selector,
} from "../../../test/support/generator/resolve-budget.ts";
import type { Budget } from "../sources/protection-source.ts";
import { areUncounted } from "./cell-counts.ts";

const nowhere = { total: 0, controllers: [] };
const bare = { total: 4, controllers: [] };
const threes = [
  [3, 3],
  [3, 3],
  [3, 3],
] as const;
test.each<[string, Partial<Budget>, GivenBudget, number, boolean]>([
  ["the cells' add up", {}, { pods: nowhere, present: 2, cells: threes }, 8, true],
  [
    "a cell that has not said is no zero: all pods",
    {},
    {
      pods: nowhere,
      present: 0,
      cells: [
        [3, 3],
        [2, undefined],
      ],
    },
    5,
    true,
  ],
  [
    "a cell that has not said is no zero: as it was",
    {},
    {
      pods: nowhere,
      present: 8,
      cells: [
        [3, 3],
        [2, undefined],
      ],
    },
    8,
    true,
  ],
  [
    "a cell without pods counts",
    {},
    {
      pods: nowhere,
      present: 8,
      cells: [
        [3, 3],
        [0, 3],
      ],
    },
    5,
    true,
  ],
  [
    "a cell takes nothing from the others",
    {},
    {
      pods: nowhere,
      present: 8,
      cells: [
        [3, 3],
        [3, -1_000],
      ],
    },
    2,
    true,
  ],
  [
    "what is federated counts once",
    {},
    {
      ...ofDeployment,
      pods: nowhere,
      present: 9,
      cells: [
        [5, 5],
        [5, 5],
      ],
    },
    9,
    true,
  ],
  [
    "the core's own is a part of it",
    {},
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [10, 10],
        [5, 5],
      ],
    },
    14,
    true,
  ],
  [
    "what the core's workloads ask for counts where it is more",
    {},
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [3, 3],
        [2, 2],
      ],
    },
    9,
    true,
  ],
  [
    "a cell without pods is none of several",
    {},
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [10, 10],
        [0, 0],
      ],
    },
    9,
    false,
  ],
  [
    "one cell has said more than the core",
    {},
    { ...ofDeployment, present: 9, cells: [[7, 12]], isCounted: true },
    11,
    true,
  ],
  ["of one cell, the core's workloads", {}, { ...ofDeployment, present: 9, cells: [[10, undefined]] }, 9, false],
  [
    "cells that lost all pods still count",
    {},
    {
      ...ofDeployment,
      present: 14,
      cells: [
        [10, 10],
        [0, 5],
      ],
      isCounted: true,
    },
    14,
    true,
  ],
  [
    "the owner says that the core's count",
    { countedIn: "core" },
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [10, 10],
        [5, 5],
      ],
      isCounted: true,
    },
    9,
    false,
  ],
  [
    "the owner says that the cells' count",
    { countedIn: "cells" },
    { ...ofDeployment, present: 9, cells: [[12, 12]] },
    11,
    true,
  ],
  [
    "before a cell has counted the core's workloads do",
    { countedIn: "cells" },
    { ...ofDeployment, pods: nowhere },
    9,
    true,
  ],
  [
    "pods without a workload in the core",
    {},
    { pods: bare, present: 0, derivation: "expected 0 (no workload matches) - 1", cells: [[4, undefined]] },
    4,
    false,
  ],
])("over cells: %s", async (_, budget, given, expected, isAsked) => {
  const resolution = await resolve({ maxUnavailable: 1, ...budget }, given);
  expect(minimum(resolution)).toBe(expected);
  const [protector] = resolution.kind === "resolved" ? resolution.protectors : [];
  expect(protector?.spec.countExpectedPods).toBe(isAsked ? true : undefined);
  expect(protector?.owns).toContain("countExpectedPods");
  const isSilent = given.cells?.some(([, one]) => one === undefined) === true && isAsked;
  // An aggregator that may not list a kind is as silent as one without a workload.
  const why = "cell b has not said: no workload there has such pods, or its aggregator can't list a kind";
  if (isSilent) expect(resolution).toMatchObject({ why });
});

// A budget that is applied together with a custom workload is there before its pods, and asks the cells. The aggregator
// of the cluster itself does not know the kind. The disruption controller and OpenKruise read its scale.
const API = "/apis/argoproj.io/v1alpha1";
const rollout: GivenBudget = {
  pods: { total: 5, controllers: [ref("Rollout", "web", "r1")] },
  answers: {
    [API]: { resources: ["rollouts", "rollouts/scale"].map((name) => ({ name, kind: "Rollout" })) },
    [`${API}/namespaces/shop/rollouts/web/scale`]: { metadata: { uid: "r1" }, spec: { replicas: 5 } },
  },
};
test.each<[string, Partial<Budget>, GivenBudget, number, boolean]>([
  ["alone has its pods", {}, { present: 0, cells: [[5, undefined]] }, 4, false],
  ["was asked while its pods came", {}, { present: 2, cells: [[5, undefined]] }, 4, false],
  [
    "has pods of a workload that was scaled to zero",
    {},
    {
      answers: {
        ...rollout.answers,
        [`${API}/namespaces/shop/rollouts/web/scale`]: { metadata: { uid: "r1" }, spec: { replicas: 0 } },
      },
      present: 4,
      cells: [[5, undefined]],
    },
    0,
    false,
  ],
  [
    "has pods that no controller in the core asks for",
    {},
    { pods: { total: 5, controllers: [] }, present: 8, cells: [[5, undefined]] },
    8,
    true,
  ],
  ["has more pods than the core", {}, { present: 8, cells: [[9, undefined]] }, 8, true],
  [
    "has pods beside another one",
    {},
    {
      present: 8,
      cells: [
        [5, undefined],
        [5, undefined],
      ],
    },
    8,
    true,
  ],
  ["is to be asked, as the owner says", { countedIn: "cells" }, { present: 8, cells: [[5, undefined]] }, 8, true],
])("a silent cell that %s", async (_, budget, given, expected, isAsked) => {
  const resolution = await resolve({ maxUnavailable: 1, ...budget }, { ...rollout, ...given, isCounted: true });
  expect(minimum(resolution)).toBe(expected);
  const [protector] = resolution.kind === "resolved" ? resolution.protectors : [];
  expect(protector?.spec.countExpectedPods).toBe(isAsked ? true : undefined);
});

test("all pods stay all of them, however many cells have not said how many there should be", async () => {
  const cells = Array.from({ length: 300 }, () => [1, undefined] as const);
  const first = await resolve({ maxUnavailable: 1 }, { pods: nowhere, present: 0, isCounted: true, cells });
  const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
  const given = {
    pods: nowhere,
    present: 300,
    derivation,
    isCounted: true,
    cells: [...cells, [50, undefined]],
  } as const;
  expect(minimum(await resolve({ maxUnavailable: 1 }, given))).toBe(350);
});

// A protector that promises nothing lets every pod go, counted or not, also where it was made for one that was lost.
describe("before a cell has counted the pods of a budget, it requires as many as there can be", () => {
  const given = { pods: nowhere };
  test.each<[string, Partial<Budget>, number]>([
    ["all but one", { maxUnavailable: 1 }, INT32_MAX - 1],
    ["a half", { minAvailable: "50%" }, (INT32_MAX + 1) / 2],
    ["none", { maxUnavailable: "100%" }, 0],
  ])("and so it stays: %s", async (_, budget, expected) => {
    const first = await resolve(budget, given);
    expect(minimum(first)).toBe(expected);
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    expect(minimum(await resolve(budget, { ...given, present: expected, derivation, isCounted: true }))).toBe(expected);
  });

  test.each<[string, Partial<Budget>, readonly (readonly [number, number | undefined])[], number]>([
    ["what they ask for", {}, [[3, 3]], 2],
    ["all of them, where nobody says how many there should be", {}, [[3, undefined]], 3],
    ["all of them, where the limit can't be read", { maxUnavailable: "many" }, [[3, 3]], 3],
  ])("and then %s", async (_, limits, cells, expected) => {
    const budget = { maxUnavailable: 1, ...limits };
    const first = await resolve(budget, given);
    const present = minimum(first) ?? 0;
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    expect(minimum(await resolve(budget, { ...given, present, derivation, isCounted: true, cells }))).toBe(expected);
  });
});

// Cells count it one after the other, and it promises nothing in the others if the first one has no pods.
describe("a protector that is created again for one that was lost", () => {
  const given: GivenBudget = { pods: nowhere, isCounted: true, isOnHold: true, cells: [[0, 0]] };
  const budget = { maxUnavailable: 1 };

  test("keeps what it requires while a cell without pods is on hold", async () => {
    const first = await resolve(budget, { pods: nowhere });
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    const present = minimum(first) ?? 0;
    expect(minimum(await resolve(budget, { ...given, present, derivation }))).toBe(INT32_MAX - 1);
    const silent = { ...given, cells: [[0, undefined]] as const };
    expect(minimum(await resolve(budget, { ...silent, present, derivation }))).toBe(INT32_MAX - 1);
    expect(minimum(await resolve(budget, { ...given, present: 9 }))).toBe(9);
    const beside = { ...silent, cells: [...silent.cells, threes[0]] };
    expect(minimum(await resolve(budget, { ...beside, present: 9 }))).toBe(9);
  });

  test("requires what the others ask for once they have counted", async () => {
    const both = [
      [0, 0],
      [10, 10],
    ] as const;
    expect(minimum(await resolve(budget, { ...given, present: 9, cells: both }))).toBe(9);
  });
});

describe("a budget that selects other pods now", () => {
  const other = { matchLabels: { app: "other" } };
  const before: GivenBudget = { pods: nowhere, present: 2, presentSelector: other, isCounted: true };

  test("requires as many as there can be until each cell has counted these", async () => {
    const cells = [
      [3, 3],
      [30, 30],
    ] as const;
    const budget = { maxUnavailable: 1 };
    const first = await resolve(budget, { ...before, cells, countedSelectors: [other, other] });
    const present = minimum(first) ?? 0;
    expect(present).toBe(INT32_MAX - 1);
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    const now = { ...before, present, derivation, presentSelector: selector, cells };
    expect(minimum(await resolve(budget, { ...now, countedSelectors: [other, selector] }))).toBe(INT32_MAX - 1);
    expect(minimum(await resolve(budget, { ...now, countedSelectors: [selector, selector] }))).toBe(32);
  });

  test("says which cell keeps it waiting once that is silent", async () => {
    const cells = [
      [3, 3],
      [30, 30],
    ] as const;
    const first = await resolve({ maxUnavailable: 1 }, { ...before, cells, countedSelectors: [other, other] });
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    const now = { ...before, present: INT32_MAX - 1, derivation, presentSelector: selector, cells };
    const told = async (...silentMs: number[]) => {
      const by = { countedSelectors: [other, silentMs.length === 2 ? other : selector], silentMs };
      const resolution = await resolve({ maxUnavailable: 1 }, { ...now, ...by });
      return resolution.kind === "resolved" ? [resolution.recheck, resolution.why] : resolution.kind;
    };
    const why =
      "cell a has not counted the pods that it selects now, and sends no heartbeat: " +
      "no available pod can be deleted until its aggregator is back; once its cluster is gone for good: " +
      "kubectl podseidon remove-cell CELL -A";
    expect(await told(STALE_AFTER_MS)).toEqual([true, undefined]);
    expect(await told(STALE_AFTER_MS + 1)).toEqual([true, why]);
    expect(await told(STALE_AFTER_MS + 1, 0)).toEqual([true, why]);
    expect(await told()).toEqual([true, undefined]);
    const changed = {
      ...now,
      presentSelector: other,
      countedSelectors: [other, other],
      silentMs: [STALE_AFTER_MS + 1],
    };
    expect(await resolve({ maxUnavailable: 1 }, { ...changed, derivation: "" })).toMatchObject({ why: undefined });
  });

  test("follows its cells where only another field of the counts has changed", async () => {
    const given = { ...before, presentSelector: selector, cells: [[30, 30]], countedSelectors: [other] } as const;
    expect(minimum(await resolve({ maxUnavailable: 1 }, given))).toBe(29);
  });

  test("requires so also where an operator had others counted, which the next write ends", () => {
    const spec = { selector: other, aggregationSelector: other };
    const present = makeProtector([makeCell("a", 3, [], {}, makeSpec(spec))], spec);
    expect([areUncounted(present, other), areUncounted(present, selector)]).toEqual([false, true]);
  });

  test.each<[string, Partial<Budget>]>([
    ["nobody knows how many there should be", { countedIn: "core" }],
    ["its limit can't be read", { maxUnavailable: "many", expectedPods: 4 }],
  ])("keeps no number of those before where %s", async (_, limits) => {
    const budget = { maxUnavailable: 1, ...limits };
    expect(minimum(await resolve(budget, { pods: bare, present: 2, presentSelector: other }))).toBe(4);
    expect(minimum(await resolve(budget, { pods: bare, present: 2, presentSelector: selector }))).toBe(2);
  });
});
