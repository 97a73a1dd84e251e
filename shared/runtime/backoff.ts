import type { Randomness } from "./clock.ts";

export interface BackoffOptions {
  /** Upper bound of the first delay. */
  readonly initialMs: number;
  /** No delay is longer. */
  readonly maxMs: number;
  /** Growth from one delay to the next. Default 2. */
  readonly factor?: number;
  /** Share of each delay that is random: a delay of `d` is drawn from [d * (1 - jitter), d]. Default 0.5. */
  readonly jitter?: number;
}

/**
 * Delays between tries that fail: growing, capped, and spread, so that many clients of one failed server don't come back
 * in step. The jitter only shortens, so that `maxMs` holds.
 */
export class Backoff {
  readonly #initialMs: number;
  readonly #maxMs: number;
  readonly #factor: number;
  readonly #jitter: number;
  readonly #random: Pick<Randomness, "fraction">;
  #failures = 0;
  #ceilingMs: number;

  /** Throws a RangeError for options that could spin or shrink. */
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

  /** The delay before the next try, in milliseconds; each call counts as one failure. */
  nextMs(): number {
    const delayMs = this.#ceilingMs * (1 - this.#jitter * this.#random.fraction());
    this.#failures += 1;
    this.#ceilingMs = Math.min(this.#maxMs, this.#ceilingMs * this.#factor);
    return delayMs;
  }

  /** After health: the next failure starts small again. */
  reset(): void {
    this.#failures = 0;
    this.#ceilingMs = this.#initialMs;
  }
}
