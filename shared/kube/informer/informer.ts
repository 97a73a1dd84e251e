/**
 * The readers' view of a reflector: the objects, the position that they are current at, and changes in the order of the
 * stream. Handlers run synchronously after the store has changed, and must only enqueue keys.
 */

export interface InformerHandler<T> {
  /**
   * One object was added (`before` undefined), deleted (`after` undefined; `before` is the last known object), or
   * modified. A changed UID arrives as a deletion and an addition. Deletions that a relist finds arrive like any other,
   * but with `isListed`, because states between the last known one and the deletion may have been missed.
   */
  changed?(before: T | undefined, after: T | undefined, isListed: boolean): void;
  /** The position advanced (event, bookmark or list). Called after `changed`. */
  advanced?(position: string): void;
  /** A complete list replaced the objects. Called after `changed` has reported the differences. */
  relisted?(position: string): void;
  /** `confirmedSentMs` advanced. */
  confirmed?(sentMs: number): void;
}

export interface Informer<T> {
  /** The key is `namespace/name`, or `name` for objects without a namespace. */
  get(key: string): T | undefined;
  values(): Iterable<T>;
  readonly size: number;
  /** The resourceVersion of the last event, bookmark or list; undefined before the first complete list. */
  readonly position: string | undefined;
  /** True from the first complete list on. */
  readonly synced: boolean;
  /** Monotonic milliseconds of the last byte from the server. */
  readonly lastContactMs: number | undefined;
  /**
   * Monotonic milliseconds of the last event or bookmark, or of the request for the last complete list. At that time,
   * the server had the same history as the cache.
   */
  readonly heardMs?: number | undefined;
  /** Returns a function that ends the subscription. Objects already present are not replayed. */
  subscribe(handler: InformerHandler<T>): () => void;
}

/**
 * An informer that knows up to which time it is complete (docs/design.md#informers). Decisions and rule R3 depend on
 * this.
 */
export interface ConfirmedInformer<T> extends Informer<T> {
  /**
   * Monotonic send time of the newest `limit=1` quorum LIST whose version the stream has reached since: the cache
   * contains everything committed before that time. Undefined before the first such LIST.
   */
  readonly confirmedSentMs: number | undefined;
  /**
   * Requests a quorum LIST that is sent after this call. Requests are coalesced. The result arrives as `confirmed` and
   * in `confirmedSentMs`; a failed LIST is repeated with backoff.
   */
  requestEvidence(): void;
}

/** An informer of objects that its reader also reads and writes by its own calls. */
export interface LearningInformer<T> extends ConfirmedInformer<T> {
  /** The newest version that the server has shown: the position, or a quorum LIST that the stream has not reached. */
  readonly serverVersion?: string | undefined;
  /** Monotonic send time of the newest quorum LIST that was answered, whether the stream has reached it or not. */
  readonly quorumSentMs?: number | undefined;
  /**
   * The response to an own read or write has shown the object `key` at `version`. A later list with an older version of
   * the object is from another history: the server was restored. There may be no other sign of it
   * (docs/design.md#lost-history).
   */
  learned(key: string, version: string): void;
}
