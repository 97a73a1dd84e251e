import type { Informer } from "../kube/informer/informer.ts";
import { namespacedName, type PodProtector } from "../schema/podprotector.ts";
import { isReleased } from "./lost-protector.ts";

interface LostProtectorsBySourceOptions {
  readonly watched: Pick<Informer<PodProtector>, "subscribe">;
  /** The release register says that this absent protector has ended. */
  readonly isRecorded: (protector: PodProtector) => boolean;
  /** The key of the source that the protector names, if any. */
  readonly sourceOf: (protector: PodProtector) => string | undefined;
}

/** More protectors than any core is meant for. */
const MAX_LOST = 50_000;

/** The last version of each protector that this process has seen vanish without a release, found by its source. */
export class LostProtectorsBySource {
  readonly #options: LostProtectorsBySourceOptions;
  /** By `namespace/name`. */
  readonly #lost = new Map<string, PodProtector>();
  /** Keys of lost protectors by key of source. */
  readonly #bySource = new Map<string, Set<string>>();

  constructor(options: LostProtectorsBySourceOptions) {
    this.#options = options;
    options.watched.subscribe({
      changed: (before, after) => {
        if (after !== undefined) this.#forget(namespacedName(after.metadata));
        else if (before !== undefined) this.lost(before);
      },
    });
  }

  /** The lost protectors that name this source. */
  of(source: string): PodProtector[] {
    const found: PodProtector[] = [];
    for (const key of this.#bySource.get(source) ?? []) {
      const protector = this.#lost.get(key);
      if (protector === undefined) continue;
      if (this.#options.isRecorded(protector)) this.#forget(key);
      else found.push(protector);
    }
    return found;
  }

  get size(): number {
    return this.#lost.size;
  }

  /** The watch, or a caller that knows of a missed deletion, reports that the protector is absent from its core. */
  lost(protector: PodProtector): void {
    const source = this.#options.sourceOf(protector);
    const isRecorded = this.#options.isRecorded(protector);
    if (isReleased(protector, isRecorded, false) || source === undefined || this.#lost.size >= MAX_LOST) return;
    const key = namespacedName(protector.metadata);
    this.#lost.set(key, protector);
    const keys = this.#bySource.get(source) ?? new Set();
    this.#bySource.set(source, keys.add(key));
  }

  #forget(key: string): void {
    const protector = this.#lost.get(key);
    if (protector === undefined) return;
    this.#lost.delete(key);
    const source = this.#options.sourceOf(protector) ?? "";
    this.#bySource.get(source)?.delete(key);
    if (this.#bySource.get(source)?.size === 0) this.#bySource.delete(source);
  }
}
