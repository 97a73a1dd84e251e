/**
 * The protectors by the source that they name. What this process itself wrote is seen at once: a decision that rests on a watch
 * which has not yet delivered a protector that was just created could let its source go without releasing it.
 */
import type { Informer as ObjectSource } from "../../../shared/kube/informer/informer.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { compareVersions, hasReached, isComparableVersion } from "../../../shared/schema/resource-version.ts";
import { parseSourceKey, type SourcePlugin, sourceKey } from "../sources/protection-source.ts";
import { labelValue } from "./names.ts";
import { sourceOf } from "./protector.ts";

export interface IndexListener {
  /** Something of the source with this key is not what it was. */
  changed(key: string): void;
  /** This process has written it, and the watch has gone on without ever having shown it: a list came in between. */
  vanished(protector: PodProtector): void;
}

function keyOf({ metadata }: PodProtector): string {
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}

export class ProtectorIndex {
  readonly #watched: ObjectSource<PodProtector>;
  readonly #plugins: readonly SourcePlugin[];
  /** Keys of protectors by key of source. */
  readonly #bySource = new Map<string, Set<string>>();
  /** Own writes that the watch has not delivered yet. Bounded by the writes that are made within its lag. */
  readonly #written = new Map<string, PodProtector>();
  /** UIDs of protectors that are known to be released, and that the watch still has. */
  readonly #released = new Map<string, string>();
  readonly #listener: IndexListener;

  constructor(watched: ObjectSource<PodProtector>, plugins: readonly SourcePlugin[], listener: IndexListener) {
    this.#watched = watched;
    this.#plugins = plugins;
    this.#listener = listener;
    watched.subscribe({
      changed: (before, after) => {
        const keys = new Set([this.#update(before, "remove"), this.#update(after, "add")]);
        this.#seen(before, after);
        for (const key of keys) if (key !== undefined) listener.changed(key);
      },
      advanced: (position) => this.#forget(position),
      relisted: (position) => this.#forget(position),
    });
  }

  /** The protectors that name the source. */
  of(source: string): PodProtector[] {
    return [...this.#named(source), ...this.#labelled(source)];
  }

  #named(source: string): PodProtector[] {
    const found: PodProtector[] = [];
    for (const key of this.#bySource.get(source) ?? []) {
      const protector = this.get(key);
      if (protector !== undefined) found.push(protector);
    }
    return found;
  }

  /** Those without an owner, which have the name in the label alone, where it is shortened. */
  #labelled(source: string): PodProtector[] {
    const identity = parseSourceKey(source);
    const name = labelValue(identity.name);
    if (name === identity.name) return [];
    return this.#named(sourceKey({ ...identity, name })).filter(
      ({ metadata }) => metadata.ownerReferences?.some(({ controller }) => controller === true) !== true,
    );
  }

  /** The newest version that is known of the protector `namespace/name`. */
  get(key: string): PodProtector | undefined {
    const found = this.#watched.get(key);
    const watched = found?.metadata.uid === this.#released.get(key) ? undefined : found;
    const written = this.#written.get(key);
    if (written === undefined) return watched;
    return watched !== undefined && isNewer(watched, written) ? watched : written;
  }

  /** This process made `protector` what it is now. */
  wrote(protector: PodProtector): void {
    // What the stream has passed already is in the store, or was changed again since.
    if (hasReached(this.#watched.position, protector.metadata.resourceVersion)) {
      if (this.#watched.get(keyOf(protector)) === undefined) this.#vanished(protector);
      return;
    }
    this.#written.set(keyOf(protector), protector);
    this.#update(protector, "add");
  }

  /** This process has released the protector: it is out of force, and gone as soon as nobody else holds it. */
  released(protector: PodProtector): void {
    const key = keyOf(protector);
    const { uid } = protector.metadata;
    this.#written.delete(key);
    const watched = this.#watched.get(key);
    if (watched === undefined) this.#update(protector, "remove");
    else if (watched.metadata.uid === uid) this.#released.set(key, uid);
  }

  /** Keys of all sources that are named by a protector. */
  sources(): Iterable<string> {
    return this.#bySource.keys();
  }

  #seen(before: PodProtector | undefined, after: PodProtector | undefined): void {
    if (before === undefined) return;
    const key = keyOf(before);
    if (after === undefined || after.metadata.uid !== this.#released.get(key)) this.#released.delete(key);
  }

  #forget(position: string): void {
    for (const [key, protector] of this.#written) {
      if (!hasReached(position, protector.metadata.resourceVersion)) continue;
      this.#written.delete(key);
      if (this.#watched.get(key) === undefined) this.#vanished(protector);
    }
  }

  #vanished(protector: PodProtector): void {
    const source = this.#update(protector, "remove");
    this.#listener.vanished(protector);
    if (source !== undefined) this.#listener.changed(source);
  }

  #update(protector: PodProtector | undefined, action: "add" | "remove"): string | undefined {
    const source = protector === undefined ? undefined : sourceOf(protector, this.#plugins);
    if (protector === undefined || source === undefined) return undefined;
    const key = sourceKey(source);
    const names = this.#bySource.get(key) ?? new Set();
    const written = this.#written.get(keyOf(protector))?.metadata.uid;
    // One of that name that this process has made since is not gone with the one before it.
    const isSucceeded = written !== undefined && written !== protector.metadata.uid;
    if (action === "add") names.add(keyOf(protector));
    else if (!isSucceeded) names.delete(keyOf(protector));
    if (names.size > 0) this.#bySource.set(key, names);
    else this.#bySource.delete(key);
    return key;
  }
}

function isNewer(watched: PodProtector, written: PodProtector): boolean {
  const [a, b] = [watched.metadata.resourceVersion, written.metadata.resourceVersion];
  return isComparableVersion(a) && isComparableVersion(b) && compareVersions(a, b) >= 0;
}
