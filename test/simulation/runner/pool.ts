/** Runs many seeds in several processes. */
import type { Rule } from "../ablation/rules.ts";
import type { FaultKind } from "../scenario/scenario.ts";
import { type RunResult, runSeed } from "../world/run.ts";
import { SimulationProcess } from "./process.ts";

export interface SeedRange {
  readonly from: number;
  readonly seeds: number;
  /** Processes; 0: this one, unless rules are left out. */
  readonly jobs: number;
  /** Also collects the traces. */
  readonly trace?: boolean;
  /** Rules that the shipping code leaves out. */
  readonly leftOut?: readonly Rule[];
  /** Features of every world. */
  readonly always?: ReadonlySet<FaultKind>;
}

/**
 * Runs seeds `from` to `from + seeds - 1` and calls `done` in the order of completion; `done` may return false to stop.
 */
export async function runSeeds(range: SeedRange, done: (result: RunResult) => boolean): Promise<void> {
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
  const processes = Math.max(jobs, leftOut.length > 0 ? 1 : 0);
  if (processes === 0) return drive((seed) => runSeed(seed, { trace, always }));
  const inProcess = async (): Promise<void> => {
    await using simulation = new SimulationProcess(leftOut);
    await drive((seed) => simulation.seed(seed, { trace, always }));
  };
  await Promise.all(Array.from({ length: processes }, inProcess));
}
