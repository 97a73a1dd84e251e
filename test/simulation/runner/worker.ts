/** The body of a simulation thread: runs the seeds and scenes that it is sent, with all rules or without some. */
import { parentPort, workerData } from "node:worker_threads";
import { patchSources } from "../ablation/patch-sources.ts";
import type { Rule } from "../ablation/rules.ts";
import type { Played } from "../directed/scenes.ts";
import type { RunOptions, RunResult } from "../world/run.ts";

export type Task =
  | { readonly kind: "seed"; readonly seed: number; readonly options: RunOptions }
  /** `scene` is an index of `SCENES`. */
  | { readonly kind: "scene"; readonly scene: number }
  /** Random orders of events (`accounting/orders.ts`). */
  | { readonly kind: "orders"; readonly seed: number; readonly minReadySeconds: number; readonly runs: number };

export interface ThreadData {
  readonly leftOut: readonly Rule[];
}

const { leftOut }: ThreadData = workerData;
// Before any shipping code is loaded.
if (leftOut.length > 0) patchSources(leftOut);

async function perform(task: Task): Promise<RunResult | Played | boolean> {
  if (task.kind === "seed") {
    const { runSeed } = await import("../world/run.ts");
    return runSeed(task.seed, task.options);
  }
  if (task.kind === "orders") {
    const { isBroken } = await import("../accounting/orders.ts");
    return isBroken(task.seed, task.minReadySeconds, task.runs);
  }
  const { play, SCENES } = await import("../directed/scenes.ts");
  const scene = SCENES[task.scene];
  if (scene === undefined) throw new Error(`there is no scene ${task.scene}`);
  return play(scene);
}

parentPort?.on("message", (task: Task) => {
  void perform(task).then((result) => parentPort?.postMessage(result));
});
