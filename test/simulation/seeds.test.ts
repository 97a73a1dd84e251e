/** Worlds of many seeds, every invariant checked in each. `PODSEIDON_TEST_SIZE=full` runs 500 and more. */
import { describe, expect, it } from "vitest";
import { addUp, coverageTable, describeFailure } from "./runner/report.ts";
import { shrink } from "./runner/shrink.ts";
import { REGRESSIONS } from "./seeds.ts";
import { type RunResult, runSeed } from "./world/run.ts";

const IS_FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const FULL_SEEDS = 500;
const QUICK_SEEDS = 8;
const PER_TEST = IS_FULL ? 50 : 4;
/** Generous: how long a seed takes is no criterion. */
const SEED_TIMEOUT_MS = 120_000;
const FIRST_SEED = 1000;

async function expectSound(seed: number): Promise<RunResult> {
  const result = await runSeed(seed);
  if (result.violations.length > 0) expect.fail(describeFailure(await shrink(result)).join("\n"));
  return result;
}

describe("seeds that have shown a defect", () => {
  it.for(REGRESSIONS)("seed $seed: $what", { timeout: SEED_TIMEOUT_MS }, async ({ seed }) => {
    await expectSound(seed);
  });
});

describe("every invariant holds", () => {
  const groups = Array.from(
    { length: (IS_FULL ? FULL_SEEDS : QUICK_SEEDS) / PER_TEST },
    (_, index) => FIRST_SEED + index * PER_TEST,
  );
  it.for(groups)(`in the ${PER_TEST} seeds from %i`, { timeout: SEED_TIMEOUT_MS * PER_TEST }, async (from) => {
    const results: RunResult[] = [];
    for (let seed = from; seed < from + PER_TEST; seed += 1) results.push(await expectSound(seed));
    // The worlds are worth something only if things happen in them.
    const coverage = addUp(results);
    const allowed = coverage.verdicts["delete allowed Reserved"] ?? 0;
    expect(allowed, coverageTable(coverage).join("\n")).toBeGreaterThan(0);
  });
});

describe("one seed is one history", () => {
  it(
    "the same trace, line for line, when it is run twice",
    async () => {
      const [first, second] = [await runSeed(6, { trace: true }), await runSeed(6, { trace: true })];
      expect(first.trace.length).toBeGreaterThan(100);
      expect(second.trace).toEqual(first.trace);
      const other = await runSeed(7, { trace: true });
      expect(other.trace).not.toEqual(first.trace);
    },
    SEED_TIMEOUT_MS * 3,
  );
});
