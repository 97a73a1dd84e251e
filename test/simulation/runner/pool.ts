/** Many seeds over several threads, in order of completion. */
import type { Rule } from "../ablation/rules.ts";
import { type RunResult, runSeed } from "../world/run.ts";
import type { FaultKind } from "../world/scenario.ts";
import { SimulationThread } from "./thread.ts";

export interface Range {
  readonly from: number;
  readonly seeds: number;
  /** Threads; 0: this one, unless rules are left out. */
  readonly jobs: number;
  /** Beside the violations, what happened. */
  readonly trace?: boolean;
  /** Rules that the shipping code leaves out. */
  readonly leftOut?: readonly Rule[];
  /** Features of every world. */
  readonly always?: ReadonlySet<FaultKind>;
}

/** Runs seeds `from` to `from + seeds - 1`; `done` may return false to stop. */
export async function runSeeds(range: Range, done: (result: RunResult) => boolean): Promise<void> {
  const end = range.from + range.seeds;
  let next = range.from;
  let isStopped = false;
  const take = (): number | undefined => (isStopped || next >= end ? undefined : next++);
  const { jobs, leftOut = [], trace = false, always = new Set() } = range;
  const drive = async (run: (seed: number) => Promise<RunResult>): Promise<void> => {
    for (let seed = take(); seed !== undefined; seed = take()) {
      const result = await run(seed);
      if (!isStopped && !done(result)) isStopped = true;
    }
  };
  const threads = Math.max(jobs, leftOut.length > 0 ? 1 : 0);
  if (threads === 0) return drive((seed) => runSeed(seed, { trace, always }));
  const inThread = async (): Promise<void> => {
    await using thread = new SimulationThread(leftOut);
    await drive((seed) => thread.seed(seed, { trace, always }));
  };
  await Promise.all(Array.from({ length: threads }, inThread));
}
