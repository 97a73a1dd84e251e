import type { Informer } from "../kube/informer/informer.ts";
import { namespacedName, type PodProtector } from "../schema/podprotector.ts";
import { BoundedLostProtectors } from "./bounded-lost-protectors.ts";
import { isReleased } from "./lost-protector.ts";

interface LostProtectorsBySourceOptions {
  readonly watched: Pick<Informer<PodProtector>, "subscribe">;
  /** The release register says that this absent protector has ended. */
  readonly isRecorded: (protector: PodProtector) => boolean;
  /** The key of the source that the protector names, if any. */
  readonly sourceOf: (protector: PodProtector) => string | undefined;
}

/** The last version of each protector that this process has seen vanish without a release, found by its source. */
export class LostProtectorsBySource {
  readonly #options: LostProtectorsBySourceOptions;
  readonly #lost = new BoundedLostProtectors<{ readonly key: string; readonly object: PodProtector }>(({ object }) =>
    this.#unlist(object),
  );
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
      const protector = this.#lost.get(key)?.object;
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
    if (isReleased(protector, isRecorded, false) || source === undefined) return;
    const key = namespacedName(protector.metadata);
    const before = this.#lost.get(key);
    if (!this.#lost.add({ key, object: protector })) return;
    if (before !== undefined) this.#unlist(before.object);
    const keys = this.#bySource.get(source) ?? new Set();
    this.#bySource.set(source, keys.add(key));
  }

  /** A caller has released the protector, perhaps after its absence was seen. */
  released({ metadata }: PodProtector): void {
    const key = namespacedName(metadata);
    if (this.#lost.get(key)?.object.metadata.uid === metadata.uid) this.#forget(key);
  }

  #forget(key: string): void {
    const lost = this.#lost.remove(key);
    if (lost !== undefined) this.#unlist(lost.object);
  }

  #unlist(protector: PodProtector): void {
    const source = this.#options.sourceOf(protector) ?? "";
    const keys = this.#bySource.get(source);
    keys?.delete(namespacedName(protector.metadata));
    if (keys?.size === 0) this.#bySource.delete(source);
  }
}
