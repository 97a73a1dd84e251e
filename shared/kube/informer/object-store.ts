import { isOlderVersion } from "../../schema/resource-version.ts";
import type { InformerHandler } from "./informer.ts";

export interface ObjectStoreOptions<T> {
  readonly uidOf: (object: T) => string;
  readonly versionOf: (object: T) => string;
  /** A handler threw: a bug of the subscriber, which must not end the stream of the others. */
  readonly onHandlerError: (error: Error) => void;
}

/**
 * The objects of one collection with the position that they are current at (design 8). Every change moves objects and position
 * together and tells the handlers afterwards, so that a handler never sees one without the other.
 */
export class ObjectStore<T> {
  readonly #options: ObjectStoreOptions<T>;
  readonly #handlers = new Set<InformerHandler<T>>();
  /** Versions that answers to own calls have shown and the stream has not reached yet, by key. */
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

  /** An answer to an own call has shown `key` at `version`. */
  learned(key: string, version: string): void {
    const held = this.#objects.get(key);
    if (held !== undefined && isOlderVersion(this.#options.versionOf(held), version)) this.#learned.set(key, version);
  }

  /** What {@link learned} was told and the stream has not shown yet: any list that is sent from now on must show it. */
  owed(): ReadonlyMap<string, string> {
    return new Map(this.#learned);
  }

  /** An object was added or modified at `version`. */
  upsert(key: string, object: T, version: string): void {
    const before = this.#objects.get(key);
    this.#objects.set(key, object);
    this.#reached(key, version);
    this.#position = version;
    this.#tellChange(before, object);
    this.#tell((handler) => handler.advanced?.(version));
  }

  /** An object was deleted at `version`. A deletion of another UID than the one held says nothing about the one held. */
  remove(key: string, uid: string, version: string): void {
    const before = this.#objects.get(key);
    const known = before !== undefined && (uid === "" || this.#options.uidOf(before) === uid);
    if (known) this.#objects.delete(key);
    this.#reached(key, version);
    this.#position = version;
    if (known) this.#tellChange(before, undefined);
    this.#tell((handler) => handler.advanced?.(version));
  }

  /** The position moved without a change (a bookmark). */
  advance(version: string): void {
    this.#position = version;
    this.#tell((handler) => handler.advanced?.(version));
  }

  /**
   * Puts a complete list in place at once, then reports its differences: deletions with the last known object, changed UIDs as a
   * deletion and an addition. `all` reports objects of equal version too: after a restore of the server's storage a version
   * number may have been given to another state.
   */
  swap(objects: Map<string, T>, version: string, all: boolean): void {
    const old = this.#objects;
    const changed: [T | undefined, T][] = [];
    for (const [key, object] of objects) {
      const before = old.get(key);
      if (before !== undefined && !all && this.#same(before, object)) objects.set(key, before);
      else changed.push([before, object]);
    }
    this.#objects = objects;
    this.#position = version;
    for (const key of this.#learned.keys()) {
      const object = objects.get(key);
      // What a doubted list does not show is of a history that is over.
      this.#reached(key, all || object === undefined ? undefined : this.#options.versionOf(object));
    }
    for (const [key, before] of old) if (!objects.has(key)) this.#tellChange(before, undefined);
    for (const [before, object] of changed) this.#tellChange(before, object);
    this.#tell((handler) => handler.relisted?.(version));
    this.#tell((handler) => handler.advanced?.(version));
  }

  /**
   * What no history can bring: an object that is held, or `owed`, at a newer version than in `objects`, and one that is not held although
   * its version was passed, because it had been deleted.
   */
  contradictedBy(
    objects: ReadonlyMap<string, T>,
    owed: ReadonlyMap<string, string>,
  ): { readonly held: string; readonly listed: string } | undefined {
    const { uidOf, versionOf } = this.#options;
    for (const [key, held] of owed) {
      const object = objects.get(key);
      const listed = object === undefined ? held : versionOf(object);
      if (held !== listed && isOlderVersion(listed, held)) return { held, listed };
    }
    for (const [key, object] of objects) {
      const before = this.#objects.get(key);
      const isHeld = before !== undefined && uidOf(before) === uidOf(object);
      const [held, listed] = [isHeld ? versionOf(before) : this.#position, versionOf(object)];
      if (held !== undefined && (held !== listed || !isHeld) && isOlderVersion(listed, held)) return { held, listed };
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

  #tellChange(before: T | undefined, after: T | undefined): void {
    const { uidOf } = this.#options;
    if (before !== undefined && after !== undefined && uidOf(before) !== uidOf(after)) {
      this.#tell((handler) => handler.changed?.(before, undefined));
      this.#tell((handler) => handler.changed?.(undefined, after));
    } else {
      this.#tell((handler) => handler.changed?.(before, after));
    }
  }

  #tell(call: (handler: InformerHandler<T>) => void): void {
    for (const handler of this.#handlers) {
      try {
        call(handler);
      } catch (error) {
        this.#options.onHandlerError(error instanceof Error ? error : new Error(String(error)));
      }
    }
  }
}
