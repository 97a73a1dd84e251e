import { expect, it } from "vitest";
import type { RunResult } from "../world/run.ts";
import { SimulationProcess } from "./process.ts";
import { describeFailure } from "./report.ts";
import { shrink } from "./shrink.ts";

/** Nearly every seed shows that this rule is left out, so that the test does not depend on one. */
const RULE = "R3";
const SEEDS = [1, 2, 3, 4, 5, 6];

it("a failing run is shrunk, still breaks the same invariant, and is reported with a short trace", {
  timeout: 600_000,
}, async () => {
  await using simulation = new SimulationProcess([RULE]);
  let failed: RunResult | undefined;
  for (const seed of SEEDS) {
    const result = await simulation.seed(seed);
    if (result.violations.length === 0) continue;
    failed = result;
    break;
  }
  if (failed === undefined) return expect.fail(`none of the seeds ${SEEDS.join(", ")} needs ${RULE}`);
  const smaller = await shrink(failed, {}, (seed, options) => simulation.seed(seed, options));
  expect(smaller.result.violations[0]?.invariant).toBe(failed.violations[0]?.invariant);
  const { without: leftOut = new Set(), size = { pods: 1, deletions: 1 } } = smaller.options;
  expect(leftOut.size > 0 || size.pods < 1).toBe(true);
  for (const kind of leftOut) expect(smaller.result.coverage.faults[kind] ?? 0).toBe(0);
  const lines = describeFailure(smaller);
  expect(lines.length).toBeLessThan(80);
  expect(lines.join("\n")).toContain(`--seed ${failed.seed} --trace`);
});
