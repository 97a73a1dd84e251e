/**
 * A cell's position as it is published (docs/design.md#state): one resourceVersion, or one for each shard in which the
 * pods are watched. Parsed here without code of the product.
 */
import { shardOf } from "../apiserver/shards.ts";

export class Position {
  readonly text: string;
  /** In the order of the shards. */
  readonly parts: readonly number[];

  constructor(text: string) {
    this.text = text;
    this.parts = text.split(",").map(Number);
  }

  /** The version at which the shard of this UID was seen. */
  of(uid: string): number {
    return this.parts[shardOf(uid, this.parts.length)] ?? Number.NaN;
  }

  /** The version of one of `count` shards; `count` is at least the number of shards here. */
  at(shard: number, count: number): number {
    return this.parts[Math.floor((shard * this.parts.length) / count)] ?? Number.NaN;
  }

  /** Whether some UID would be seen at an older version than before, also when the number of shards has changed. */
  isBehind(before: Position): boolean {
    // Both numbers are powers of two, so that each shard of the larger one is within one shard of the smaller.
    const count = Math.max(this.parts.length, before.parts.length);
    for (let shard = 0; shard < count; shard += 1) if (this.at(shard, count) < before.at(shard, count)) return true;
    return false;
  }

  get newest(): number {
    return Math.max(...this.parts);
  }
}
