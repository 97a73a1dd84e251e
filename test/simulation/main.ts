/**
 * `npm run simulate -- --seeds N --from S [--jobs J]`: runs the shipping code in simulated worlds, one for each seed,
 * with faults, and checks the invariants (docs/design.md#invariants) at every step. `--seed S --trace` prints one run.
 * The head of `world/world.ts` says what is where.
 */
import { parseArgs } from "node:util";
import { isRule, RULE_NAMES, type Rule } from "./ablation/rules.ts";
import { play, SCENES } from "./directed/scenes.ts";
import type { CoverageCounts } from "./judge/coverage.ts";
import { runSeeds, type SeedRange } from "./runner/pool.ts";
import { SimulationProcess } from "./runner/process.ts";
import { addUp, coverageTable, describeFailure, uncovered } from "./runner/report.ts";
import { seedsNeeded } from "./runner/seeds-needed.ts";
import { shrink } from "./runner/shrink.ts";
import { FEATURE_KINDS, type FeatureKind, isFeature } from "./scenario/features.ts";
import type { RunOptions, RunResult } from "./world/run.ts";

const HELP = `usage: npm run simulate -- [--seeds N] [--from S] [--jobs J] [--keep-going]
       npm run simulate -- --seed S [--trace] [--with FEATURE]
       npm run simulate -- --without RULE [--seeds N] [--from S] [--jobs J]
       npm run simulate -- --seeds-needed [--without RULE] [--seeds N] [--from S] [--jobs J]
       npm run simulate -- --scenes
  --seeds N      how many seeds to run (default 100)
  --from S       the first seed (default 1)
  --jobs J       processes (default 1)
  --keep-going   run all seeds, and list the failing ones
  --seed S       run one seed
  --trace        print everything that happens in the run
  --with FEATURE give every world this feature (test/simulation/scenario/features.ts)
  --without RULE leave out a rule of the protocol (test/simulation/ablation/rules.ts), to see what breaks
  --seeds-needed how many seeds it takes to break the invariant of each rule, or of those that --without
                 names, when the rule is left out
  --scenes       play the scene of each rule, with the rule and without it`;
/** With so many seeds every row of the coverage is expected to be met. */
const FULL_COVERAGE_SEEDS = 500;
const PROGRESS_EVERY_MS = 10_000;
/** Former names that `--with` and `--without` still accept. */
const FORMER_NAMES: Readonly<Record<string, string>> = { copies: "backups", Standstill: "Stall" };

// `| head` closes the pipe early, which is no failure.
process.stdout.on("error", (error) => {
  if (!("code" in error) || error.code !== "EPIPE") throw error;
  process.exit(0);
});
process.exitCode = await main();

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seeds: { type: "string", default: "100" },
      from: { type: "string", default: "1" },
      jobs: { type: "string", default: "1" },
      seed: { type: "string" },
      trace: { type: "boolean", default: false },
      without: { type: "string", multiple: true, default: [] },
      with: { type: "string", multiple: true, default: [] },
      scenes: { type: "boolean", default: false },
      "seeds-needed": { type: "boolean", default: false },
      "keep-going": { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return say([HELP]);
  if (values.scenes) return scenes();
  const always = features(values.with);
  if (values.seed !== undefined)
    return one(whole("seed", values.seed), { trace: values.trace, always }, rules(values.without));
  const range = {
    from: whole("from", values.from),
    seeds: whole("seeds", values.seeds),
    jobs: whole("jobs", values.jobs),
    leftOut: rules(values.without),
    always,
  };
  return values["seeds-needed"] ? await needed(range) : await many(range, values["keep-going"]);
}

async function one(seed: number, options: RunOptions, leftOut: readonly Rule[]): Promise<number> {
  await using simulation = new SimulationProcess(leftOut);
  const result = await simulation.seed(seed, options);
  say(result.trace);
  say(result.violations.map(({ invariant, atMs, message }) => `${invariant} at ${atMs} ms: ${message}`));
  if (options.trace !== true) say(coverageTable(result.coverage));
  return result.violations.length === 0 ? 0 : 1;
}

/** Prints a line for each rule: what breaks with the rule (nothing), and what without it. */
async function scenes(): Promise<number> {
  let failed = 0;
  for (const [index, scene] of SCENES.entries()) {
    const broken = new Set((await play(scene)).violations.map(({ invariant }) => invariant));
    await using simulation = new SimulationProcess([scene.rule]);
    const { violations } = await simulation.scene(index);
    const brokenWithout = new Set(violations.map(({ invariant }) => invariant));
    const isAsExpected = broken.size === 0 && brokenWithout.has(scene.invariant);
    if (!isAsExpected) failed += 1;
    const names = (found: ReadonlySet<string>): string => [...found].join(" ") || "nothing";
    const outcome = `breaks ${names(broken)}, without it ${names(brokenWithout)}`;
    say([`${isAsExpected ? "ok    " : "FAILED"} ${scene.rule.padEnd(24)} ${outcome.padEnd(38)} ${scene.what}`]);
  }
  say([`${SCENES.length} scenes, ${failed} failed`]);
  return failed === 0 ? 0 : 1;
}

/** Prints a line for each rule: the first seed that breaks the invariant of its scene without the rule. */
async function needed({ leftOut, ...range }: SeedRange & { readonly leftOut: readonly Rule[] }): Promise<number> {
  const asked = SCENES.filter(({ rule }) => leftOut.length === 0 || leftOut.includes(rule));
  let missed = 0;
  for (const { rule, invariant } of asked) {
    const { run, seed, others } = await seedsNeeded(rule, invariant, range);
    if (seed === undefined) missed += 1;
    const found =
      seed === undefined ? `no ${invariant} in ${run} seeds` : `${invariant} after ${run} seeds (seed ${seed})`;
    const beside = [...others].map(([other, count]) => `${other} in ${count}`).join(", ");
    say([`${rule.padEnd(24)} ${found.padEnd(36)} ${beside === "" ? "" : `beside it ${beside}`}`.trimEnd()]);
  }
  say([`${asked.length} rules, ${missed} without effect`]);
  return missed === 0 ? 0 : 1;
}

async function many(range: SeedRange, keepGoing: boolean): Promise<number> {
  const startedMs = performance.now();
  const failed: RunResult[] = [];
  let done = 0;
  let coverage: CoverageCounts = addUp([]);
  let saidMs = startedMs;
  const perSecond = (): string => ((done * 1000) / (performance.now() - startedMs)).toFixed(2);
  await runSeeds(range, (result) => {
    done += 1;
    coverage = addUp([{ coverage }, result]);
    if (result.violations.length > 0) {
      failed.push(result);
      const [first] = result.violations;
      say([`seed ${result.seed}: ${first?.invariant} at ${first?.atMs} ms: ${first?.message}`]);
    }
    if (performance.now() - saidMs > PROGRESS_EVERY_MS) {
      saidMs = performance.now();
      say([`${done} of ${range.seeds} seeds, ${failed.length} failed, ${perSecond()} seeds/s`]);
    }
    return keepGoing || failed.length === 0;
  });
  say(coverageTable(coverage));
  const missing = uncovered(coverage);
  const isHollow = range.seeds >= FULL_COVERAGE_SEEDS && missing.length > 0;
  const options = range.always === undefined ? {} : { always: range.always };
  const first = failed.sort((a, b) => a.seed - b.seed)[0];
  if (first !== undefined) {
    await using simulation = new SimulationProcess(range.leftOut);
    say(describeFailure(await shrink(first, options, (seed, how) => simulation.seed(seed, how))));
  }
  if (isHollow) say([`never met in ${done} seeds: ${missing.join(", ")}`]);
  const last = range.from + range.seeds - 1;
  say([`seeds ${range.from} to ${last}: ${done} run, ${failed.length} with violations, ${perSecond()} seeds/s`]);
  return failed.length === 0 && !isHollow ? 0 : 1;
}

function whole(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`--${name} must be a whole number, not ${text}`);
  return value;
}

function features(given: readonly string[]): ReadonlySet<FeatureKind> {
  const names = given.map((name) => FORMER_NAMES[name] ?? name);
  const unknown = names.filter((name) => !isFeature(name));
  if (unknown.length > 0)
    throw new Error(`there is no feature ${unknown.join(", ")}; the features are ${FEATURE_KINDS.join(", ")}`);
  return new Set(names.filter(isFeature));
}

function rules(given: readonly string[]): readonly Rule[] {
  const names = given.map((name) => FORMER_NAMES[name] ?? name);
  const unknown = names.filter((name) => !isRule(name));
  if (unknown.length > 0)
    throw new Error(`there is no rule ${unknown.join(", ")}; the rules are ${RULE_NAMES.join(", ")}`);
  return names.filter(isRule);
}

function say(lines: readonly string[]): number {
  for (const line of lines) process.stdout.write(`${line}\n`);
  return 0;
}
