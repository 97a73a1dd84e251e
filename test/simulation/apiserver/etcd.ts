/**
 * etcd as the API server sees it: one revision counter, compare-and-swap, a history that can be compacted, and backups.
 * A restored backup gives revisions other contents than before.
 */

export type Json = { readonly [key: string]: unknown };

export interface EtcdObject {
  /** `resource/namespace/name`. */
  readonly key: string;
  readonly revision: number;
  readonly value: Json;
}

export interface EtcdChange {
  readonly revision: number;
  readonly key: string;
  /** Undefined when the object was created by this change. */
  readonly before: EtcdObject | undefined;
  /** Undefined when the object was deleted by this change. */
  readonly after: EtcdObject | undefined;
}

export interface EtcdBackup {
  readonly revision: number;
  readonly objects: ReadonlyMap<string, EtcdObject>;
}

type EtcdWriteResult =
  | { readonly kind: "ok"; readonly stored: EtcdObject }
  | { readonly kind: "mismatch"; readonly found: EtcdObject | undefined };

const RESTORE_GAP = 1000;
const NOTHING: readonly EtcdChange[] = [];

export class Etcd {
  /** Current revision; every successful write raises it by one. */
  revision = 1000;
  /** Changes up to this revision are no longer in the history. */
  compacted = 1000;
  /** Raised by each restore. A server whose caches are of an older incarnation has to read again. */
  incarnation = 0;
  #skipTo = 0;
  /** Revisions that this history skipped: after `from`, up to `to`. */
  #gap = { from: 0, to: 0 };
  #objects = new Map<string, EtcdObject>();
  #history: EtcdChange[] = [];
  /** Valid results of {@link range}. */
  readonly #ranges = new Map<string, readonly EtcdObject[]>();
  readonly #observers = new Set<(change: EtcdChange) => void>();

  get(key: string): EtcdObject | undefined {
    return this.#objects.get(key);
  }

  /** All objects whose key begins with `prefix`, in key order. */
  range(prefix: string): readonly EtcdObject[] {
    const known = this.#ranges.get(prefix);
    if (known !== undefined) return known;
    const found: EtcdObject[] = [];
    for (const [key, stored] of this.#objects) if (key.startsWith(prefix)) found.push(stored);
    found.sort((a, b) => (a.key < b.key ? -1 : 1));
    this.#ranges.set(prefix, found);
    return found;
  }

  /** Writes `value` if the object is at `expected` (0: absent; undefined: at any revision). */
  put(key: string, value: Json, expected?: number): EtcdWriteResult {
    const before = this.#objects.get(key);
    if (expected !== undefined && (before?.revision ?? 0) !== expected) return { kind: "mismatch", found: before };
    const after: EtcdObject = { key, revision: this.#nextRevision(), value };
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

  /** Changes after `revision`; undefined when some of them were compacted. */
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

  /** The first revision, from this one on, that this history may contain. */
  given(revision: number): number {
    const { from, to } = this.#gap;
    return revision > from && revision <= to ? to + 1 : revision;
  }

  compact(revision: number): void {
    this.compacted = Math.max(this.compacted, Math.min(revision, this.revision));
    this.#history = this.#history.filter((change) => change.revision > this.compacted);
  }

  backup(): EtcdBackup {
    return { revision: this.revision, objects: new Map(this.#objects) };
  }

  /**
   * Goes back to `backup`. Later writes get revisions that no write has had, as the documentation of Kubernetes asks
   * for (`etcdutl snapshot restore --bump-revision`): a compare-and-swap needs revisions that do not repeat. With
   * `bumped` the revisions of lists continue, too; without, they go back until the next write. Returns a revision that
   * no write before or after has.
   */
  restore(backup: EtcdBackup, bumped: boolean): number {
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

  /** Calls `observer` synchronously after each change; for watch caches and for the truth. */
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
