/**
 * The watch caches behind one address: one for each resource, and one for each shard that is asked for, as connections to several servers
 * find them. So each shard lags for itself.
 */
import type { Timers } from "../../../shared/runtime/clock.ts";
import type { Etcd } from "./etcd.ts";
import { prefixOf, RESOURCES, type Target } from "./resources.ts";
import { WatchCache } from "./watch-cache.ts";

export class WatchCaches {
  /** By resource, then by shard selector; "" is the whole. */
  readonly #caches = new Map<string, Map<string, WatchCache>>();
  readonly #make: (prefix: string) => WatchCache;

  constructor(etcd: Etcd, timers: Timers, lagMs: () => number) {
    this.#make = (prefix) => new WatchCache(etcd, timers, prefix, lagMs);
    for (const resource of RESOURCES)
      this.#caches.set(resource.plural, new Map([["", this.#make(prefixOf(resource, undefined))]]));
  }

  /** The one that answers this request. Throws where the model does not serve the resource. */
  of({ resource, query }: Pick<Target, "resource" | "query">): WatchCache {
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

  /** A consistent read of the resource happened: whoever serves a shard of it learns of it, too. */
  requestProgress(plural: string): void {
    for (const cache of this.#caches.get(plural)?.values() ?? []) cache.requestProgress();
  }

  /** Those of the shards of a resource, by selector. */
  shards(plural: string): ReadonlyMap<string, WatchCache> {
    return new Map([...(this.#caches.get(plural) ?? [])].filter(([shard]) => shard !== ""));
  }

  /** Of one resource, or of all. */
  reset(plural?: string): void {
    for (const [resource, caches] of this.#caches)
      if (plural === undefined || plural === resource) for (const cache of caches.values()) cache.reset();
  }
}
