/** Every state of small worlds: no order of events breaks an invariant, and each rule is needed. */
import { describe, expect, it, test } from "vitest";
import { type Bounds, DEFAULTS } from "./bounds.ts";
import { LEFT_OUT_RULES } from "./left-out.ts";
import { searchWithout } from "./search/rule-process.ts";
import { search } from "./search/search.ts";

/** The number of states is part of the test: a world that loses a step, or a check of it, shows here. */
const WORLDS: readonly [what: string, states: number, bounds: Partial<Bounds>][] = [
  ["two pods, of which one can be spared", 45_495, {}],
  ["a packed history", 1_273, { compactThreshold: 1, faults: 0 }],
  ["a pod that is created", 1_936, { later: 1, faults: 0 }],
  ["no pod to spare", 1_245, { minAvailable: 2, changes: 2, faults: 0 }],
  ["pods that mature", 3_454, { minReadySeconds: 1, faults: 0 }],
  ["two cells", 4_260, { cells: 2, minAvailable: 3, changes: 0 }],
];

describe("in every state of a world", () => {
  it.each(WORLDS)("%s, the invariants hold: %i states", async (_, states, bounds) => {
    const found = await search({ ...DEFAULTS, ...bounds });
    expect(found.story).toEqual([]);
    expect(found).toMatchObject({ states, isComplete: true, violation: undefined });
  });
});

test.each(LEFT_OUT_RULES)("without $rule, $invariant is broken", async ({ rule, invariant, bounds }) => {
  const { violation } = await searchWithout(rule, bounds);
  expect(violation).toMatch(new RegExp(`^${invariant}:`));
});
