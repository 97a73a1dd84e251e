/** Shrinks a failing run while it still fails: fewer kinds of faults, fewer pods, fewer disruptions. */

import { FAULT_KINDS, type FaultKind } from "../scenario/scenario.ts";
import { type RunOptions, type RunResult, runSeed } from "../world/run.ts";

export interface Shrunk {
  readonly options: RunOptions;
  readonly result: RunResult;
}

const SIZES = [
  { pods: 0.3, deletions: 0.3 },
  { pods: 0.5, deletions: 0.5 },
  { pods: 1, deletions: 0.5 },
];

/**
 * Tries each reduction once, in a fixed order, and keeps those that still break the same invariant. `run` may run the
 * seed in a process without some rules.
 */
export async function shrink(
  failed: RunResult,
  options: RunOptions = {},
  run: typeof runSeed = runSeed,
): Promise<Shrunk> {
  const invariant = failed.violations[0]?.invariant;
  let best: Shrunk = { options, result: failed };
  const attempt = async (candidate: RunOptions): Promise<boolean> => {
    const result = await run(failed.seed, candidate);
    if (result.violations[0]?.invariant !== invariant) return false;
    best = { options: candidate, result };
    return true;
  };
  for (const kind of FAULT_KINDS) {
    if ((best.result.coverage.faults[kind] ?? 0) === 0) continue;
    const without = new Set<FaultKind>([...(best.options.without ?? []), kind]);
    await attempt({ ...best.options, without });
  }
  for (const size of SIZES) if (await attempt({ ...best.options, size })) break;
  return { options: best.options, result: await run(failed.seed, { ...best.options, trace: true }) };
}
