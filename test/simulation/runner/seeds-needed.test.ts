import { expect, it } from "vitest";
import { seedsNeeded } from "./seeds-needed.ts";

/** Nearly every seed shows that this rule is left out, so that the test does not depend on one. */
const RULE = "R3";
const SEEDS = 5;

it("a rule that is left out breaks its invariant after some seeds", { timeout: 600_000 }, async () => {
  const { run, seed, others } = await seedsNeeded(RULE, "L1", { from: 1, seeds: SEEDS, jobs: 0 });
  expect(seed).toBe(run);
  expect([...others.keys()]).not.toContain("L1");
});

it("an invariant that does not depend on the rule holds, and other broken invariants are reported", {
  timeout: 600_000,
}, async () => {
  const broken = await seedsNeeded(RULE, "S9", { from: 1, seeds: SEEDS, jobs: 0 });
  expect(broken).toMatchObject({ run: SEEDS, seed: undefined });
  expect(broken.others.get("L1")).toBeGreaterThan(0);
});
