/**
 * The body of a simulation process: runs the seeds and scenes that it is sent, without the rules that its arguments
 * name.
 */
import { enableCompileCache, flushCompileCache } from "node:module";
import { join } from "node:path";
import { root } from "../../../scripts/root.ts";
import { patchSources } from "../ablation/patch-sources.ts";
import { RULES, type Rule } from "../ablation/rules.ts";
import type { Played } from "../directed/scenes.ts";
import type { RunOptions, RunResult } from "../world/run.ts";

export type Task =
  | { readonly kind: "seed"; readonly seed: number; readonly options: RunOptions }
  /** `scene` is an index of `SCENES`. */
  | { readonly kind: "scene"; readonly scene: number }
  /** Random orders of events (`accounting/orders.ts`). */
  | { readonly kind: "orders"; readonly seed: number; readonly minReadySeconds: number; readonly runs: number };

// To read and compile the modules takes as long as a seed. Node compares each module with what the cache was made of.
enableCompileCache(join(root, "node_modules", ".cache", "simulation"));
const leftOut = process.argv.slice(2).filter((name): name is Rule => name in RULES);
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

process.on("message", (task: Task) => {
  void perform(task).then((result) => {
    // The process ends by a kill, before which nothing would be written.
    flushCompileCache();
    process.send?.(result);
  });
});
