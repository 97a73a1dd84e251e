/** The rules of settling and of the quota together: no order of events breaks them, and each rule is needed. */
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Rule } from "../ablation/rules.ts";
import { SimulationProcess } from "../runner/process.ts";
import { quotaHolds } from "./orders.ts";

test("in any order of events, quota is neither used twice nor lost", () => {
  fc.assert(quotaHolds(0, 0, 1), { numRuns: 1000 });
});

/** Each rule with a seed that soon fails without it. R2 is not among them: R3 does its work, only later. */
const NEEDED: readonly [rule: Rule, seed: number, minReadySeconds: number][] = [
  ["R1", 1, 0],
  ["R1Position", 9, 0],
  ["R2DeleteOnly", 6, 0],
  ["R3", 1, 0],
  ["R3Settle", 2, 0],
  ["WeightFollowsAvailable", 1, 0],
  ["RepeatRefresh", 1, 0],
  ["Paid", 1, 0],
  ["PinImmature", 5, 1],
  ["PinEviction", 5, 0],
  ["MaturityPosition", 1, 1],
  ["RollbackByNonce", 1, 0],
];
test.each(NEEDED)("without %s it is", async (rule, seed, minReadySeconds) => {
  await using simulation = new SimulationProcess([rule]);
  expect(await simulation.orders(seed, minReadySeconds, 20_000)).toBe(true);
});
