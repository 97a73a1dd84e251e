import type { Ports, Timer } from "../../shared/runtime/clock.ts";
import type { PendingRequest, ProtectorOutcome } from "./pending.ts";

const ORDER: Readonly<Record<PendingRequest["kind"], number>> = { reassert: 0, rollBack: 1, reserve: 2 };

/** Re-assertions first, then what frees quota, then the earliest deadline. */
function byUrgency(a: PendingRequest, b: PendingRequest): number {
  return ORDER[a.kind] - ORDER[b.kind] || a.deadlineMs - b.deadlineMs;
}

/** What waits for an outcome at one protector. Each is settled once, at its deadline at the latest (L4). */
export class PendingQueue {
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #expire: (work: PendingRequest) => void;
  readonly #waiting = new Map<PendingRequest, Timer>();

  /** `expire` is called for what has reached its deadline, and has to settle it. */
  constructor(ports: Pick<Ports, "clock" | "timers">, expire: (work: PendingRequest) => void) {
    this.#ports = ports;
    this.#expire = expire;
  }

  get size(): number {
    return this.#waiting.size;
  }

  add(work: PendingRequest): void {
    const leftMs = work.deadlineMs - this.#ports.clock.monotonicMs();
    this.#waiting.set(
      work,
      this.#ports.timers.after(leftMs, () => this.#expire(work)),
    );
  }

  /** Gives the outcome to whoever waits for it; does nothing when that happened before. */
  settle(work: PendingRequest, outcome: ProtectorOutcome): void {
    const timer = this.#waiting.get(work);
    if (timer === undefined) return;
    timer.cancel();
    this.#waiting.delete(work);
    work.settle(outcome);
  }

  settleAll(outcome: ProtectorOutcome): void {
    for (const work of this.all()) this.settle(work, outcome);
  }

  /** A copy, so that settling does not disturb the walk. */
  all(): PendingRequest[] {
    return [...this.#waiting.keys()];
  }

  /** The most urgent ones. */
  mostUrgent(limit: number): PendingRequest[] {
    return this.all().sort(byUrgency).slice(0, limit);
  }

  /** Monotonic; infinite when nothing waits. */
  get earliestDeadlineMs(): number {
    let earliestMs = Number.POSITIVE_INFINITY;
    for (const { deadlineMs } of this.#waiting.keys()) earliestMs = Math.min(earliestMs, deadlineMs);
    return earliestMs;
  }

  get latestDeadlineMs(): number {
    let latestMs = Number.NEGATIVE_INFINITY;
    for (const { deadlineMs } of this.#waiting.keys()) latestMs = Math.max(latestMs, deadlineMs);
    return latestMs;
  }

  /** Whether everything that waits arrived after `timeMs`. */
  allArrivedAfter(timeMs: number): boolean {
    for (const { arrivedMs } of this.#waiting.keys()) if (arrivedMs <= timeMs) return false;
    return true;
  }
}
