/**
 * A cell's position: one resourceVersion, or one for each shard, comma-separated (design 5.1, 5.4). Components are versions of one
 * etcd, so they compare with each other.
 */
import { compareVersions, isComparableVersion } from "../schema/resource-version.ts";

/** The components; empty when there is no position or one of them is no integer. */
export function positionComponents(position: string | undefined): readonly string[] {
  if (position === undefined || position === "") return [];
  const parts = position.split(",");
  return parts.every(isComparableVersion) ? parts : [];
}

/** The oldest component: what every shard has certainly reached. Undefined when it can't be compared. */
export function oldestComponent(position: string | undefined): string | undefined {
  return extreme(positionComponents(position), -1);
}

/**
 * True when writing `next` over `stored` would take some pod's view back (design 5.2, the fence). Shard by shard; when the number
 * of shards has changed, each new component must be as new as the newest stored one, because pods have moved between shards.
 * False when either can't be compared.
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
