import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../shared/schema/annotations.ts";
import type { Entry } from "./entry.ts";
import { MAX_VANISHED_PROTECTORS } from "./limits.ts";

/**
 * True when the protector's end was meant: the generator has marked it, or it was made by hand and deleting it releases it
 * (design 7). Whatever comes after it under its name has no history to lose.
 */
function isReleased({ object: { metadata } }: Entry): boolean {
  if (metadata.annotations?.[RELEASED_ANNOTATION] !== undefined) return true;
  return metadata.finalizers?.includes(GENERATOR_FINALIZER) !== true;
}

/** Protectors that are gone without having been released, for as long as an admission of theirs may be unsettled. */
export class Vanished {
  readonly #keepMs: number;
  readonly #entries = new Map<string, { readonly entry: Entry; readonly atMs: number }>();

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  remember(entry: Entry, nowMs: number): void {
    for (const [key, { atMs }] of this.#entries) {
      if (nowMs - atMs <= this.#keepMs && this.#entries.size < MAX_VANISHED_PROTECTORS) break;
      this.#entries.delete(key);
    }
    if (!isReleased(entry)) this.#entries.set(entry.key, { entry, atMs: nowMs });
  }

  /** The last version of what was there under this name before; it is forgotten. */
  take(key: string): Entry | undefined {
    const found = this.#entries.get(key)?.entry;
    this.#entries.delete(key);
    return found;
  }
}
