import { parseMs } from "../../../shared/decide/time.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";

/** As `metav1.MicroTime` is written: texts of this form are in the order of their times, which saves reading 10,000 of them. */
const WIRE_LENGTH = "2026-01-01T00:00:00.000000Z".length;

/** The newest heartbeat of each cell over all protectors, Unix milliseconds. */
export function newestHeartbeats(protectors: Iterable<PodProtector>): ReadonlyMap<string, number> {
  const newest = new Map<string, string>();
  for (const { status } of protectors) {
    for (const { cellID, aggregation } of status?.cells ?? []) {
      const heartbeat = aggregation?.heartbeatTime;
      // An upstream aggregator sends none; its silence says nothing.
      if (heartbeat === undefined || heartbeat === null) continue;
      const before = newest.get(cellID);
      if (before === undefined || isLater(heartbeat, before)) newest.set(cellID, heartbeat);
    }
  }
  return new Map([...newest].map(([cellID, text]) => [cellID, parseMs(text)]));
}

function isLater(text: string, than: string): boolean {
  if (isWire(text) && isWire(than)) return text > than;
  return parseMs(text) > parseMs(than);
}

function isWire(text: string): boolean {
  return text.length === WIRE_LENGTH && text.endsWith("Z");
}
