import type { Ports } from "../../shared/runtime/clock.ts";

/** Places for calls at once; whoever finds none waits in line for a while, and a line has an end. */
export class Places {
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #maxWaiting: number;
  #free: number;
  readonly #line = new Set<() => void>();

  constructor(ports: Pick<Ports, "clock" | "timers">, places: number, maxWaiting: number) {
    this.#ports = ports;
    this.#free = places;
    this.#maxWaiting = maxWaiting;
  }

  get waiting(): number {
    return this.#line.size;
  }

  /** Resolves with whether a place was had before `deadlineMs` (monotonic); one that was had must be given back. */
  take(deadlineMs: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free--;
      return Promise.resolve(true);
    }
    if (this.#line.size >= this.#maxWaiting) return Promise.resolve(false);
    return new Promise((resolve) => {
      const next = (): void => {
        timer.cancel();
        resolve(true);
      };
      const timer = this.#ports.timers.after(Math.max(0, deadlineMs - this.#ports.clock.monotonicMs()), () => {
        this.#line.delete(next);
        resolve(false);
      });
      this.#line.add(next);
    });
  }

  giveBack(): void {
    const [next] = this.#line;
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#line.delete(next);
    next();
  }
}
