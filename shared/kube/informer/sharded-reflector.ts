import { isOlderVersion } from "../../schema/resource-version.ts";
import type { WatchEvent } from "../stream/watch-event.ts";
import type { ConfirmedInformer, InformerHandler } from "./informer.ts";
import { Reflector, type ReflectorOptions } from "./reflector.ts";
import { checkShardCount, shardOf, shardSelector } from "./shards.ts";

export interface ShardedReflectorOptions<T> extends Omit<ReflectorOptions<T>, "onEvent" | "owns"> {
  /** A power of two. With 1 nothing is sharded, and the server needs no support for it. */
  readonly shards: number;
  readonly onEvent?: (event: WatchEvent, shard: number) => void;
}

/**
 * One collection in several streams (design 5.4): one list-watch for each shard, and together a source whose position is a vector,
 * comma-separated in the order of the shards. Each shard also checks the UIDs itself, so that an apiserver without the feature
 * costs traffic and nothing else. Everything is as current as the shard that is furthest behind.
 */
export class ShardedReflector<T> implements ConfirmedInformer<T> {
  readonly #shards: readonly Reflector<T>[];
  /** Shards that are being listed anew because of what another has shown. */
  readonly #doubted = new Set<number>();
  /** Whose object {@link get} answers with. */
  readonly #keyShard = new Map<string, Reflector<T>>();
  readonly #options: Pick<ShardedReflectorOptions<T>, "keyOf" | "versionOf">;

  constructor(options: ShardedReflectorOptions<T>) {
    const { shards: count, onEvent } = options;
    checkShardCount(count);
    this.#options = options;
    this.#shards = Array.from({ length: count }, (_, shard) => {
      const sharding =
        count === 1
          ? {}
          : {
              name: `${options.name}, shard ${shard}`,
              query: { ...options.query, shardSelector: shardSelector(shard, count) },
              owns: (uid: string) => shardOf(uid, count) === shard,
            };
      const watched = (event: WatchEvent): void => {
        this.#watched(event, shard);
        onEvent?.(event, shard);
      };
      return new Reflector<T>({ ...options, ...sharding, onEvent: watched });
    });
    for (const shard of this.#shards) {
      // The first to be told, so that `get` finds what the others are told of.
      shard.subscribe({ changed: (before, after) => this.#place(shard, before, after) });
    }
  }

  start(): void {
    for (const shard of this.#shards) shard.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#shards.map((shard) => shard.stop()));
  }

  async whenSynced(signal?: AbortSignal): Promise<void> {
    await Promise.all(this.#shards.map((shard) => shard.whenSynced(signal)));
  }

  /** The newest object of this key: while a shard is behind there may be one of each. */
  get(key: string): T | undefined {
    return this.#keyShard.get(key)?.get(key);
  }

  /** The object of this key that is wanted, in whichever shard. */
  find(key: string, isWanted: (object: T) => boolean): T | undefined {
    for (const shard of this.#shards) {
      const object = shard.get(key);
      if (object !== undefined && isWanted(object)) return object;
    }
    return undefined;
  }

  *values(): IterableIterator<T> {
    for (const shard of this.#shards) yield* shard.values();
  }

  get size(): number {
    return this.#shards.reduce((sum, shard) => sum + shard.size, 0);
  }

  /** One component for each shard, comma-separated; undefined before every shard has been listed. */
  get position(): string | undefined {
    const positions = this.#shards.map((shard) => shard.position);
    return positions.includes(undefined) ? undefined : positions.join(",");
  }

  /** The component of the shard that an object with this UID belongs to (design 5.4). */
  positionOf(uid: string): string | undefined {
    return this.#shards[shardOf(uid, this.#shards.length)]?.position;
  }

  get synced(): boolean {
    return this.#shards.every((shard) => shard.synced);
  }

  /** Of the shard that was silent for longest. */
  get heardMs(): number | undefined {
    const heard = this.#shards.map((shard) => shard.heardMs ?? Number.NEGATIVE_INFINITY);
    return Math.min(...heard);
  }

  /** Of the shard that an object with this UID belongs to. */
  heardMsOf(uid: string): number | undefined {
    return this.#shards[shardOf(uid, this.#shards.length)]?.heardMs ?? Number.NEGATIVE_INFINITY;
  }

  get lastContactMs(): number | undefined {
    return least(this.#shards.map((shard) => shard.lastContactMs));
  }

  get confirmedSentMs(): number | undefined {
    return least(this.#shards.map((shard) => shard.confirmedSentMs));
  }

  get relists(): number {
    return this.#shards.reduce((sum, shard) => sum + shard.relists, 0);
  }

  requestEvidence(): void {
    for (const shard of this.#shards) shard.requestEvidence();
  }

  /** As {@link Reflector.distrust}, in every shard. */
  distrust(): void {
    for (const [shard, watch] of this.#shards.entries()) {
      this.#doubted.add(shard);
      watch.distrust();
    }
  }

  /** As {@link Reflector.isDoubted}, of any shard. */
  get isDoubted(): boolean {
    return this.#shards.some((shard) => shard.isDoubted);
  }

  subscribe(handler: InformerHandler<T>): () => void {
    let confirmedMs: number | undefined;
    const withPosition = (tell: (position: string) => void): void => {
      const { position } = this;
      if (position !== undefined) tell(position);
    };
    const ends = this.#shards.map((shard) =>
      shard.subscribe({
        changed: (before, after) => handler.changed?.(before, after),
        relisted: () => withPosition((position) => handler.relisted?.(position)),
        advanced: () => withPosition((position) => handler.advanced?.(position)),
        confirmed: () => {
          const { confirmedSentMs } = this;
          if (confirmedSentMs === undefined || confirmedSentMs === confirmedMs) return;
          confirmedMs = confirmedSentMs;
          handler.confirmed?.(confirmedSentMs);
        },
      }),
    );
    return () => {
      for (const end of ends) end();
    };
  }

  /**
   * A server that was restored was restored for all shards, but a list shows it of its own objects only. One doubt is enough: what a list
   * that follows from it shows is no news. What another one shows is, even while a shard that can't be reached is still in doubt.
   */
  #watched({ kind }: WatchEvent, shard: number): void {
    if (kind === "listed") this.#doubted.delete(shard);
    if (kind !== "versionWentBack" || this.#doubted.has(shard)) return;
    for (const [other, watch] of this.#shards.entries()) {
      if (other === shard || this.#doubted.has(other)) continue;
      this.#doubted.add(other);
      watch.distrust();
    }
  }

  /**
   * A name can be used again by an object of another shard, whose addition may be seen before the last of the first: an object is never newer
   * than the one that has its name after it.
   */
  #place(shard: Reflector<T>, before: T | undefined, after: T | undefined): void {
    const { keyOf, versionOf } = this.#options;
    const changed = after ?? before;
    if (changed === undefined) return;
    const key = keyOf(changed);
    const holder = this.#keyShard.get(key);
    if (after !== undefined) {
      const held = holder === shard ? undefined : holder?.get(key);
      if (held === undefined || !isOlderVersion(versionOf(after), versionOf(held))) this.#keyShard.set(key, shard);
    } else if (holder === shard) {
      const other = this.#shards.find((one) => one !== shard && one.get(key) !== undefined);
      if (other === undefined) this.#keyShard.delete(key);
      else this.#keyShard.set(key, other);
    }
  }
}

function least(values: readonly (number | undefined)[]): number | undefined {
  return values.reduce((least, value) =>
    least === undefined || value === undefined ? undefined : Math.min(least, value),
  );
}
