import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Rule } from "../ablation/rules.ts";
import type { Played } from "../directed/scenes.ts";
import type { RunOptions, RunResult } from "../world/run.ts";
import type { Task } from "./worker.ts";

const WORKER = fileURLToPath(new URL("./worker.ts", import.meta.url));
/** Most objects of a run are garbage at once. A larger young generation makes its collections rarer. */
const EXEC_ARGV = ["--max-semi-space-size=32"];

/**
 * A process that runs seeds and scenes, one at a time. Its code lacks the rules of `leftOut`. It is no thread: Node
 * may crash where one thread ends while another one starts (nodejs/node#56312).
 */
export class SimulationProcess implements AsyncDisposable {
  readonly #child;

  constructor(leftOut: readonly Rule[] = []) {
    this.#child = fork(WORKER, [...leftOut], { serialization: "advanced", execArgv: EXEC_ARGV });
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
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== null || signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }

  #perform<T>(task: Task): Promise<T> {
    return new Promise((resolve, reject) => {
      const ended = (code: number | null, signal: string | null): void =>
        reject(new Error(`the simulation's process ended with ${signal ?? code}: its output says why`));
      this.#child.removeAllListeners().once("message", resolve).once("error", reject).once("exit", ended);
      this.#child.send(task);
    });
  }
}
