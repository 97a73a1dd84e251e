/**
 * What a list-watch offers to its readers (design 8): the current objects, the position they are current at, and change
 * notices in stream order. Handlers run synchronously after the store has changed and must only enqueue keys.
 */

export interface SourceHandler<T> {
  /**
   * One object changed: added (`before` undefined), deleted (`after` undefined; `before` is the last known object), or modified.
   * A changed UID arrives as a delete and an add. Deletes found by a relist arrive like any other.
   */
  changed?(before: T | undefined, after: T | undefined): void;
  /** The position moved (event, bookmark or list). Called after `changed`. */
  advanced?(position: string): void;
  /** A complete list was swapped in; its differences were reported by `changed` before this call. */
  relisted?(position: string): void;
}

export interface Source<T> {
  /** `namespace/name`, or `name` for objects without a namespace. */
  get(key: string): T | undefined;
  values(): Iterable<T>;
  readonly size: number;
  /** The resourceVersion of the last event, bookmark or list; undefined before the first complete list. */
  readonly position: string | undefined;
  /** True from the first complete list on. */
  readonly synced: boolean;
  /** Monotonic milliseconds of the last byte that the server sent. */
  readonly lastContactMs: number | undefined;
  /** Returns a function that ends the subscription. Objects already present are not replayed. */
  subscribe(handler: SourceHandler<T>): () => void;
}
