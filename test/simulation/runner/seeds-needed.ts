/** Counts how many random worlds it takes until a rule that is left out shows. */
import type { Rule } from "../ablation/rules.ts";
import { runSeeds, type SeedRange } from "./pool.ts";

interface SeedsNeeded {
  /** Number of seeds that ran, up to the one that broke the invariant, or all of them. */
  readonly run: number;
  /** The seed that broke the invariant; undefined when no seed did. */
  readonly seed: number | undefined;
  /** How many seeds broke which other invariant. */
  readonly others: ReadonlyMap<string, number>;
}

/** Runs `range` without `rule` until `invariant` breaks. */
export async function seedsNeeded(
  rule: Rule,
  invariant: string,
  range: Omit<SeedRange, "leftOut" | "trace">,
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
