import { Backoff } from "../../shared/runtime/backoff.ts";
import type { Clock, Randomness } from "../../shared/runtime/clock.ts";

/** Calls in a row without an answer, after which no more are made for a while. */
export const FAILURES_TO_OPEN = 5;
/** How long then; longer each time that the trial call fails as well. */
const OPEN = { initialMs: 2_000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * Stops asking a server that does not answer: while it is open every question is refused at once, instead of after a timeout that
 * also keeps a place among the calls. After a while one question at a time goes through; its answer closes the circuit.
 */
export class Circuit {
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

  /** Milliseconds until the next trial; 0 when a call may be made, or a trial is under way. */
  get waitMs(): number {
    return this.#openUntilMs === undefined ? 0 : Math.max(0, this.#openUntilMs - this.#clock.monotonicMs());
  }

  /** Whether a call may be made now; one that may must be told how it ended. */
  enter(): boolean {
    if (this.#openUntilMs === undefined) return true;
    if (this.#isTrying || this.waitMs > 0) return false;
    this.#isTrying = true;
    return true;
  }

  answered(): void {
    this.#failures = 0;
    this.#openUntilMs = undefined;
    this.#isTrying = false;
    this.#backoff.reset();
  }

  failed(): void {
    this.#failures++;
    // Of those that were under way when it opened, only the trial says anything new.
    if (this.isOpen && !this.#isTrying) return;
    this.#isTrying = false;
    if (this.#failures < FAILURES_TO_OPEN) return;
    this.#openUntilMs = this.#clock.monotonicMs() + this.#backoff.nextMs();
  }
}
