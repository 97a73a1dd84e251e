import { Backoff } from "../../shared/runtime/backoff.ts";
import type { Clock, Randomness } from "../../shared/runtime/clock.ts";

/** Failed calls in a row that open the circuit. */
export const FAILURES_TO_OPEN = 5;
/** How long the circuit stays open; longer with each trial call that fails. */
const OPEN = { initialMs: 2_000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * Stops calls to a server that does not answer: an open circuit rejects a call at once, where a timeout would also hold
 * a permit. After a while one trial call at a time is made, and its response closes the circuit.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  #failures = 0;
  #openUntilMs: number | undefined;
  #isTrying = false;

  constructor(clock: Clock, random: Pick<Randomness, "fraction">) {
    this.#clock = clock;
    this.#backoff = new Backoff(OPEN, random);
  }

  get isOpen(): boolean {
    return this.#openUntilMs !== undefined;
  }

  /** Milliseconds until the next trial; 0 when a call may be made, or a trial is in flight. */
  get waitMs(): number {
    return this.#openUntilMs === undefined ? 0 : Math.max(0, this.#openUntilMs - this.#clock.monotonicMs());
  }

  /** Whether a call may be made now. The caller has to report how the call ended. */
  enter(): boolean {
    if (this.#openUntilMs === undefined) return true;
    if (this.#isTrying || this.waitMs > 0) return false;
    this.#isTrying = true;
    return true;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#openUntilMs = undefined;
    this.#isTrying = false;
    this.#backoff.reset();
  }

  failed(): void {
    this.#failures++;
    // Of the calls that were in flight when the circuit opened, only the trial counts.
    if (this.isOpen && !this.#isTrying) return;
    this.#isTrying = false;
    if (this.#failures < FAILURES_TO_OPEN) return;
    this.#openUntilMs = this.#clock.monotonicMs() + this.#backoff.nextMs();
  }
}
