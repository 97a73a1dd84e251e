import type { ProtectorVersion } from "../decide/state/protector-version.ts";
import { isMadeByHand, isMarkedReleased } from "./lost-protector.ts";

/** Lost protectors that stay in force; of each, its last version. More than any core is meant for. */
const MAX_LOST_PROTECTORS = 50_000;

export interface LostProtectorIndexOptions {
  /** The core's register has this UID (design 7). */
  readonly isRecorded: (uid: string) => boolean;
  /** One more than can be kept vanished: its pods are not protected any more. */
  readonly onOverflow?: (entry: ProtectorVersion) => void;
}

/**
 * Protectors that are gone without having been released (design 7): frozen ghosts, in force until they are back or their release
 * is on record.
 */
export class LostProtectorIndex {
  readonly #options: LostProtectorIndexOptions;
  readonly #entries = new Map<string, ProtectorVersion>();

  constructor(options: LostProtectorIndexOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  values(): Iterable<ProtectorVersion> {
    return this.#entries.values();
  }

  get(key: string): ProtectorVersion | undefined {
    return this.#entries.get(key);
  }

  /**
   * True when its end was meant: the generator has marked or recorded it, or it was made by hand and deleting it releases it. That a core
   * went back in time is no deletion (`isRestored`), so only a mark or a record counts then.
   */
  isReleased(entry: ProtectorVersion, isRestored: boolean): boolean {
    if (isMarkedReleased(entry.object) || this.#options.isRecorded(entry.uid)) return true;
    return !isRestored && isMadeByHand(entry.object);
  }

  /** The protector is not in its core any more. True when it is a ghost from now on. */
  remember(entry: ProtectorVersion, isRestored: boolean): boolean {
    if (this.isReleased(entry, isRestored)) return false;
    if (this.#entries.size >= MAX_LOST_PROTECTORS && !this.#entries.has(entry.key)) {
      this.#options.onOverflow?.(entry);
      return false;
    }
    this.#entries.set(entry.key, entry);
    return true;
  }

  /** The last version of what was there under this name before; it is a ghost no more. */
  take(key: string): ProtectorVersion | undefined {
    const found = this.#entries.get(key);
    this.#entries.delete(key);
    return found;
  }

  /** Lets go of those whose release is on record by now; returns them. */
  release(): ProtectorVersion[] {
    const released = [...this.#entries.values()].filter(({ uid }) => this.#options.isRecorded(uid));
    for (const { key } of released) this.#entries.delete(key);
    return released;
  }
}
