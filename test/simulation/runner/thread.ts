import { Worker } from "node:worker_threads";
import type { Rule } from "../ablation/rules.ts";
import type { Played } from "../directed/scenes.ts";
import type { RunOptions, RunResult } from "../world/run.ts";
import type { Task, ThreadData } from "./worker.ts";

/** Most objects of a run are garbage at once. A larger young generation makes its collections rarer. */
const YOUNG_GENERATION_MB = 64;

/** A thread that runs seeds and scenes, one at a time. Its code lacks the rules of `leftOut`. */
export class SimulationThread implements AsyncDisposable {
  readonly #worker: Worker;

  constructor(leftOut: readonly Rule[] = []) {
    const workerData: ThreadData = { leftOut };
    const resourceLimits = { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB };
    this.#worker = new Worker(new URL("./worker.ts", import.meta.url), { workerData, execArgv: [], resourceLimits });
  }

  seed(seed: number, options: RunOptions = {}): Promise<RunResult> {
    return this.#perform({ kind: "seed", seed, options });
  }

  /** Plays the scene at this index of `SCENES`. */
  scene(scene: number): Promise<Played> {
    return this.#perform({ kind: "scene", scene });
  }

  /** Resolves to true when random orders of events break the accounting. */
  orders(seed: number, minReadySeconds: number, runs: number): Promise<boolean> {
    return this.#perform({ kind: "orders", seed, minReadySeconds, runs });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }

  #perform<T>(task: Task): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#worker.removeAllListeners().once("message", resolve).once("error", reject);
      this.#worker.postMessage(task);
    });
  }
}
