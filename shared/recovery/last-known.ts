/** The protectors that vanished without a release while this process looked on, by their last version (design 7). */

import type { Informer } from "../kube/informer/informer.ts";
import type { PodProtector } from "../schema/podprotector.ts";
import { isMadeByHand, isMarkedReleased } from "./lost-protector.ts";

export interface LastKnownOptions {
  readonly watched: Pick<Informer<PodProtector>, "subscribe">;
  /** The register has this UID. */
  readonly isRecorded: (uid: string) => boolean;
  /** The key of the source that it names; undefined when it names none. */
  readonly sourceOf: (protector: PodProtector) => string | undefined;
}

/** More protectors than any core is meant for. */
const MAX_LOST = 50_000;

export class LastKnown {
  readonly #options: LastKnownOptions;
  /** By `namespace/name`. */
  readonly #lost = new Map<string, PodProtector>();
  /** Keys of the lost by key of source. */
  readonly #bySource = new Map<string, Set<string>>();

  constructor(options: LastKnownOptions) {
    this.#options = options;
    options.watched.subscribe({ changed: (before, after) => this.#changed(before, after) });
  }

  /** Those that name the source. */
  of(source: string): PodProtector[] {
    const found: PodProtector[] = [];
    for (const key of this.#bySource.get(source) ?? []) {
      const protector = this.#lost.get(key);
      if (protector === undefined) continue;
      if (this.#options.isRecorded(protector.metadata.uid)) this.#forget(key, protector);
      else found.push(protector);
    }
    return found;
  }

  get size(): number {
    return this.#lost.size;
  }

  #changed(before: PodProtector | undefined, after: PodProtector | undefined): void {
    if (after !== undefined) {
      const lost = this.#lost.get(keyOf(after));
      if (lost !== undefined) this.#forget(keyOf(after), lost);
    } else if (before !== undefined) this.vanished(before);
  }

  /** It is gone: as the watch tells, or somebody who knows what the watch has never shown. */
  vanished(protector: PodProtector): void {
    const source = this.#options.sourceOf(protector);
    const isMeant =
      isMarkedReleased(protector) || isMadeByHand(protector) || this.#options.isRecorded(protector.metadata.uid);
    if (isMeant || source === undefined || this.#lost.size >= MAX_LOST) return;
    const key = keyOf(protector);
    this.#lost.set(key, protector);
    const keys = this.#bySource.get(source) ?? new Set();
    this.#bySource.set(source, keys.add(key));
  }

  #forget(key: string, protector: PodProtector): void {
    this.#lost.delete(key);
    const source = this.#options.sourceOf(protector);
    if (source === undefined) return;
    this.#bySource.get(source)?.delete(key);
    if (this.#bySource.get(source)?.size === 0) this.#bySource.delete(source);
  }
}

function keyOf({ metadata }: PodProtector): string {
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}
