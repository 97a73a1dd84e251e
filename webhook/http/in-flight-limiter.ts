import { LARGE_BODY_BYTES, UNCOUNTED_BYTES_IN_FLIGHT } from "./limits.ts";

/** Counted for each chunk beside its own bytes: a chunk of a single byte takes half a kilobyte of memory. */
export const CHUNK_BYTES = 512;

export interface InFlightLimits {
  readonly requests: number;
  readonly bytes: number;
  /** JSON values of the bodies beyond the first {@link UNCOUNTED_BYTES_IN_FLIGHT}. */
  readonly values: number;
}

/** What one request holds, from its headers to its response. */
export interface InFlightSlot {
  /** Accounts for a chunk of the body, which may evict this request or slower ones. */
  keep(chunkBytes: number): void;
  /** Accounts for the complete body and its values; false where there is no room. A large one may use half of it. */
  weigh(values: number): boolean;
  /** The body is complete, or known to be useless. The slot can no longer be evicted. */
  arrived(): void;
  /** Idempotent. */
  leave(): void;
}

/**
 * Bounds the requests in flight, by number, and by the bytes and values of their bodies. A client can begin any number
 * of requests and leave them half sent, while an apiserver sends each request whole. So a new request evicts the one
 * that has been arriving for the longest; a body that arrives promptly is complete before its turn.
 */
export class InFlightLimiter {
  readonly #limits: InFlightLimits;
  /** Requests whose body is incomplete, oldest headers first, each with the callback that evicts it. */
  readonly #arriving = new Map<InFlightSlot, () => void>();
  #requests = 0;
  #bytes = 0;
  /** Of complete bodies. */
  #waiting = 0;
  #values = 0;

  constructor(limits: InFlightLimits) {
    this.#limits = limits;
  }

  /** Bytes of all bodies, with the overhead of keeping them. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * True when the values of the next body have to be counted. Counting takes a quarter of the time of parsing, so it
   * begins only when many bytes are in flight.
   */
  get countsValues(): boolean {
    return this.#bytes > UNCOUNTED_BYTES_IN_FLIGHT;
  }

  /** Undefined when complete requests hold all slots. `evicted` is called at most once, and only before `arrived`. */
  enter(evicted: () => void): InFlightSlot | undefined {
    if (this.#requests >= this.#limits.requests && !this.#evictSlowest()) return undefined;
    this.#requests++;
    let isHeld = true;
    let bytes = 0;
    let waiting = 0;
    let weight = 0;
    const slot: InFlightSlot = {
      keep: (chunkBytes) => {
        if (!isHeld) return;
        bytes += chunkBytes + CHUNK_BYTES;
        this.#bytes += chunkBytes + CHUNK_BYTES;
        // The loop ends with the eviction of this request at the latest.
        while (this.#bytes > this.#limits.bytes && this.#evictSlowest());
      },
      weigh: (values) => {
        // A few pods of megabytes, whose deletions wait for their owner, must not take the room of all others.
        const parts = bytes > LARGE_BODY_BYTES ? 2 : 1;
        const isFull = parts * (this.#values + values) > this.#limits.values;
        if (!isHeld || isFull || parts * (this.#waiting + bytes) > this.#limits.bytes) return false;
        weight = values;
        waiting = bytes;
        this.#values += values;
        this.#waiting += bytes;
        return true;
      },
      arrived: () => this.#arriving.delete(slot),
      leave: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#arriving.delete(slot);
        this.#requests--;
        this.#bytes -= bytes;
        this.#waiting -= waiting;
        this.#values -= weight;
      },
    };
    this.#arriving.set(slot, evicted);
    return slot;
  }

  #evictSlowest(): boolean {
    for (const [slot, evicted] of this.#arriving) {
      slot.leave();
      evicted();
      return true;
    }
    return false;
  }
}
