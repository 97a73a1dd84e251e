import { toError } from "../../runtime/errors.ts";
import { isOlderVersion } from "../../schema/resource-version.ts";
import type { Listed } from "../stream/list.ts";
import type { InformerHandler } from "./informer.ts";

interface ObjectStoreOptions<T> {
  readonly uidOf: (object: T) => string;
  readonly versionOf: (object: T) => string;
  /** Called when a handler throws, which is a bug of the subscriber, and must not end the stream for the others. */
  readonly onHandlerError: (error: Error) => void;
}

/**
 * The objects of one collection, and the position that they are current at. Every change updates objects and position
 * together, and calls the handlers afterwards, so that a handler never sees one without the other.
 */
export class ObjectStore<T> {
  readonly #options: ObjectStoreOptions<T>;
  readonly #handlers = new Set<InformerHandler<T>>();
  /** By key: versions from responses to own calls that the stream has not reached yet. */
  readonly #learned = new Map<string, string>();
  #objects = new Map<string, T>();
  #position: string | undefined;

  constructor(options: ObjectStoreOptions<T>) {
    this.#options = options;
  }

  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  values(): IterableIterator<T> {
    return this.#objects.values();
  }

  get size(): number {
    return this.#objects.size;
  }

  get position(): string | undefined {
    return this.#position;
  }

  subscribe(handler: InformerHandler<T>): () => void {
    this.#handlers.add(handler);
    return () => this.#handlers.delete(handler);
  }

  /** The response to an own call has shown `key` at `version`. */
  learned(key: string, version: string): void {
    const held = this.#objects.get(key);
    if (held !== undefined && isOlderVersion(this.#options.versionOf(held), version)) this.#learned.set(key, version);
  }

  /**
   * Versions from {@link learned} that the stream has not reached: every later list must contain them, or later ones.
   */
  owed(): ReadonlyMap<string, string> {
    return new Map(this.#learned);
  }

  /** The newest version that is known. Another apiserver than the one that showed what is owed may lag behind it. */
  newest(owed: ReadonlyMap<string, string>): string | undefined {
    let newest = this.#position;
    for (const version of owed.values()) if (isOlderVersion(newest, version)) newest = version;
    return newest;
  }

  /** An object was added or modified at `version`. */
  upsert(key: string, object: T, version: string): void {
    const before = this.#objects.get(key);
    this.#objects.set(key, object);
    this.#reached(key, version);
    this.#position = version;
    this.#tellChange(before, object, false);
    this.#tell((handler) => handler.advanced?.(version));
  }

  /** An object was deleted at `version`. The deletion of another UID does not affect the object in the store. */
  remove(key: string, uid: string, version: string): void {
    const before = this.#objects.get(key);
    const isHeld = before !== undefined && (uid === "" || this.#options.uidOf(before) === uid);
    if (isHeld) this.#objects.delete(key);
    this.#reached(key, version);
    this.#position = version;
    if (isHeld) this.#tellChange(before, undefined, false);
    this.#tell((handler) => handler.advanced?.(version));
  }

  /** The position advanced without a change (a bookmark). */
  advance(version: string): void {
    this.#position = version;
    this.#tell((handler) => handler.advanced?.(version));
  }

  /**
   * Replaces the objects by a complete list, then reports the differences: a deletion with the last known object, a
   * changed UID as a deletion and an addition. With `isRestored`, objects with an equal version are reported, too: a
   * restored server may have reused the version for another state.
   */
  swap(objects: Map<string, T>, version: string, isRestored: boolean): void {
    const old = this.#objects;
    const changed: [T | undefined, T][] = [];
    for (const [key, object] of objects) {
      const before = old.get(key);
      if (before !== undefined && !isRestored && this.#same(before, object)) objects.set(key, before);
      else changed.push([before, object]);
    }
    this.#objects = objects;
    this.#position = version;
    for (const key of this.#learned.keys()) {
      const object = objects.get(key);
      // A version that is absent from the list of a restored server belongs to the lost history.
      this.#reached(key, isRestored || object === undefined ? undefined : this.#options.versionOf(object));
    }
    for (const [key, before] of old) if (!objects.has(key)) this.#tellChange(before, undefined, true);
    for (const [before, object] of changed) this.#tellChange(before, object, true);
    this.#tell((handler) => handler.relisted?.(version));
    this.#tell((handler) => handler.advanced?.(version));
  }

  /**
   * Returns two contradicting versions when the list is from another history than the store; undefined otherwise. The
   * list is then older than the position, or has an object in an older version than the store or `owed`, or has an
   * object that the store lacks although the stream has passed its version: the object had been deleted.
   */
  contradictedBy(
    list: Pick<Listed<T>, "objects" | "rejected" | "version">,
    owed: ReadonlyMap<string, string>,
  ): { readonly from: string; readonly to: string } | undefined {
    const { uidOf, versionOf } = this.#options;
    // What is kept of an object that can't be read is older than the object.
    const listed = (key: string, object: T): string => list.rejected.get(key) ?? versionOf(object);
    if (this.#position !== undefined && isOlderVersion(list.version, this.#position))
      return { from: this.#position, to: list.version };
    for (const [key, from] of owed) {
      const object = list.objects.get(key);
      const to = object === undefined ? from : listed(key, object);
      if (from !== to && isOlderVersion(to, from)) return { from, to };
    }
    for (const [key, object] of list.objects) {
      const before = this.#objects.get(key);
      const isHeld = before !== undefined && uidOf(before) === uidOf(object);
      const from = isHeld ? versionOf(before) : this.#position;
      const to = listed(key, object);
      if (from !== undefined && (from !== to || !isHeld) && isOlderVersion(to, from)) return { from, to };
    }
    return undefined;
  }

  tellConfirmed(sentMs: number): void {
    this.#tell((handler) => handler.confirmed?.(sentMs));
  }

  #reached(key: string, version: string | undefined): void {
    const learned = this.#learned.get(key);
    if (learned === undefined) return;
    if (version === undefined || version === learned || !isOlderVersion(version, learned)) this.#learned.delete(key);
  }

  #same(a: T, b: T): boolean {
    const { uidOf, versionOf } = this.#options;
    return versionOf(a) === versionOf(b) && uidOf(a) === uidOf(b);
  }

  #tellChange(before: T | undefined, after: T | undefined, isListed: boolean): void {
    const { uidOf } = this.#options;
    if (before !== undefined && after !== undefined && uidOf(before) !== uidOf(after)) {
      this.#tell((handler) => handler.changed?.(before, undefined, isListed));
      this.#tell((handler) => handler.changed?.(undefined, after, isListed));
    } else {
      this.#tell((handler) => handler.changed?.(before, after, isListed));
    }
  }

  #tell(call: (handler: InformerHandler<T>) => void): void {
    for (const handler of this.#handlers) {
      try {
        call(handler);
      } catch (error) {
        this.#options.onHandlerError(toError(error));
      }
    }
  }
}
