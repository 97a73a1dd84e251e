import { CHUNK_BYTES } from "../limits.ts";

export interface InFlightLimits {
  readonly reviews: number;
  readonly bytes: number;
}

/** What one review holds, from its headers to its answer. */
export interface InFlightSlot {
  /** A chunk of the body is to be kept; may be what makes this review, or slower ones, be given up. */
  keep(chunkBytes: number): void;
  /** The body is in, or known to be of no use: from now on the place is held until {@link leave}. */
  arrived(): void;
  /** Idempotent, and nothing for one that was given up. */
  leave(): void;
}

/**
 * Bounds the reviews under way, by number and by the bytes of their bodies. Whoever reaches the port can begin any number of them and
 * leave them half sent, where an apiserver sends all of one at once. So the review that has been coming in for the longest is given up for
 * the next one: a body that comes promptly is in before its turn, whatever others do.
 */
export class InFlightLimiter {
  readonly #limits: InFlightLimits;
  /** In the order of their headers, each with what gives it up. */
  readonly #arriving = new Map<InFlightSlot, () => void>();
  #reviews = 0;
  #bytes = 0;

  constructor(limits: InFlightLimits) {
    this.#limits = limits;
  }

  /** Of all bodies, with what keeping them costs. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Undefined when all places are held by reviews that are in; `givenUp` is called at most once, and before `arrived`. */
  enter(givenUp: () => void): InFlightSlot | undefined {
    if (this.#reviews >= this.#limits.reviews && !this.#giveUpSlowest()) return undefined;
    this.#reviews++;
    let isHeld = true;
    let bytes = 0;
    const place: InFlightSlot = {
      keep: (chunkBytes) => {
        if (!isHeld) return;
        bytes += chunkBytes + CHUNK_BYTES;
        this.#bytes += chunkBytes + CHUNK_BYTES;
        // Ends with this one at the latest.
        while (this.#bytes > this.#limits.bytes && this.#giveUpSlowest());
      },
      arrived: () => this.#arriving.delete(place),
      leave: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#arriving.delete(place);
        this.#reviews--;
        this.#bytes -= bytes;
      },
    };
    this.#arriving.set(place, givenUp);
    return place;
  }

  #giveUpSlowest(): boolean {
    for (const [place, givenUp] of this.#arriving) {
      place.leave();
      givenUp();
      return true;
    }
    return false;
  }
}
