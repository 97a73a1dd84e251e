/**
 * What a list-watch offers to its readers (design 8): the current objects, the position they are current at, and change
 * notices in stream order. Handlers run synchronously after the store has changed and must only enqueue keys.
 */

export interface InformerHandler<T> {
  /**
   * One object changed: added (`before` undefined), deleted (`after` undefined; `before` is the last known object), or modified.
   * A changed UID arrives as a delete and an add. Deletes found by a relist arrive like any other.
   */
  changed?(before: T | undefined, after: T | undefined): void;
  /** The position moved (event, bookmark or list). Called after `changed`. */
  advanced?(position: string): void;
  /** A complete list was swapped in; its differences were reported by `changed` before this call. */
  relisted?(position: string): void;
  /** `confirmedSentMs` moved: everything that was committed before `sentMs` is in the store (design 5.2 R3, 5.4). */
  confirmed?(sentMs: number): void;
}

export interface Informer<T> {
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
  /**
   * Monotonic milliseconds of the last event or bookmark, or of the moment at which the last complete list was asked for: the server's history was
   * the one that is held by then. Undefined where that is not known.
   */
  readonly heardMs?: number | undefined;
  /** Returns a function that ends the subscription. Objects already present are not replayed. */
  subscribe(handler: InformerHandler<T>): () => void;
}

/** A source that can say since when it is known to be complete: what decisions (design 5.4) and rule R3 (design 5.2) rest on. */
export interface ConfirmedInformer<T> extends Informer<T> {
  /**
   * Monotonic send time of the newest `limit=1` quorum LIST whose collection version the stream has since reached:
   * everything that was committed before that moment is in the store. Undefined before the first one.
   */
  readonly confirmedSentMs: number | undefined;
  /**
   * Asks for such a LIST that is sent now or later; bounded and coalesced, at once. The outcome arrives as `confirmed` and in
   * `confirmedSentMs`; a failed LIST is repeated with backoff until one was confirmed that was sent after this call.
   */
  requestEvidence(): void;
}

/** A source of objects that its reader also reads and writes by itself. */
export interface LearningInformer<T> extends ConfirmedInformer<T> {
  /**
   * The server has said, in answer to an own read or write, that the object `key` is at `version`. A later list that shows it older
   * is of another history: the server was restored, and nothing else may know it (design 5.4).
   */
  learned(key: string, version: string): void;
}
