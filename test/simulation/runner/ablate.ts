/** Runs seeds with one rule of the design left out: what does each rule hold up? */
import type { Rule } from "../../../shared/decide/rules.ts";
import { type RunResult, runSeed } from "../world/run.ts";

export interface Broken {
  readonly seed: number;
  readonly invariant: string;
  /** Seeds that were run until then. */
  readonly seeds: number;
}

/** Runs one seed with `rule` left out. */
export async function runWithout(rule: Rule, seed: number): Promise<RunResult> {
  globalThis.__ABLATION__ = new Set([rule]);
  try {
    return await runSeed(seed);
  } finally {
    globalThis.__ABLATION__ = undefined;
  }
}

/** The first of `seeds` seeds in which an invariant breaks once `rule` is left out. */
export async function findBroken(rule: Rule, from: number, seeds: number): Promise<Broken | undefined> {
  for (let seed = from; seed < from + seeds; seed += 1) {
    const [first] = (await runWithout(rule, seed)).violations;
    if (first !== undefined) return { seed, invariant: first.invariant, seeds: seed - from + 1 };
  }
  return undefined;
}
