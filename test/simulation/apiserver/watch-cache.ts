/**
 * The watch cache of one resource: it follows etcd with a lag, serves watches and NotOlderThan lists, and learns of progress
 * without events only when a consistent read asks for it (which is what the real one does).
 */
import type { Timers } from "../../../shared/runtime/clock.ts";
import type { Etcd, EtcdChange, Stored } from "./etcd.ts";

export interface CacheWatcher {
  /** A change that the cache has just applied. */
  event(change: EtcdChange): void;
  /** The cache's state is void (etcd was restored, the server restarted): the stream ends. */
  closed(): void;
}

export class WatchCache {
  readonly #etcd: Etcd;
  readonly #timers: Timers;
  readonly #prefix: string;
  readonly #lagMs: () => number;
  readonly #watchers = new Set<CacheWatcher>();
  readonly #waiting = new Set<() => void>();
  #objects = new Map<string, Stored>();
  #pending: { readonly revision: number; readonly change: EtcdChange | undefined }[] = [];
  #stop: () => void;
  #running = false;
  #generation = 0;
  revision = 0;
  /** Watches from before this revision are expired here: this server's memory begins there. */
  windowFrom = 0;
  /** Beside what is drawn for each batch. */
  extraLagMs = 0;

  constructor(etcd: Etcd, timers: Timers, prefix: string, lagMs: () => number) {
    this.#etcd = etcd;
    this.#timers = timers;
    this.#prefix = prefix;
    this.#lagMs = lagMs;
    this.#stop = etcd.observe((change) => {
      if (change.key.startsWith(prefix)) this.#enqueue(change.revision, change);
    });
    this.reset();
  }

  /** Reads everything from etcd again, as after a restart of the server; ends all watches. */
  reset(): void {
    this.#generation += 1;
    this.#pending = [];
    this.#running = false;
    this.#objects = new Map(this.#etcd.range(this.#prefix).map((stored) => [stored.key, stored]));
    this.revision = this.#etcd.revision;
    this.windowFrom = 0;
    for (const watcher of [...this.#watchers]) watcher.closed();
    this.#watchers.clear();
    this.#wake();
  }

  /** The server is started again: what was before it does not know. */
  restart(): void {
    this.reset();
    this.windowFrom = this.revision;
  }

  close(): void {
    this.#stop();
    this.reset();
  }

  /** A consistent read happened: the cache will reach etcd's present revision even when no event does. */
  requestProgress(): void {
    if (this.revision < this.#etcd.revision) this.#enqueue(this.#etcd.revision, undefined);
  }

  range(prefix: string): Stored[] {
    return [...this.#objects.values()]
      .filter((stored) => stored.key.startsWith(prefix))
      .sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /**
   * The state at the oldest revision that this cache may still answer a NotOlderThan list of `wanted` from: what another server
   * behind the same address has that lags more. Undefined when the history does not reach back.
   */
  oldest(wanted: number, prefix: string): { readonly revision: number; readonly items: readonly Stored[] } | undefined {
    const revision = this.#etcd.given(wanted);
    const changes = this.#etcd.changesSince(revision);
    if (changes === undefined) return undefined;
    const objects = new Map(this.#objects);
    for (const { key, before, revision: at } of [...changes].reverse()) {
      if (!key.startsWith(this.#prefix) || at > this.revision) continue;
      if (before === undefined) objects.delete(key);
      else objects.set(key, before);
    }
    const items = [...objects.values()].filter(({ key }) => key.startsWith(prefix));
    return { revision, items: items.sort((a, b) => (a.key < b.key ? -1 : 1)) };
  }

  watch(watcher: CacheWatcher): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** Resolves true when the cache reaches `revision` within `timeoutMs`. */
  reached(revision: number, timeoutMs: number): Promise<boolean> {
    if (this.revision >= revision) return Promise.resolve(true);
    return new Promise((resolve) => {
      const finish = (value: boolean): void => {
        timer.cancel();
        this.#waiting.delete(check);
        resolve(value);
      };
      const check = (): void => {
        if (this.revision >= revision) finish(true);
      };
      const timer = this.#timers.after(timeoutMs, () => finish(false));
      this.#waiting.add(check);
    });
  }

  #enqueue(revision: number, change: EtcdChange | undefined): void {
    this.#pending.push({ revision, change });
    if (!this.#running) this.#next();
  }

  #next(): void {
    this.#running = this.#pending.length > 0;
    if (!this.#running) return;
    const generation = this.#generation;
    this.#timers.after(this.#lagMs() + this.extraLagMs, () => {
      if (generation !== this.#generation) return;
      // All that is pending arrives together after the lag, in order.
      const batch = this.#pending;
      this.#pending = [];
      for (const { revision, change } of batch) this.#apply(revision, change);
      this.#wake();
      this.#next();
    });
  }

  #apply(revision: number, change: EtcdChange | undefined): void {
    if (revision <= this.revision) return;
    this.revision = revision;
    if (change === undefined) return;
    if (change.after === undefined) this.#objects.delete(change.key);
    else this.#objects.set(change.key, change.after);
    for (const watcher of this.#watchers) watcher.event(change);
  }

  #wake(): void {
    for (const check of [...this.#waiting]) check();
  }
}
