import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { newestHeartbeats } from "./heartbeats.ts";
import type { TrackedProtector } from "./tracked-protector.ts";

/**
 * Ids of the cells whose newest heartbeat, over all protectors, is older than `beforeMs` (Unix milliseconds): their aggregator is
 * dead, because a living one writes each protector now and then (design L7).
 */
export function staleCells(entries: Iterable<TrackedProtector>, beforeMs: number): ReadonlySet<string> {
  const newest = newestHeartbeats(protectorsOf(entries));
  return new Set([...newest].filter(([, atMs]) => atMs < beforeMs).map(([cellID]) => cellID));
}

function* protectorsOf(entries: Iterable<TrackedProtector>): Iterable<PodProtector> {
  for (const { protector } of entries) yield protector;
}
