/**
 * Shards of a collection as kube-apiserver cuts it (KEP-5866): ranges of the 64-bit FNV-1a hash of the UID. Written in
 * the slow and obvious way, without code of the product.
 */
import type { Json } from "./etcd.ts";
import { metadataOf } from "./objects.ts";

interface Range {
  readonly from: bigint;
  readonly to: bigint;
}

const SELECTOR = /^shardRange\(object\.metadata\.uid, '0x([0-9a-f]{16})', '0x([0-9a-f]{16,17})'\)$/;
const MASK = 0xffffffffffffffffn;
const BITS = 64n;
const MOST_KNOWN_UIDS = 100_000;

const encoder = new TextEncoder();
const hashes = new Map<string, bigint>();

function hashOf(uid: string): bigint {
  let hash = hashes.get(uid);
  if (hash === undefined) {
    hash = 0xcbf29ce484222325n;
    for (const byte of encoder.encode(uid)) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & MASK;
    if (hashes.size >= MOST_KNOWN_UIDS) hashes.clear();
    hashes.set(uid, hash);
  }
  return hash;
}

function rangeOf(selector: string): Range | undefined {
  const [, from, to] = SELECTOR.exec(selector) ?? [];
  return from === undefined || to === undefined ? undefined : { from: BigInt(`0x${from}`), to: BigInt(`0x${to}`) };
}

/** Returns the shard of a UID among `count` equal shards. */
export function shardOf(uid: string, count: number): number {
  return count === 1 ? 0 : Number((hashOf(uid) * BigInt(count)) >> BITS);
}

/** Returns the first of `count` equal shards that a selector covers. Throws on an invalid selector. */
export function firstShardOf(selector: string, count: number): number {
  const range = rangeOf(selector);
  if (range === undefined) throw new Error(`no shard: ${selector}`);
  return Number((range.from * BigInt(count)) >> BITS);
}

/** True for a valid selector. */
export function isShardSelector(selector: string): boolean {
  return rangeOf(selector) !== undefined;
}

/** Returns the filter of a `shardSelector`; null selects everything. */
export function shardMatcher(selector: string | null): (value: Json) => boolean {
  const range = selector === null ? undefined : rangeOf(selector);
  if (range === undefined) return () => true;
  return (value) => {
    const hash = hashOf(String(metadataOf(value).uid));
    return hash >= range.from && hash < range.to;
  };
}
