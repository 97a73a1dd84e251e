/**
 * A cell's position as it is published (design 5.1, 5.4): one version, or one for each shard in which the pods are watched. Read anew
 * here, so that the checks share no mistake with the product.
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

  /** The version at which a pod of this UID was seen, or its absence. */
  of(uid: string): number {
    return this.parts[shardOf(uid, this.parts.length)] ?? Number.NaN;
  }

  /** The version of one of `count` shards, which is no less than there are here. */
  at(shard: number, count: number): number {
    return this.parts[Math.floor((shard * this.parts.length) / count)] ?? Number.NaN;
  }

  /** Whether some pod, whatever its UID, would be seen at an older version than before: also where the number of shards has changed. */
  isBehind(before: Position): boolean {
    // Both are powers of two, so that each shard of the larger number is within one of the smaller.
    const count = Math.max(this.parts.length, before.parts.length);
    for (let shard = 0; shard < count; shard += 1) if (this.at(shard, count) < before.at(shard, count)) return true;
    return false;
  }

  get newest(): number {
    return Math.max(...this.parts);
  }
}
