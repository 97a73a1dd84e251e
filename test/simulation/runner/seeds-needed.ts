/** How many random worlds it takes to miss a rule of the design that is left out. */
import type { Rule } from "../ablation/rules.ts";
import { type Range, runSeeds } from "./pool.ts";

export interface SeedsNeeded {
  /** Seeds that were run until one broke the invariant that was looked for, that one included; all of them when none did. */
  readonly run: number;
  /** The seed that broke it; undefined when none did. */
  readonly seed: number | undefined;
  /** How many of the seeds that were run broke which other invariant. */
  readonly others: ReadonlyMap<string, number>;
}

/** Runs `range` without `rule` until `invariant` breaks. */
export async function seedsNeeded(
  rule: Rule,
  invariant: string,
  range: Omit<Range, "leftOut" | "trace">,
): Promise<SeedsNeeded> {
  let run = 0;
  let seed: number | undefined;
  const others = new Map<string, number>();
  await runSeeds({ ...range, leftOut: [rule] }, (result) => {
    run += 1;
    const broken = new Set(result.violations.map((violation) => violation.invariant));
    if (broken.has(invariant)) seed = result.seed;
    for (const other of broken) if (other !== invariant) others.set(other, (others.get(other) ?? 0) + 1);
    return seed === undefined;
  });
  return { run, seed, others };
}
