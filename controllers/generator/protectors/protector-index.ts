/**
 * The protectors by the source that they name. Includes this process's own writes at once: a late watch would hide a
 * protector that was just created, and its source could lose the finalizer without a release.
 */
import type { Informer } from "../../../shared/kube/informer/informer.ts";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { compareVersions, hasReached, isComparableVersion } from "../../../shared/schema/resource-version.ts";
import { parseSourceKey, type SourcePlugin, sourceKey } from "../sources/protection-source.ts";
import { labelValue } from "./names.ts";
import { hasControllingOwner, sourceOf } from "./protector.ts";

export interface IndexListener {
  /** A protector of the source with this key has changed. */
  changed(key: string): void;
  /** The watch has passed a write of this process without showing the protector, so the protector is gone again. */
  vanished(protector: PodProtector): void;
  /** This process has released the protector, which the watch may have shown as vanished. */
  released?(protector: PodProtector): void;
}

function keyOf({ metadata }: PodProtector): string {
  return namespacedName(metadata);
}

export class ProtectorIndex {
  readonly #watched: Informer<PodProtector>;
  readonly #plugins: readonly SourcePlugin[];
  /** Keys of protectors by key of source. */
  readonly #bySource = new Map<string, Set<string>>();
  /** Own writes that the watch has not delivered yet. Bounded by the writes within its lag. */
  readonly #written = new Map<string, PodProtector>();
  /** Protectors that this process has released and the watch still has, or has not shown yet: UID by key. */
  readonly #released = new Map<string, string>();
  readonly #listener: IndexListener;
  /** The name in the last creation that got no answer, by source: the core may have made it. */
  readonly unanswered = new Map<string, string>();
  /** What was told of the source of a protector, by UID, until the status of the protector says it. */
  readonly told = new Map<string, string>();

  constructor(watched: Informer<PodProtector>, plugins: readonly SourcePlugin[], listener: IndexListener) {
    this.#watched = watched;
    this.#plugins = plugins;
    this.#listener = listener;
    watched.subscribe({
      changed: (before, after) => {
        const keys = new Set([this.#update(before, "remove"), this.#update(after, "add")]);
        this.#forgetReleased(before, after);
        if (before?.metadata.uid !== after?.metadata.uid) this.told.delete(before?.metadata.uid ?? "");
        for (const key of keys) if (key !== undefined) listener.changed(key);
      },
      advanced: (position) => this.#forgetWritten(position),
      relisted: (position) => this.#forgetWritten(position),
    });
  }

  /** The protectors that name the source. */
  of(source: string): PodProtector[] {
    return [...this.#indexed(source), ...this.#byShortenedLabel(source)];
  }

  #indexed(source: string): PodProtector[] {
    const found: PodProtector[] = [];
    for (const key of this.#bySource.get(source) ?? []) {
      const protector = this.get(key);
      if (protector !== undefined) found.push(protector);
    }
    return found;
  }

  /** For protectors without an owner reference, only a label has the name of the source, which may be shortened. */
  #byShortenedLabel(source: string): PodProtector[] {
    const identity = parseSourceKey(source);
    const name = labelValue(identity.name);
    if (name === identity.name) return [];
    return this.#indexed(sourceKey({ ...identity, name })).filter((protector) => !hasControllingOwner(protector));
  }

  /** The newest known version of the protector `namespace/name`. */
  get(key: string): PodProtector | undefined {
    const found = this.#watched.get(key);
    const watched = found?.metadata.uid === this.#released.get(key) ? undefined : found;
    const written = this.#written.get(key);
    if (written === undefined) return watched;
    return watched !== undefined && isNewer(watched, written) ? watched : written;
  }

  /** This process has written `protector`. */
  wrote(protector: PodProtector): void {
    // The watch has this version, or a later one.
    if (hasReached(this.#watched.position, protector.metadata.resourceVersion)) {
      if (this.#watched.get(keyOf(protector)) === undefined) this.#vanished(protector);
      return;
    }
    this.#written.set(keyOf(protector), protector);
    this.#update(protector, "add");
  }

  /** This process has released the protector. Other finalizers may keep the object for a while. */
  released(protector: PodProtector): void {
    const key = keyOf(protector);
    const { uid, resourceVersion } = protector.metadata;
    this.#written.delete(key);
    this.#listener.released?.(protector);
    const watched = this.#watched.get(key);
    if (watched === undefined) this.#update(protector, "remove");
    // Where the watch has passed the protector and does not have it, it has shown its end.
    const mayCome = watched === undefined && !hasReached(this.#watched.position, resourceVersion);
    if (mayCome || watched?.metadata.uid === uid) this.#released.set(key, uid);
  }

  /** This process has released the protector, and the watch may still show it without the mark. */
  isReleased(protector: PodProtector): boolean {
    return this.#released.get(keyOf(protector)) === protector.metadata.uid;
  }

  /** The core was restored: it may have lost what this process wrote, and have what it released. */
  restored(): void {
    const written = [...this.#written.values()];
    this.#written.clear();
    this.#released.clear();
    for (const protector of written) if (this.#watched.get(keyOf(protector)) === undefined) this.#vanished(protector);
  }

  /** Keys of all sources that a protector names. */
  sources(): Iterable<string> {
    return this.#bySource.keys();
  }

  /** The finalizers of others keep a released protector, and with it the name `namespace/name`. */
  isHeldByOthers(key: string): boolean {
    const metadata = this.#watched.get(key)?.metadata;
    const isReleased = metadata !== undefined && metadata.uid === this.#released.get(key);
    return isReleased && (metadata.finalizers ?? []).some((finalizer) => finalizer !== GENERATOR_FINALIZER);
  }

  #forgetReleased(before: PodProtector | undefined, after: PodProtector | undefined): void {
    if (before === undefined) return;
    const key = keyOf(before);
    if (after === undefined || after.metadata.uid !== this.#released.get(key)) this.#released.delete(key);
  }

  #forgetWritten(position: string): void {
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
    // This process has created a new protector of the same name since.
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
