/**
 * The states that were met: 64 bits of a hash of each, and the state that it was found from, 20 bytes for a state. The
 * threads of a search share one table.
 */

/** The table has this many slots for each state that there is room for. */
const SLOTS = 2;

export interface TextHash {
  low: number;
  high: number;
}

/** Two 32-bit hashes of a text, in `out`. */
export function hashText(text: string, out: TextHash): TextHash {
  let low = 0xdeadbeef;
  let high = 0x41c6ce57;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    low = Math.imul(low ^ code, 2654435761);
    low ^= low >>> 15;
    high = Math.imul(high ^ code, 1597334677);
    high ^= high >>> 13;
  }
  out.low = Math.imul(low ^ (low >>> 16), 2246822507) | 0;
  out.high = Math.imul(high ^ (high >>> 16), 3266489909) | 0;
  return out;
}

/** What the threads share. */
export interface VisitedMemory {
  /** The number of states, in its first element. */
  readonly size: SharedArrayBuffer;
  readonly low: SharedArrayBuffer;
  readonly high: SharedArrayBuffer;
  readonly parent: SharedArrayBuffer;
  readonly slots: SharedArrayBuffer;
}

/** `capacity` is a power of two. */
export function visitedMemory(capacity: number): VisitedMemory {
  const words = (count: number): SharedArrayBuffer => new SharedArrayBuffer(count * Int32Array.BYTES_PER_ELEMENT);
  return {
    size: words(1),
    low: words(capacity),
    high: words(capacity),
    parent: words(capacity),
    slots: words(capacity * SLOTS),
  };
}

export class Visited {
  readonly #size: Int32Array;
  readonly #low: Int32Array;
  readonly #high: Int32Array;
  readonly #parent: Int32Array;
  /** Numbers of states from 1; 0 is free. */
  readonly #slots: Int32Array;

  constructor({ size, low, high, parent, slots }: VisitedMemory) {
    this.#size = new Int32Array(size);
    this.#low = new Int32Array(low);
    this.#high = new Int32Array(high);
    this.#parent = new Int32Array(parent);
    this.#slots = new Int32Array(slots);
  }

  /** How many numbers are taken. Where two threads find a state at one moment, a number stays without a state. */
  get size(): number {
    return Atomics.load(this.#size, 0);
  }

  get isFull(): boolean {
    return this.size >= this.#low.length - this.#low.length / 8;
  }

  /** The number of a new state, which was found from the state number `parent`; undefined when it is known. */
  add({ low, high }: TextHash, parent: number): number | undefined {
    const mask = this.#slots.length - 1;
    let slot = (low ^ Math.imul(high, 31)) & mask;
    for (let mine = -1; ; ) {
      const known = Atomics.load(this.#slots, slot);
      if (known !== 0) {
        if (this.#low[known - 1] === low && this.#high[known - 1] === high) return undefined;
        slot = (slot + 1) & mask;
        continue;
      }
      if (mine < 0) mine = this.#take(low, high, parent);
      if (Atomics.compareExchange(this.#slots, slot, 0, mine + 1) === 0) return mine;
    }
  }

  #take(low: number, high: number, parent: number): number {
    const state = Atomics.add(this.#size, 0, 1);
    this.#low[state] = low;
    this.#high[state] = high;
    this.#parent[state] = parent;
    return state;
  }

  /** The hashes of the states on the way to this one, the first state first. */
  pathTo(state: number): readonly TextHash[] {
    const path: TextHash[] = [];
    for (let at = state; ; at = this.#parent[at] ?? 0) {
      path.unshift({ low: this.#low[at] ?? 0, high: this.#high[at] ?? 0 });
      if (at === 0) return path;
    }
  }
}
