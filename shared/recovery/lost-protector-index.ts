import type { ProtectorVersion } from "../decide/state/protector-version.ts";
import { isReleased } from "./lost-protector.ts";

/** More protectors than any core is meant for. */
const MAX_LOST_PROTECTORS = 50_000;

interface LostProtectorIndexOptions {
  /** The release register of the core has this UID. */
  readonly isRecorded: (uid: string) => boolean;
  /** One more protector is lost than can be kept: its pods are no longer protected. */
  readonly onOverflow?: (lost: ProtectorVersion) => void;
}

/** The last version of each lost protector of one core, by `namespace/name`. Such a version stays in force. */
export class LostProtectorIndex {
  readonly #options: LostProtectorIndexOptions;
  readonly #lost = new Map<string, ProtectorVersion>();

  constructor(options: LostProtectorIndexOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#lost.size;
  }

  values(): Iterable<ProtectorVersion> {
    return this.#lost.values();
  }

  get(key: string): ProtectorVersion | undefined {
    return this.#lost.get(key);
  }

  isReleased({ object, uid }: ProtectorVersion, isRestored: boolean): boolean {
    return isReleased(object, this.#options.isRecorded(uid), isRestored);
  }

  /** The protector is absent from its core. True when it is lost from now on, false when it was released. */
  add(protector: ProtectorVersion, isRestored: boolean): boolean {
    if (this.isReleased(protector, isRestored)) return false;
    if (this.#lost.size >= MAX_LOST_PROTECTORS && !this.#lost.has(protector.key)) {
      this.#options.onOverflow?.(protector);
      return false;
    }
    this.#lost.set(protector.key, protector);
    return true;
  }

  /** Removes and returns the lost protector of this name. */
  take(key: string): ProtectorVersion | undefined {
    const found = this.#lost.get(key);
    this.#lost.delete(key);
    return found;
  }

  /** Removes and returns the lost protectors whose release has been recorded since. */
  dropReleased(): ProtectorVersion[] {
    const released = [...this.#lost.values()].filter(({ uid }) => this.#options.isRecorded(uid));
    for (const { key } of released) this.#lost.delete(key);
    return released;
  }
}
