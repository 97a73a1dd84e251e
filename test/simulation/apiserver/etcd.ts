/**
 * etcd as the API server sees it: one revision counter, compare-and-swap, a history that can be compacted, and a backup that
 * can be restored (after which revisions repeat with other contents).
 */

export type Json = { readonly [key: string]: unknown };

export interface Stored {
  /** `resource/namespace/name`. */
  readonly key: string;
  readonly revision: number;
  readonly value: Json;
}

export interface EtcdChange {
  readonly revision: number;
  readonly key: string;
  /** Undefined when the object was created by this change. */
  readonly before: Stored | undefined;
  /** Undefined when the object was deleted by this change. */
  readonly after: Stored | undefined;
}

export interface Backup {
  readonly revision: number;
  readonly objects: ReadonlyMap<string, Stored>;
}

export type EtcdWriteResult =
  | { readonly kind: "ok"; readonly stored: Stored }
  | { readonly kind: "mismatch"; readonly found: Stored | undefined };

const RESTORE_GAP = 1000;
const NOTHING: readonly EtcdChange[] = [];

export class Etcd {
  /** Current revision; every successful write raises it by one. */
  revision = 1000;
  /** Changes at or below this revision are gone from the history. */
  compacted = 1000;
  /** Raised by each restore, so that servers can tell that their caches are void. */
  incarnation = 0;
  #skipTo = 0;
  /** What was never given in this history: after `from`, up to `to`. */
  #gap = { from: 0, to: 0 };
  #objects = new Map<string, Stored>();
  #history: EtcdChange[] = [];
  /** Results of {@link range} that are still true. */
  readonly #ranges = new Map<string, readonly Stored[]>();
  readonly #observers = new Set<(change: EtcdChange) => void>();

  get(key: string): Stored | undefined {
    return this.#objects.get(key);
  }

  /** All objects whose key begins with `prefix`, in key order. */
  range(prefix: string): readonly Stored[] {
    const known = this.#ranges.get(prefix);
    if (known !== undefined) return known;
    const found: Stored[] = [];
    for (const [key, stored] of this.#objects) if (key.startsWith(prefix)) found.push(stored);
    found.sort((a, b) => (a.key < b.key ? -1 : 1));
    this.#ranges.set(prefix, found);
    return found;
  }

  /** Writes `value` when the object is at `expected` (0: must not exist; undefined: whatever it is at). */
  put(key: string, value: Json, expected?: number): EtcdWriteResult {
    const before = this.#objects.get(key);
    if (expected !== undefined && (before?.revision ?? 0) !== expected) return { kind: "mismatch", found: before };
    const after: Stored = { key, revision: this.#nextRevision(), value };
    this.#objects.set(key, after);
    this.#record({ revision: after.revision, key, before, after });
    return { kind: "ok", stored: after };
  }

  delete(key: string, expected?: number): EtcdWriteResult {
    const before = this.#objects.get(key);
    if (before === undefined || (expected !== undefined && before.revision !== expected))
      return { kind: "mismatch", found: before };
    this.#objects.delete(key);
    this.#record({ revision: this.#nextRevision(), key, before, after: undefined });
    return { kind: "ok", stored: before };
  }

  /** Changes after `revision`, or undefined when part of them was compacted away. */
  changesSince(revision: number): readonly EtcdChange[] | undefined {
    if (revision < this.compacted) return undefined;
    let low = 0;
    let high = this.#history.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#history[middle]?.revision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low === this.#history.length ? NOTHING : this.#history.slice(low);
  }

  /** The first revision from this one on that this history may have had. */
  given(revision: number): number {
    const { from, to } = this.#gap;
    return revision > from && revision <= to ? to + 1 : revision;
  }

  compact(revision: number): void {
    this.compacted = Math.max(this.compacted, Math.min(revision, this.revision));
    this.#history = this.#history.filter((change) => change.revision > this.compacted);
  }

  backup(): Backup {
    return { revision: this.revision, objects: new Map(this.#objects) };
  }

  /**
   * Goes back to `backup`. Later writes get versions that were never given before, as the documentation of Kubernetes asks for
   * (`etcdutl snapshot restore --bump-revision`): where they repeat, a compare-and-swap means nothing any more. With `bumped` the
   * versions of lists go on as well, else they go back, too, until the next write. Returns a revision that no write before or after has.
   */
  restore(backup: Backup, bumped: boolean): number {
    this.#skipTo = Math.max(this.#skipTo, this.revision + RESTORE_GAP);
    this.#objects = new Map(backup.objects);
    this.revision = bumped ? this.#skipTo : backup.revision;
    this.#gap = { from: this.revision, to: this.#skipTo };
    this.compacted = this.revision;
    this.#history = [];
    this.#ranges.clear();
    this.incarnation += 1;
    return this.#skipTo;
  }

  /** Calls `observer` after each change, synchronously; for watch caches and for the world's own truth. */
  observe(observer: (change: EtcdChange) => void): () => void {
    this.#observers.add(observer);
    return () => this.#observers.delete(observer);
  }

  #nextRevision(): number {
    this.revision = Math.max(this.revision, this.#skipTo) + 1;
    return this.revision;
  }

  #record(change: EtcdChange): void {
    this.#history.push(change);
    for (const prefix of this.#ranges.keys()) if (change.key.startsWith(prefix)) this.#ranges.delete(prefix);
    for (const observer of this.#observers) observer(change);
  }
}
