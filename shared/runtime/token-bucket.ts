import type { Clock } from "./clock.ts";

interface TokenBucketOptions {
  /** Tokens at the start, and the maximum of tokens. */
  readonly burst: number;
  readonly perSecond: number;
}

/** Limits a rate to `burst` at once, and to `perSecond` in the long run. */
export class TokenBucket {
  readonly #burst: number;
  readonly #perMs: number;
  readonly #clock: Pick<Clock, "monotonicMs">;
  #tokens: number;
  #updatedMs: number;

  constructor({ burst, perSecond }: TokenBucketOptions, clock: Pick<Clock, "monotonicMs">) {
    this.#burst = burst;
    this.#perMs = perSecond / 1000;
    this.#clock = clock;
    this.#tokens = burst;
    this.#updatedMs = clock.monotonicMs();
  }

  /** Takes a token if there is one. */
  tryTake(): boolean {
    this.#refill();
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Milliseconds until there is a token; 0 when there is one. */
  waitMs(): number {
    this.#refill();
    return this.#tokens >= 1 ? 0 : Math.ceil((1 - this.#tokens) / this.#perMs);
  }

  #refill(): void {
    const nowMs = this.#clock.monotonicMs();
    this.#tokens = Math.min(this.#burst, this.#tokens + (nowMs - this.#updatedMs) * this.#perMs);
    this.#updatedMs = nowMs;
  }
}
