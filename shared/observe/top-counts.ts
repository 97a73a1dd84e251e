/**
 * Counts the most frequent names separately, and all others together. So the number of names in a metric is bounded,
 * even if a caller chooses the names, and a quiet name makes room for an active one.
 */

/** Factor of each rank at each settlement: a name that is quiet for some twenty scrapes gives way to any other. */
const DECAY = 0.85;
/**
 * A name without a place needs this many times the rank of one with a place, so that two names don't swap at each
 * scrape.
 */
const HEAD_START = 2;
/** Names that are followed for each place. Further names count as the rest. */
const FOLLOWED_PER_PLACE = 4;
/** Below this rank, a name without a place is forgotten. */
const FORGOTTEN_BELOW = 0.5;

interface Entry {
  rank: number;
  hasPlace: boolean;
  readonly pending: Map<string, number>;
}

/** The count of one name, or of the rest, since the last settlement, for one kind. */
interface TopCount {
  /** Undefined for the rest. */
  readonly name: string | undefined;
  readonly kind: string;
  readonly by: number;
}

export interface Settled {
  readonly counts: readonly TopCount[];
  /** Names that have lost their place. Their earlier counts stay where they were counted. */
  readonly gone: readonly string[];
}

export class TopCounts {
  readonly #places: number;
  readonly #entries = new Map<string, Entry>();
  readonly #rest = new Map<string, number>();

  constructor(places: number) {
    this.#places = places;
  }

  /** Counts `name` once, as one of its `kind`. */
  add(name: string, kind: string): void {
    let entry = this.#entries.get(name);
    if (entry === undefined && this.#entries.size < this.#places * FOLLOWED_PER_PLACE) {
      entry = { rank: 0, hasPlace: false, pending: new Map() };
      this.#entries.set(name, entry);
    }
    const counts = entry?.pending ?? this.#rest;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }

  /** Gives the places to the names with the highest recent counts, and returns the counts since the last call. */
  settle(): Settled {
    const gone: string[] = [];
    const counts: TopCount[] = [];
    for (const entry of this.#entries.values()) {
      entry.rank = entry.rank * DECAY + sum(entry.pending.values());
    }
    const ranked = [...this.#entries].sort(([, one], [, other]) => standing(other) - standing(one));
    for (const [index, [name, entry]] of ranked.entries()) {
      const hadPlace = entry.hasPlace;
      entry.hasPlace = index < this.#places;
      if (hadPlace && !entry.hasPlace) gone.push(name);
      if (entry.hasPlace) counts.push(...countsOf(name, entry.pending));
      else this.#addToRest(entry.pending);
      entry.pending.clear();
      if (!entry.hasPlace && entry.rank < FORGOTTEN_BELOW) this.#entries.delete(name);
    }
    counts.push(...countsOf(undefined, this.#rest));
    this.#rest.clear();
    return { counts, gone };
  }

  #addToRest(pending: ReadonlyMap<string, number>): void {
    for (const [kind, by] of pending) this.#rest.set(kind, (this.#rest.get(kind) ?? 0) + by);
  }
}

function standing({ rank, hasPlace }: Entry): number {
  return hasPlace ? rank * HEAD_START : rank;
}

function countsOf(name: string | undefined, pending: ReadonlyMap<string, number>): TopCount[] {
  return [...pending].map(([kind, by]) => ({ name, kind, by }));
}

function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
