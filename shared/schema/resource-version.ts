/**
 * Versions and positions (docs/design.md#state). A resourceVersion is a string of digits and compares as an integer
 * (KEP-5504). A position is the resourceVersion that a stream has reached, or one for each shard, comma-separated; they
 * are versions of one etcd.
 */

import { MAX_NAME_LENGTH } from "./lengths.ts";

/** Most shards of the pods of one cell. */
export const MAX_SHARDS = 64;

const INTEGER = /^(0|[1-9][0-9]*)$/;

/**
 * True when the version is an integer. A cell without integer versions settles only by rule R3. The length is bounded,
 * because a status may contain a megabyte of text, which would be compared with thousands of records.
 */
export function isComparableVersion(version: string | undefined): version is string {
  return version !== undefined && version.length <= MAX_NAME_LENGTH && INTEGER.test(version);
}

/** Negative, zero or positive as `a` is older than, equal to or newer than `b`. Both must be comparable. */
export function compareVersions(a: string, b: string): number {
  if (a.length !== b.length) return a.length - b.length;
  return a === b ? 0 : a < b ? -1 : 1;
}

/** True when both are comparable and `version` is older than the other. */
export function isOlderVersion(version: string | undefined, than: string | undefined): boolean {
  return isComparableVersion(version) && isComparableVersion(than) && compareVersions(version, than) < 0;
}

/** True when both are comparable and `position` is at or past `version`. */
export function hasReached(position: string | undefined, version: string | undefined): boolean {
  return isComparableVersion(position) && isComparableVersion(version) && compareVersions(position, version) >= 0;
}

/** The components of a position; empty without a position, or when a component is not comparable. */
export function positionComponents(position: string | undefined): readonly string[] {
  if (position === undefined || position === "") return [];
  const parts = position.split(",", MAX_SHARDS + 1);
  return parts.length <= MAX_SHARDS && parts.every(isComparableVersion) ? parts : [];
}

/** The version that every shard has reached. Undefined when the position is not comparable. */
export function oldestComponent(position: string | undefined): string | undefined {
  return extreme(positionComponents(position), -1);
}

/**
 * True when a write of `next` over `stored` would make the view of some pod older: the fence. Shards are compared one
 * by one. When the number of shards has changed, pods have moved between shards, so each new component must be as new
 * as the newest stored one. False when either is not comparable.
 */
export function isBehind(next: string | undefined, stored: string | undefined): boolean {
  const nextParts = positionComponents(next);
  const storedParts = positionComponents(stored);
  if (nextParts.length === 0 || storedParts.length === 0) return false;
  const newestStored = extreme(storedParts, 1) ?? "0";
  const sameShards = nextParts.length === storedParts.length;
  return nextParts.some(
    (part, shard) => compareVersions(part, (sameShards ? storedParts[shard] : undefined) ?? newestStored) < 0,
  );
}

function extreme(parts: readonly string[], sign: 1 | -1): string | undefined {
  return parts.reduce<string | undefined>(
    (best, part) => (best === undefined || compareVersions(part, best) * sign > 0 ? part : best),
    undefined,
  );
}
