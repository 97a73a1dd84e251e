/** The randomness of one seed: the same seed gives the same draws on any machine. */
import type { Randomness } from "../../../shared/runtime/clock.ts";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** Marsaglia's xorshift on 32 bits. A multiplicative hash of the seed makes neighbouring seeds differ at once. */
export class Chance implements Randomness {
  #state: number;

  constructor(seed: number) {
    this.#state = (Math.imul(seed + 1, 0x9e3779b1) ^ 0x5bd1e995) >>> 0 || 1;
    for (let round = 0; round < 8; round += 1) this.fraction();
  }

  fraction(): number {
    let x = this.#state;
    x ^= x << 13;
    x >>>= 0;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x >>> 0;
    return this.#state / 0x1_0000_0000;
  }

  token(): string {
    let text = "";
    for (let index = 0; index < 8; index += 1) text += ALPHABET[Math.floor(this.fraction() * 64)];
    return text;
  }

  /** An integer in [from, to]. */
  between(from: number, to: number): number {
    return from + Math.floor(this.fraction() * (to - from + 1));
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  /** One of `items`; throws when the list is empty. */
  pick<T>(items: readonly T[]): T {
    const item = items[Math.floor(this.fraction() * items.length)];
    if (item === undefined) throw new Error("nothing to pick from");
    return item;
  }

  /** Exponentially distributed with the given mean, at most 20 times it. */
  exponential(mean: number): number {
    return Math.min(-Math.log(1 - this.fraction()) * mean, 20 * mean);
  }

  /** A generator of its own, so that the draws of one part do not shift those of another. */
  fork(): Chance {
    return new Chance(Math.floor(this.fraction() * 0x7fffffff));
  }
}
