import type { ProtectorVersion } from "../decide/state/protector-version.ts";
import type { PodProtector } from "../schema/podprotector.ts";
import { BoundedLostProtectors } from "./bounded-lost-protectors.ts";
import { isReleased } from "./lost-protector.ts";

/** Most versions of one protector: more than the number of cells that are unreachable at the same time. */
const MAX_VARIANTS = 16;

interface LostProtectorIndexOptions {
  /** The release register of the core says that this absent protector has ended. */
  readonly isRecorded: (protector: PodProtector) => boolean;
  /** More protectors are lost than fit: this one is dropped, and its pods are no longer protected. */
  readonly onOverflow?: (lost: ProtectorVersion) => void;
}

/**
 * The last version of each lost protector of one core, by `namespace/name`. This version stays in force. Backups of one
 * protector may differ, because a cell was unreachable when the spec changed, or the core was restored. It is unknown
 * which backup is the last one, so all are in force.
 */
export class LostProtectorIndex {
  readonly #options: LostProtectorIndexOptions;
  readonly #lost: BoundedLostProtectors<ProtectorVersion>;
  /** Backups whose spec differs from the version above, by `namespace/name`; each has the key `namespace/name#N`. */
  readonly #variants = new Map<string, ProtectorVersion[]>();

  constructor(options: LostProtectorIndexOptions) {
    this.#options = options;
    this.#lost = new BoundedLostProtectors(options.onOverflow);
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
   * is no room for its group, which is its namespace, or a cell that has backups.
   */
  add(protector: ProtectorVersion, isRestored: boolean, group?: string): boolean {
    return !this.isReleased(protector, isRestored) && this.#lost.add(protector, group);
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
    return this.#lost.remove(key);
  }

  /** Removes and returns the lost protectors whose release has been recorded since. */
  dropReleased(): ProtectorVersion[] {
    const released = [...this.#lost.values()].filter(({ object }) => this.#options.isRecorded(object));
    for (const { key } of released) this.#lost.remove(key);
    return released;
  }
}
