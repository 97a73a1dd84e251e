/** Runs seeds with rules of the design left out: what does each rule hold up? */
import type { Rule } from "../../../shared/decide/rules.ts";
import { type RunOptions, type RunResult, runSeed } from "../world/run.ts";

/** Runs one seed with `rules` left out. */
export async function runWithout(rules: readonly Rule[], seed: number, options: RunOptions = {}): Promise<RunResult> {
  return await without(rules, () => runSeed(seed, options));
}

/** Runs `work` while the shipping code leaves out `rules`. */
export async function without<T>(rules: readonly Rule[], work: () => Promise<T>): Promise<T> {
  globalThis.__ABLATION__ = rules.length === 0 ? undefined : new Set(rules);
  try {
    return await work();
  } finally {
    globalThis.__ABLATION__ = undefined;
  }
}
