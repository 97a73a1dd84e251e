/** Many seeds over several threads, in order of completion. */
import { Worker } from "node:worker_threads";
import type { Rule } from "../../../shared/decide/rules.ts";
import type { RunResult } from "../world/run.ts";
import type { FaultKind } from "../world/scenario.ts";
import { runWithout } from "./ablate.ts";
import type { SeedWorkerOptions } from "./worker.ts";

/** Most of what a run makes is garbage at once: collections of the young are rarer in a larger space. */
const YOUNG_GENERATION_MB = 64;

export interface Range {
  readonly from: number;
  readonly seeds: number;
  /** Threads; 0: this one. */
  readonly jobs: number;
  /** Beside the violations, what happened. */
  readonly trace?: boolean;
  /** Rules of the design that the shipping code leaves out. */
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
  const report = (result: RunResult): void => {
    if (!isStopped && !done(result)) isStopped = true;
  };
  const { jobs, leftOut = [], trace = false, always = new Set() } = range;
  if (jobs < 1) {
    for (let seed = take(); seed !== undefined; seed = take())
      report(await runWithout(leftOut, seed, { trace, always }));
    return;
  }
  await Promise.all(Array.from({ length: jobs }, () => drive(take, report, { leftOut, trace, always })));
}

function drive(
  take: () => number | undefined,
  report: (result: RunResult) => void,
  workerData: SeedWorkerOptions,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), {
      ...{ workerData, execArgv: [], resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB } },
    });
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
