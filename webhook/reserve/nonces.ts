import type { Randomness } from "../../shared/runtime/clock.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TAG_LENGTH = 4;
const COUNTER_LENGTH = 4;
const COUNTER_RANGE = DIGITS.length ** COUNTER_LENGTH;

/** Represents a writer without nonces: an upstream webhook. */
export const UNKNOWN_WRITER = "";

/**
 * The nonces of one replica: 8 characters of [A-Za-z0-9_-]. The first half is the replica's tag, so that an object
 * shows which replica wrote each reservation. The second half is a counter with a random start, unique among 16 million
 * requests.
 */
export class Nonces {
  readonly tag: string;
  #next: number;

  constructor(random: Randomness) {
    this.tag = random.token().slice(0, TAG_LENGTH);
    this.#next = Math.floor(random.fraction() * COUNTER_RANGE);
  }

  next(): string {
    let rest = this.#next;
    this.#next = (this.#next + 1) % COUNTER_RANGE;
    let counter = "";
    for (let digit = 0; digit < COUNTER_LENGTH; digit++) {
      counter += DIGITS.charAt(rest % DIGITS.length);
      rest = Math.floor(rest / DIGITS.length);
    }
    return this.tag + counter;
  }
}

/** True when the replica of `tag` made the nonce. */
export function isNonceOf(nonce: string, tag: string): boolean {
  return nonce.startsWith(tag);
}

function* newestNonces({ status }: PodProtector): Generator<string> {
  for (const { admissionHistory } of status?.cells ?? []) {
    for (const { nonce } of admissionHistory?.buckets ?? []) {
      if (nonce !== undefined) yield nonce.slice(nonce.lastIndexOf(",") + 1);
    }
  }
}

/** The tag of the replica whose reservations are new in `after`; {@link UNKNOWN_WRITER} when no nonce is new. */
export function writerOf(before: PodProtector, after: PodProtector): string {
  const known = new Set(newestNonces(before));
  let writer = UNKNOWN_WRITER;
  for (const nonce of newestNonces(after)) if (!known.has(nonce)) writer = nonce.slice(0, TAG_LENGTH);
  return writer;
}
