/** Many seeds over several threads, in order of completion. */
import { Worker } from "node:worker_threads";
import type { Rule } from "../../../shared/decide/rules.ts";
import type { RunResult } from "../world/run.ts";
import { runWithout } from "./ablate.ts";

export interface Range {
  readonly from: number;
  readonly seeds: number;
  readonly jobs: number;
  /** Rules of the design that the shipping code leaves out. */
  readonly leftOut?: readonly Rule[];
}

/** Runs seeds `from` to `from + seeds - 1`; `done` may return false to stop. With one job everything runs in this thread. */
export async function runSeeds(range: Range, done: (result: RunResult) => boolean): Promise<void> {
  const end = range.from + range.seeds;
  let next = range.from;
  let isStopped = false;
  const take = (): number | undefined => (isStopped || next >= end ? undefined : next++);
  const report = (result: RunResult): void => {
    if (!isStopped && !done(result)) isStopped = true;
  };
  const { jobs, leftOut = [] } = range;
  if (jobs <= 1) {
    for (let seed = take(); seed !== undefined; seed = take()) report(await runWithout(leftOut, seed));
    return;
  }
  await Promise.all(Array.from({ length: jobs }, () => drive(take, report, leftOut)));
}

function drive(
  take: () => number | undefined,
  report: (result: RunResult) => void,
  leftOut: readonly Rule[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { workerData: leftOut });
    const feed = (): void => {
      const seed = take();
      if (seed === undefined) void worker.terminate().then(() => resolve());
      else worker.postMessage(seed);
    };
    worker.on("message", (result: RunResult) => {
      report(result);
      feed();
    });
    worker.on("error", reject);
    feed();
  });
}
