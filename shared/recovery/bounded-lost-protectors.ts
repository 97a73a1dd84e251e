import type { PodProtector } from "../schema/podprotector.ts";

/** Characters that each lost protector counts for at least. */
const LEAST_WEIGHT = 4_096;
/** Room for 50,000 protectors, more than any core is meant for, or for fewer large ones. */
const MAX_WEIGHT = 50_000 * LEAST_WEIGHT;

interface Lost {
  /** `namespace/name`. */
  readonly key: string;
  readonly object: PodProtector;
}

interface Group {
  readonly name: string;
  readonly keys: Map<string, number>;
  weight: number;
}

/** Of the fields that users write, not podseidon. */
function weightOf({ object: { metadata, spec } }: Lost): number {
  return Math.max(LEAST_WEIGHT, JSON.stringify([metadata, spec]).length);
}

/**
 * Lost protectors by key, within a bound. A client that makes and deletes protectors without end, or forges a backup of
 * many, must not take the room of others: the group that has most gives way.
 */
export class BoundedLostProtectors<T extends Lost> {
  readonly #onOverflow: ((lost: T) => void) | undefined;
  readonly #lost = new Map<string, T>();
  /** The weights of these in each group, and the group of each. */
  readonly #groups = new Map<string, Group>();
  readonly #groupOf = new Map<string, Group>();
  #weight = 0;

  /** `onOverflow`: this lost protector was dropped, or not taken. */
  constructor(onOverflow?: (lost: T) => void) {
    this.#onOverflow = onOverflow;
  }

  get size(): number {
    return this.#lost.size;
  }

  values(): Iterable<T> {
    return this.#lost.values();
  }

  get(key: string): T | undefined {
    return this.#lost.get(key);
  }

  /**
   * False when there is no room. A version that does not fit leaves the one before. The group is a namespace, or the
   * cell that claims that these are lost.
   */
  add(protector: T, group = protector.object.metadata.namespace ?? ""): boolean {
    const { key } = protector;
    const groupBefore = this.#groupOf.get(key);
    const before = this.remove(key);
    const own = this.#groups.get(group) ?? { name: group, keys: new Map<string, number>(), weight: 0 };
    const weight = weightOf(protector);
    while (this.#weight + weight > MAX_WEIGHT) {
      const heaviest = this.#groups.values().reduce((one, other) => (other.weight > one.weight ? other : one), own);
      const [first] = heaviest.keys.keys();
      const given = first === undefined ? undefined : this.#lost.get(first);
      if (given === undefined || heaviest.weight <= own.weight + weight) {
        if (before === undefined) this.#onOverflow?.(protector);
        else this.#put(before, groupBefore ?? own, weightOf(before));
        return false;
      }
      this.remove(given.key);
      this.#onOverflow?.(given);
    }
    this.#put(protector, own, weight);
    return true;
  }

  #put(protector: T, group: Group, weight: number): void {
    const { key } = protector;
    this.#lost.set(key, protector);
    this.#groups.set(group.name, group);
    this.#groupOf.set(key, group);
    group.keys.set(key, weight);
    group.weight += weight;
    this.#weight += weight;
  }

  remove(key: string): T | undefined {
    const found = this.#lost.get(key);
    const group = this.#groupOf.get(key);
    const weight = group?.keys.get(key);
    if (group === undefined || weight === undefined) return undefined;
    this.#lost.delete(key);
    this.#groupOf.delete(key);
    group.keys.delete(key);
    group.weight -= weight;
    this.#weight -= weight;
    if (group.keys.size === 0) this.#groups.delete(group.name);
    return found;
  }
}
