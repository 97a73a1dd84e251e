/**
 * The watch cache of one resource. It follows etcd with a lag and serves watches and NotOlderThan lists. Without events
 * it learns of progress only when a consistent read asks for it, as the real one does.
 */
import type { Timers } from "../../../shared/runtime/clock.ts";
import type { Etcd, EtcdChange, EtcdObject } from "./etcd.ts";
import { prefixOf, RESOURCES, type RequestTarget } from "./resources.ts";

interface CacheWatcher {
  /** The cache has applied this change. */
  event(change: EtcdChange): void;
  /** The cache was reset, because etcd was restored or the server restarted. The stream ends. */
  closed(): void;
}

export class WatchCache {
  readonly #etcd: Etcd;
  readonly #timers: Timers;
  readonly #prefix: string;
  readonly #lagMs: () => number;
  readonly #watchers = new Set<CacheWatcher>();
  readonly #waiting = new Set<() => void>();
  #objects = new Map<string, EtcdObject>();
  #pending: { readonly revision: number; readonly change: EtcdChange | undefined }[] = [];
  #stop: () => void;
  #running = false;
  #generation = 0;
  revision = 0;
  /** Watches from before this revision are expired, because the server has started since. */
  windowFrom = 0;
  /** Added to the lag that is drawn for each batch. */
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

  /** Reads everything from etcd again, as after a restart of the server, and ends all watches. */
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

  /** Restarts the server, which then does not know what was before. */
  restart(): void {
    this.reset();
    this.windowFrom = this.revision;
  }

  close(): void {
    this.#stop();
    this.reset();
  }

  /** After a consistent read the cache reaches etcd's present revision even without an event. */
  requestProgress(): void {
    if (this.revision < this.#etcd.revision) this.#enqueue(this.#etcd.revision, undefined);
  }

  get(key: string): EtcdObject | undefined {
    return this.#objects.get(key);
  }

  range(prefix: string): EtcdObject[] {
    return [...this.#objects.values()]
      .filter((stored) => stored.key.startsWith(prefix))
      .sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /**
   * The oldest state that may answer a NotOlderThan list of `wanted`, as another server behind the same address with a
   * larger lag would have it. Undefined when the history does not reach back so far.
   */
  oldest(
    wanted: number,
    prefix: string,
  ): { readonly revision: number; readonly items: readonly EtcdObject[] } | undefined {
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

  /** Resolves to whether the cache reaches `revision` within `timeoutMs`. */
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
      // All pending changes arrive together after the lag, in order.
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

/**
 * The watch caches behind one address: one for each resource, and one for each shard, because connections of shards may
 * reach different servers. So each shard has its own lag.
 */
export class WatchCaches {
  /** By resource, then by shard selector; "" is the whole collection. */
  readonly #caches = new Map<string, Map<string, WatchCache>>();
  readonly #make: (prefix: string) => WatchCache;

  constructor(etcd: Etcd, timers: Timers, lagMs: () => number) {
    this.#make = (prefix) => new WatchCache(etcd, timers, prefix, lagMs);
    for (const resource of RESOURCES)
      this.#caches.set(resource.plural, new Map([["", this.#make(prefixOf(resource, undefined))]]));
  }

  /** The cache that serves this request. Throws where the model does not serve the resource. */
  of({ resource, query }: Pick<RequestTarget, "resource" | "query">): WatchCache {
    const shard = query.get("shardSelector") ?? "";
    const caches = this.#caches.get(resource.plural);
    if (caches === undefined) throw new Error(`no watch cache of ${resource.plural}`);
    let cache = caches.get(shard);
    if (cache === undefined) {
      cache = this.#make(prefixOf(resource, undefined));
      caches.set(shard, cache);
    }
    return cache;
  }

  /** After a consistent read of the resource, also the caches of its shards make progress. */
  requestProgress(plural: string): void {
    for (const cache of this.#caches.get(plural)?.values() ?? []) cache.requestProgress();
  }

  /** The caches of a resource's shards, by selector. */
  shards(plural: string): ReadonlyMap<string, WatchCache> {
    return new Map([...(this.#caches.get(plural) ?? [])].filter(([shard]) => shard !== ""));
  }

  /** Resets the caches of one resource, or of all. */
  reset(plural?: string): void {
    for (const [resource, caches] of this.#caches)
      if (plural === undefined || plural === resource) for (const cache of caches.values()) cache.reset();
  }
}
