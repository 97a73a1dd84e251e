/** One thread of `npm run simulate`: runs the seeds that it is sent. */
import { parentPort } from "node:worker_threads";
import { runSeed } from "../world/run.ts";

parentPort?.on("message", (seed: number) => {
  void runSeed(seed).then((result) => parentPort?.postMessage({ ...result, trace: [] }));
});
