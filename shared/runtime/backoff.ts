import type { Randomness } from "./clock.ts";

export interface BackoffOptions {
  /** Longest first delay. */
  readonly initialMs: number;
  /** Longest delay. */
  readonly maxMs: number;
  /** Growth from one delay to the next. Default 2. */
  readonly factor?: number;
  /** Random share of each delay: a delay of `d` is drawn from [d * (1 - jitter), d]. Default 0.5. */
  readonly jitter?: number;
}

/**
 * Delays between failed tries: growing, capped, and random, so that many clients of one failed server don't retry at
 * the same time. The jitter only shortens a delay, so that `maxMs` holds.
 */
export class Backoff {
  readonly #initialMs: number;
  readonly #maxMs: number;
  readonly #factor: number;
  readonly #jitter: number;
  readonly #random: Pick<Randomness, "fraction">;
  #failures = 0;
  #ceilingMs: number;

  /** Throws a RangeError for options whose delays could be zero or shrink. */
  constructor(options: BackoffOptions, random: Pick<Randomness, "fraction">) {
    const { initialMs, maxMs, factor = 2, jitter = 0.5 } = options;
    if (!(initialMs > 0 && maxMs >= initialMs && factor >= 1 && jitter >= 0 && jitter <= 1)) {
      throw new RangeError(
        `backoff needs 0 < initialMs <= maxMs, factor >= 1 and jitter in [0, 1]: ${JSON.stringify(options)}`,
      );
    }
    this.#initialMs = initialMs;
    this.#maxMs = maxMs;
    this.#factor = factor;
    this.#jitter = jitter;
    this.#random = random;
    this.#ceilingMs = initialMs;
  }

  /** How often `nextMs` was called since the last `reset`. */
  get failures(): number {
    return this.#failures;
  }

  /** Returns the delay before the next try, in milliseconds; each call counts as one failure. */
  nextMs(): number {
    const delayMs = this.#ceilingMs * (1 - this.#jitter * this.#random.fraction());
    this.#failures += 1;
    this.#ceilingMs = Math.min(this.#maxMs, this.#ceilingMs * this.#factor);
    return delayMs;
  }

  /** The next failure starts with the first delay again. */
  reset(): void {
    this.#failures = 0;
    this.#ceilingMs = this.#initialMs;
  }
}
