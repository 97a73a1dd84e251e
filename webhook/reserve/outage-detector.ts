import type { Clock } from "../../shared/runtime/clock.ts";
import { OUTAGE_MIN_MS, RECOVERY_MS } from "../limits.ts";

/**
 * Whether a core cluster has just come back. A core that was out of reach may have been restored to an older state (design 5.4), and
 * only those who wrote after that state was taken can notice: the aggregators, and the replicas whose reservations are lost. Until
 * they had the time to say so, no replica makes new reservations. A single connection that breaks is no outage: a restore takes longer.
 */
export class OutageDetector {
  readonly #clock: Clock;
  #lastSuccessMs: number | undefined;
  #failingSinceMs: number | undefined;
  #recoveredMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A call or a stream failed; `silent` when nothing was heard at all, so that the outage may be as old as the last success. */
  failed(silent: boolean): void {
    const nowMs = this.#clock.monotonicMs();
    this.#failingSinceMs ??= silent ? (this.#lastSuccessMs ?? nowMs) : nowMs;
  }

  /** The core has answered. */
  succeeded(): void {
    const nowMs = this.#clock.monotonicMs();
    const sinceMs = this.#failingSinceMs;
    this.#failingSinceMs = undefined;
    this.#lastSuccessMs = nowMs;
    if (sinceMs !== undefined && nowMs - sinceMs >= OUTAGE_MIN_MS) this.#recoveredMs = nowMs;
  }

  /** There may have been an outage that nobody here has seen, and the core has answered since. */
  passed(): void {
    this.succeeded();
    this.#recoveredMs = this.#clock.monotonicMs();
  }

  /** True until those who know more had the time to put the cells on hold. */
  get recovering(): boolean {
    return this.#clock.monotonicMs() - this.#recoveredMs < RECOVERY_MS;
  }
}
