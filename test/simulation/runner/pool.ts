/** Many seeds over several threads, in order of completion. */
import { Worker } from "node:worker_threads";
import { type RunResult, runSeed } from "../world/run.ts";

/** Runs seeds `from` to `from + seeds - 1`; `done` may return false to stop. With one job everything runs in this thread. */
export async function runSeeds(
  range: { readonly from: number; readonly seeds: number; readonly jobs: number },
  done: (result: RunResult) => boolean,
): Promise<void> {
  const end = range.from + range.seeds;
  let next = range.from;
  let isStopped = false;
  const take = (): number | undefined => (isStopped || next >= end ? undefined : next++);
  const report = (result: RunResult): void => {
    if (!isStopped && !done(result)) isStopped = true;
  };
  if (range.jobs <= 1) {
    for (let seed = take(); seed !== undefined; seed = take()) report(await runSeed(seed));
    return;
  }
  await Promise.all(Array.from({ length: range.jobs }, () => drive(take, report)));
}

function drive(take: () => number | undefined, report: (result: RunResult) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./worker.ts", import.meta.url));
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
