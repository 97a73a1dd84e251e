/**
 * Worlds of many seeds, with every invariant checked in each, in two processes; and a seed that shows the worth of each
 * rule.
 */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../../scripts/root.ts";
import { RULE_NAMES } from "./ablation/rules.ts";
import { SCENES } from "./directed/scenes.ts";
import { runSeeds } from "./runner/pool.ts";
import { SimulationProcess } from "./runner/process.ts";
import { addUp, coverageTable, describeFailure, uncovered } from "./runner/report.ts";
import { shrink } from "./runner/shrink.ts";
import { FEATURE_KINDS } from "./scenario/features.ts";
import { REGRESSIONS, RULE_SEEDS } from "./seeds.ts";
import { type RunOptions, type RunResult, runSeed } from "./world/run.ts";

const JOBS = Math.min(2, availableParallelism());
const FIRST_SEED = 2000;
/** Where the search for the seeds of rules begins. */
const FIRST_RULE_SEED = 60_000;
/** Enough for every fault, verdict and rule to be met. */
const SEEDS = process.env.PODSEIDON_TEST_SIZE === "full" ? 2_000 : 120;
/** Against a hanging test. How long a seed takes is no criterion. */
const HANG_MS = 60 * 60_000;

async function expectSound(results: readonly RunResult[], options: RunOptions = {}): Promise<void> {
  const failed = results.filter(({ violations }) => violations.length > 0).sort((a, b) => a.seed - b.seed);
  const [first] = failed;
  if (first !== undefined) expect.fail(describeFailure(await shrink(first, options)).join("\n"));
}

describe("seeds that have shown a defect", () => {
  it.for(REGRESSIONS)("seed $seed: $what", { timeout: HANG_MS }, async ({ seed, features }) => {
    const without = new Set(FEATURE_KINDS.filter((kind) => !features.includes(kind)));
    const options = { without, always: new Set(features) };
    await expectSound([await runSeed(seed, options)], options);
  });
});

describe.for(RULE_SEEDS)("$rule, in seed $seed", ({ rule, seed, features = ["accidents"], ...expected }) => {
  const always = new Set(features);
  const invariant = expected.invariant ?? SCENES.find((scene) => scene.rule === rule)?.invariant;

  it("breaks nothing", { timeout: HANG_MS }, async () => {
    await expectSound([await runSeed(seed, { always })], { always });
  });

  // A failure means that the product or its worlds have changed. `npm run simulate -- --seeds-needed --with accidents`
  // finds another seed.
  it(`breaks ${invariant} without the rule`, { timeout: HANG_MS }, async () => {
    await using simulation = new SimulationProcess([rule]);
    const { violations } = await simulation.seed(seed, { always });
    expect(violations.map((violation) => violation.invariant)).toContain(invariant);
  });
});

// After those that use one processor: this one uses all that the clusters beside it have left by then.
describe("every invariant holds", () => {
  it(`in ${SEEDS} seeds from ${FIRST_SEED}`, { timeout: HANG_MS }, async () => {
    const results: RunResult[] = [];
    const startedMs = performance.now();
    await runSeeds({ from: FIRST_SEED, seeds: SEEDS, jobs: JOBS }, (result) => {
      results.push(result);
      return result.violations.length === 0;
    });
    await expectSound(results);
    const coverage = addUp(results);
    const seconds = (performance.now() - startedMs) / 1000;
    console.log(
      `${results.length} seeds, 0 violations, ${(results.length / seconds).toFixed(2)} seeds/s with ${JOBS} processes`,
    );
    // The seeds prove nothing unless something happens in them.
    const allowed = coverage.verdicts["delete allowed Reserved"] ?? 0;
    expect(allowed, coverageTable(coverage).join("\n")).toBeGreaterThan(0);
    expect(uncovered(coverage)).toEqual([]);
  });
});

it("there is a seed for each rule", () => {
  expect(RULE_SEEDS.map(({ rule }) => rule)).toEqual(RULE_NAMES);
});

it("the page names these seeds, and how many were needed", () => {
  const page = readFileSync(join(root, "docs/simulation.md"), "utf8");
  const rows = [...page.matchAll(/^\| `(\w+)` +\| \w+ +\| (\d+ \(\d+\))/gm)].map((row) => row.slice(1));
  const found = RULE_SEEDS.map(({ rule, seed }) => [rule, `${seed} (${seed - FIRST_RULE_SEED + 1})`]);
  expect(rows.sort()).toEqual(found.sort());
});

describe("one seed gives one history", () => {
  it("with the same trace in this process and in another", { timeout: HANG_MS }, async () => {
    // Frozen: texts that several processes read are parsed once, and no process may change them.
    const here = await runSeed(6, { trace: true, isFrozen: true });
    const there: RunResult[] = [];
    await runSeeds({ from: 6, seeds: 2, jobs: 1, trace: true }, (result) => there.push(result) > 0);
    expect(here.trace.length).toBeGreaterThan(100);
    expect(there.find(({ seed }) => seed === 6)?.trace).toEqual(here.trace);
    expect(there.find(({ seed }) => seed === 7)?.trace).not.toEqual(here.trace);
  });
});
