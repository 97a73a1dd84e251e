import { parseMs } from "../../shared/decide/time.ts";
import type { Entry } from "./entry.ts";

/**
 * Ids of the cells whose newest heartbeat, over all protectors, is older than `beforeMs` (Unix milliseconds): their aggregator is
 * dead, because a living one writes each protector now and then (design L7).
 */
export function staleCells(entries: Iterable<Entry>, beforeMs: number): ReadonlySet<string> {
  const newestMs = new Map<string, number>();
  for (const { protector } of entries) {
    for (const { cellID, aggregation } of protector.status?.cells ?? []) {
      const heartbeat = aggregation?.heartbeatTime;
      // An upstream aggregator sends none; its silence says nothing.
      if (heartbeat === undefined) continue;
      newestMs.set(cellID, Math.max(newestMs.get(cellID) ?? 0, parseMs(heartbeat)));
    }
  }
  return new Set([...newestMs].filter(([, atMs]) => atMs < beforeMs).map(([cellID]) => cellID));
}
