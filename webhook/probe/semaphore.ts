import type { Ports } from "../../shared/runtime/clock.ts";

/** Bounds the calls in flight, with a bounded queue of callers that wait for a permit. */
export class Semaphore {
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #maxQueued: number;
  #permits: number;
  readonly #allPermits: number;
  readonly #queue = new Set<() => void>();

  constructor(ports: Pick<Ports, "clock" | "timers">, permits: number, maxQueued: number) {
    this.#ports = ports;
    this.#permits = permits;
    this.#allPermits = permits;
    this.#maxQueued = maxQueued;
  }

  /** Nobody has a permit, or waits for one. */
  get isIdle(): boolean {
    return this.#permits === this.#allPermits;
  }

  /** Resolves with whether a permit was acquired before `deadlineMs` (monotonic). */
  acquire(deadlineMs: number): Promise<boolean> {
    if (this.#permits > 0) {
      this.#permits--;
      return Promise.resolve(true);
    }
    if (this.#queue.size >= this.#maxQueued) return Promise.resolve(false);
    return new Promise((resolve) => {
      const acquired = (): void => {
        timer.cancel();
        resolve(true);
      };
      const timer = this.#ports.timers.after(Math.max(0, deadlineMs - this.#ports.clock.monotonicMs()), () => {
        this.#queue.delete(acquired);
        resolve(false);
      });
      this.#queue.add(acquired);
    });
  }

  release(): void {
    const [next] = this.#queue;
    if (next === undefined) {
      this.#permits++;
      return;
    }
    this.#queue.delete(next);
    next();
  }
}
