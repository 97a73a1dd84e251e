import { isRecord } from "../../schema/check.ts";
import { MAX_SHARDS } from "../../schema/resource-version.ts";
import type { ApiClient, CallOptions } from "../client/api-client.ts";
import { withQuery } from "../client/api-path.ts";

/**
 * Shards of a collection (KEP-5866, `shardSelector`): equal ranges of the 64-bit FNV-1a hash of an object's UID,
 * computed like in kube-apiserver.
 */

const TWO_POW_32 = 2 ** 32;
/** The prime 2^40 + 0x1b3 of FNV-1a, multiplied by its two terms, because a BigInt for each character would be slow. */
const PRIME_LOW = 0x1b3;
const OFFSET_HIGH = 0xcbf29ce4;
const OFFSET_LOW = 0x84222325;

/** Returns the upper 32 bits of the FNV-1a hash of an ASCII text: enough for {@link MAX_SHARDS}. */
function hashHigh(text: string): number {
  let high = OFFSET_HIGH;
  let low = OFFSET_LOW;
  for (let index = 0; index < text.length; index++) {
    low = (low ^ text.charCodeAt(index)) >>> 0;
    const product = low * PRIME_LOW;
    high = (Math.imul(high, PRIME_LOW) + Math.floor(product / TWO_POW_32) + (low << 8)) >>> 0;
    low = product >>> 0;
  }
  return high;
}

/**
 * Throws a RangeError for a count that is not a power of two or exceeds {@link MAX_SHARDS}. With powers of two, the
 * limits of the ranges are whole numbers in the upper 32 bits.
 */
export function checkShardCount(count: number): void {
  if (!Number.isInteger(count) || count < 1 || count > MAX_SHARDS || (count & (count - 1)) !== 0) {
    throw new RangeError(`the number of shards must be 1, 2, 4, ... up to ${MAX_SHARDS}, not ${count}`);
  }
}

/** Returns which of `count` shards an object with this UID belongs to. */
export function shardOf(uid: string, count: number): number {
  return Math.floor((hashHigh(uid) / TWO_POW_32) * count);
}

/** Returns the `shardSelector` of one shard. */
export function shardSelector(shard: number, count: number): string {
  const limit = (index: number): string =>
    `0x${((BigInt(index) << 64n) / BigInt(count)).toString(16).padStart(16, "0")}`;
  return `shardRange(object.metadata.uid, '${limit(shard)}', '${limit(shard + 1)}')`;
}

/**
 * Resolves with whether the server shards this collection: it then repeats the selector in the list
 * (`metadata.shardInfo`). A server without the feature ignores the selector. Undefined without a response.
 */
export async function offersShards(api: ApiClient, path: string, options: CallOptions): Promise<boolean | undefined> {
  const query = { shardSelector: shardSelector(0, 2), limit: 1 };
  const result = await api.get(withQuery(path, query), hasShardInfo, options);
  if (result.kind === "ok") return result.object;
  return result.kind === "rejected" ? false : undefined;
}

function hasShardInfo(raw: unknown): boolean {
  return isRecord(raw) && isRecord(raw.metadata) && raw.metadata.shardInfo !== undefined;
}
