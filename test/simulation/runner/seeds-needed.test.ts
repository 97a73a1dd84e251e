import { expect, it } from "vitest";
import { seedsNeeded } from "./seeds-needed.ts";

/** Missed in nearly every seed, so that this does not depend on one. */
const RULE = "R3";
const SEEDS = 10;

it("a rule that is left out is missed after some seeds", { timeout: 600_000 }, async () => {
  const { run, seed, others } = await seedsNeeded(RULE, "L1", { from: 1, seeds: SEEDS, jobs: 0 });
  expect(seed).toBe(run);
  expect([...others.keys()]).not.toContain("L1");
});

it("an invariant that does not rest on the rule is not broken, and what else was is told", {
  timeout: 600_000,
}, async () => {
  const broken = await seedsNeeded(RULE, "S9", { from: 1, seeds: SEEDS, jobs: 0 });
  expect(broken).toMatchObject({ run: SEEDS, seed: undefined });
  expect(broken.others.get("L1")).toBeGreaterThan(0);
});
