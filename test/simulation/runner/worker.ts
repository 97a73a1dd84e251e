/** One thread of `npm run simulate`: runs the seeds that it is sent. */
import { parentPort, workerData } from "node:worker_threads";
import type { Rule } from "../../../shared/decide/rules.ts";
import { runSeed } from "../world/run.ts";
import type { FaultKind } from "../world/scenario.ts";

export interface SeedWorkerOptions {
  readonly leftOut: readonly Rule[];
  readonly trace: boolean;
  readonly always: ReadonlySet<FaultKind>;
}

const { leftOut, trace, always }: SeedWorkerOptions = workerData;
if (leftOut.length > 0) globalThis.__ABLATION__ = new Set(leftOut);

parentPort?.on("message", (seed: number) => {
  void runSeed(seed, { trace, always }).then((result) => parentPort?.postMessage(result));
});
