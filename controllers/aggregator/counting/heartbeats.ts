import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { parseMs } from "../../../shared/schema/time.ts";

/** The length of a `metav1.MicroTime` in UTC. Such texts sort by time, and need no parsing. */
const MICRO_TIME_LENGTH = "2026-01-01T00:00:00.000000Z".length;

/** The newest heartbeat of each cell over all protectors, Unix milliseconds. */
export function newestHeartbeats(protectors: Iterable<PodProtector>): ReadonlyMap<string, number> {
  const newest = new Map<string, string>();
  for (const { status } of protectors) {
    for (const { cellID, aggregation } of status?.cells ?? []) {
      const heartbeat = aggregation?.heartbeatTime;
      // Upstream's aggregator writes no heartbeat, so a missing one does not mean that it is dead.
      if (heartbeat === undefined || heartbeat === null) continue;
      const before = newest.get(cellID);
      if (before === undefined || isLater(heartbeat, before)) newest.set(cellID, heartbeat);
    }
  }
  return new Map([...newest].map(([cellID, text]) => [cellID, parseMs(text)]));
}

/**
 * IDs of the cells whose newest heartbeat is older than `beforeMs` (Unix milliseconds). Their aggregator is dead: a
 * live one writes every protector once per heartbeat interval.
 */
export function staleCells(protectors: Iterable<PodProtector>, beforeMs: number): ReadonlySet<string> {
  return new Set([...newestHeartbeats(protectors)].filter(([, atMs]) => atMs < beforeMs).map(([cellID]) => cellID));
}

function isLater(text: string, than: string): boolean {
  if (isMicroTime(text) && isMicroTime(than)) return text > than;
  return parseMs(text) > parseMs(than);
}

function isMicroTime(text: string): boolean {
  return text.length === MICRO_TIME_LENGTH && text.endsWith("Z");
}
