import type { ProtectorVersion } from "../decide/state/protector-version.ts";
import type { PodProtector } from "../schema/podprotector.ts";
import { isReleased } from "./lost-protector.ts";

/** Characters that each lost protector counts for at least. */
const LEAST_WEIGHT = 4_096;
/** For 50,000 protectors, more than any core is meant for, or fewer that are larger. */
const MAX_WEIGHT = 50_000 * LEAST_WEIGHT;
/** Most versions of one protector: more than the number of cells that are unreachable at the same time. */
const MAX_VARIANTS = 16;

interface LostProtectorIndexOptions {
  /** The release register of the core says that this absent protector has ended. */
  readonly isRecorded: (protector: PodProtector) => boolean;
  /** More protectors are lost than can be kept: this one is kept no longer, so that its pods are not protected. */
  readonly onOverflow?: (lost: ProtectorVersion) => void;
}

interface Group {
  readonly name: string;
  readonly keys: Map<string, number>;
  weight: number;
}

/** Of what anybody but podseidon writes. */
function weightOf({ object: { metadata, spec } }: ProtectorVersion): number {
  return Math.max(LEAST_WEIGHT, JSON.stringify([metadata, spec]).length);
}

/**
 * The last version of each lost protector of one core, by `namespace/name`. This version stays in force. Backups of one
 * protector may differ, because a cell was unreachable when the spec changed, or the core was restored. It is unknown
 * which backup is the last one, so all are in force.
 */
export class LostProtectorIndex {
  readonly #options: LostProtectorIndexOptions;
  readonly #lost = new Map<string, ProtectorVersion>();
  /** The weights of these in each group, and the group of each. */
  readonly #groups = new Map<string, Group>();
  readonly #groupOf = new Map<string, Group>();
  #weight = 0;
  /** Backups whose spec differs from the version above, by `namespace/name`; each has the key `namespace/name#N`. */
  readonly #variants = new Map<string, ProtectorVersion[]>();

  constructor(options: LostProtectorIndexOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#lost.size;
  }

  values(): Iterable<ProtectorVersion> {
    return this.#lost.values();
  }

  /** The lost protector with this `namespace/name`, or its variant with this key. */
  get(key: string): ProtectorVersion | undefined {
    const lost = this.#lost.get(key);
    // Fast path: every admission request calls this, and variants are rare.
    if (lost !== undefined || this.#variants.size === 0) return lost;
    const [name = "", variant] = key.split("#");
    return this.#variants.get(name)?.[Number(variant)];
  }

  isReleased({ object }: ProtectorVersion, isRestored: boolean): boolean {
    return isReleased(object, this.#options.isRecorded(object), isRestored);
  }

  /**
   * Takes a protector that is absent from its core. True when it is now lost, false when it was released, or when there
   * is no room. Whoever makes and deletes protectors without end, or forges a backup of many, must not take the room of
   * others: the group that has most gives way, which is a namespace, or a cell that has backups. A version that does
   * not fit leaves the one before in force.
   */
  add(protector: ProtectorVersion, isRestored: boolean, group = protector.object.metadata.namespace ?? ""): boolean {
    if (this.isReleased(protector, isRestored)) return false;
    const { key } = protector;
    const before = this.#lost.get(key);
    const groupBefore = this.#groupOf.get(key);
    this.#remove(key);
    const own = this.#groups.get(group) ?? { name: group, keys: new Map<string, number>(), weight: 0 };
    const weight = weightOf(protector);
    while (this.#weight + weight > MAX_WEIGHT) {
      const heaviest = [...this.#groups.values()].reduce(
        (one, other) => (other.weight > one.weight ? other : one),
        own,
      );
      const [first] = heaviest.keys.keys();
      const given = first === undefined ? undefined : this.#lost.get(first);
      if (given === undefined || heaviest.weight <= own.weight + weight) {
        if (before === undefined) this.#options.onOverflow?.(protector);
        else this.#put(before, groupBefore ?? own, weightOf(before));
        return false;
      }
      this.#remove(given.key);
      this.#options.onOverflow?.(given);
    }
    this.#put(protector, own, weight);
    return true;
  }

  #put(protector: ProtectorVersion, group: Group, weight: number): void {
    const { key } = protector;
    this.#lost.set(key, protector);
    this.#groups.set(group.name, group);
    this.#groupOf.set(key, group);
    group.keys.set(key, weight);
    group.weight += weight;
    this.#weight += weight;
  }

  #remove(key: string): void {
    this.#lost.delete(key);
    const group = this.#groupOf.get(key);
    const weight = group?.keys.get(key);
    if (group === undefined || weight === undefined) return;
    this.#groupOf.delete(key);
    group.keys.delete(key);
    group.weight -= weight;
    this.#weight -= weight;
    if (group.keys.size === 0) this.#groups.delete(group.name);
  }

  /**
   * Takes another backup of a lost protector. Returns its key; undefined when its spec is known, or when it was
   * released.
   */
  addVariant(backup: ProtectorVersion, isRestored: boolean): string | undefined {
    const { key, object } = backup;
    if (this.isReleased(backup, isRestored)) return undefined;
    const spec = JSON.stringify(object.spec);
    const variants = this.#variants.get(key) ?? [];
    const isKnown = [this.#lost.get(key), ...variants].some((one) => JSON.stringify(one?.object.spec) === spec);
    if (isKnown || variants.length >= MAX_VARIANTS) return undefined;
    this.#variants.set(key, [...variants, backup]);
    return `${key}#${variants.length}`;
  }

  /** Removes the variants of this name, and returns their keys. */
  takeVariants(key: string): string[] {
    const variants = this.#variants.get(key) ?? [];
    this.#variants.delete(key);
    return variants.map((_, variant) => `${key}#${variant}`);
  }

  /** Removes and returns the lost protector of this name. */
  take(key: string): ProtectorVersion | undefined {
    const found = this.#lost.get(key);
    this.#remove(key);
    return found;
  }

  /** Removes and returns the lost protectors whose release has been recorded since. */
  dropReleased(): ProtectorVersion[] {
    const released = [...this.#lost.values()].filter(({ object }) => this.#options.isRecorded(object));
    for (const { key } of released) this.#remove(key);
    return released;
  }
}
