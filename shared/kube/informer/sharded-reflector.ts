import { isOlderVersion } from "../../schema/resource-version.ts";
import type { ConfirmedInformer, InformerHandler } from "./informer.ts";
import { Reflector } from "./reflector.ts";
import type { ReflectorEvent, ReflectorOptions } from "./reflector-options.ts";
import { checkShardCount, shardOf, shardSelector } from "./shards.ts";

interface ShardedReflectorOptions<T> extends Omit<ReflectorOptions<T>, "onEvent" | "owns" | "keyOf"> {
  readonly keyOf: (object: T) => string;
  /** A power of two. One shard is the whole collection, and the server needs no support for shards. */
  readonly shards: number;
  readonly onEvent?: (event: ReflectorEvent, shard: number) => void;
}

/**
 * One collection in several streams: one reflector for each shard. Together they are one informer, which is as current
 * as the shard that is furthest behind. Its position is a vector, comma-separated in the order of the shards. Each
 * shard also checks the UIDs itself, so that an apiserver without the feature only costs traffic.
 */
export class ShardedReflector<T> implements ConfirmedInformer<T> {
  readonly #shards: readonly Reflector<T>[];
  /** Shards that list again because another shard was found to be restored. */
  readonly #doubted = new Set<number>();
  /** The shard whose object {@link get} returns. */
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
      const observed = (event: ReflectorEvent): void => {
        this.#observe(event, shard);
        onEvent?.(event, shard);
      };
      return new Reflector<T>({ ...options, ...sharding, onEvent: observed });
    });
    for (const shard of this.#shards) {
      // Subscribes first, so that `get` returns the same objects that other handlers receive.
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

  /** Returns the newest object with this key: while a shard lags, two shards may have one. */
  get(key: string): T | undefined {
    return this.#keyShard.get(key)?.get(key);
  }

  /** Returns the object with this key, of any shard, that `isWanted` accepts. */
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

  /** One component for each shard, comma-separated; undefined before every shard has listed. */
  get position(): string | undefined {
    const positions = this.#shards.map((shard) => shard.position);
    return positions.includes(undefined) ? undefined : positions.join(",");
  }

  /** The position of the shard of an object with this UID. */
  positionOf(uid: string): string | undefined {
    return this.#shards[shardOf(uid, this.#shards.length)]?.position;
  }

  get synced(): boolean {
    return this.#shards.every((shard) => shard.synced);
  }

  /** The time of the shard that has been silent for the longest. */
  get heardMs(): number | undefined {
    const heard = this.#shards.map((shard) => shard.heardMs ?? Number.NEGATIVE_INFINITY);
    return Math.min(...heard);
  }

  /** The time of the shard of an object with this UID. */
  heardMsOf(uid: string): number | undefined {
    return this.#shards[shardOf(uid, this.#shards.length)]?.heardMs ?? Number.NEGATIVE_INFINITY;
  }

  get lastContactMs(): number | undefined {
    return least(this.#shards.map((shard) => shard.lastContactMs));
  }

  get confirmedSentMs(): number | undefined {
    return least(this.#shards.map((shard) => shard.confirmedSentMs));
  }

  requestEvidence(): void {
    for (const shard of this.#shards) shard.requestEvidence();
  }

  /** As {@link Reflector.distrustHistory}, in every shard. */
  distrustHistory(): void {
    for (const [shard, reflector] of this.#shards.entries()) {
      this.#doubted.add(shard);
      reflector.distrustHistory();
    }
  }

  /** As {@link Reflector.historyInDoubt}, of any shard. */
  get historyInDoubt(): boolean {
    return this.#shards.some((shard) => shard.historyInDoubt);
  }

  subscribe(handler: InformerHandler<T>): () => void {
    let confirmedMs: number | undefined;
    const withPosition = (tell: (position: string) => void): void => {
      const { position } = this;
      if (position !== undefined) tell(position);
    };
    const ends = this.#shards.map((shard) =>
      shard.subscribe({
        changed: (before, after, isListed) => handler.changed?.(before, after, isListed),
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
   * A restore affects all shards, but a list shows only the objects of its own shard. So one shard makes all shards
   * list again. The list of a doubted shard is not a new sign of a restore. The list of another shard is, even while an
   * unreachable shard is still in doubt.
   */
  #observe({ kind }: ReflectorEvent, shard: number): void {
    if (kind === "listed") this.#doubted.delete(shard);
    if (kind !== "versionWentBack" || this.#doubted.has(shard)) return;
    for (const [other, reflector] of this.#shards.entries()) {
      if (other === shard || this.#doubted.has(other)) continue;
      this.#doubted.add(other);
      reflector.distrustHistory();
    }
  }

  /**
   * An object of another shard can get the name of a deleted one, and its addition may arrive before this deletion. The
   * newer object wins: the earlier owner of a name is never newer than the later one.
   */
  #place(shard: Reflector<T>, before: T | undefined, after: T | undefined): void {
    const { keyOf, versionOf } = this.#options;
    const changed = after ?? before;
    if (changed === undefined) return;
    const key = keyOf(changed);
    const holder = this.#keyShard.get(key);
    if (after !== undefined) {
      const held = holder?.get(key);
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
