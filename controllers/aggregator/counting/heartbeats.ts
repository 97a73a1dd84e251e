import type { Randomness } from "../../../shared/runtime/clock.ts";
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

/** A heartbeat comes early by up to this fraction of the interval, so that the writes of the protectors spread out. */
const SPREAD = 0.2;

/** Milliseconds from a write of this process to the heartbeat after it. */
export function nextHeartbeatInMs(heartbeatMs: number, random: Randomness): number {
  return heartbeatMs * (1 - SPREAD * random.fraction());
}

interface FirstHeartbeat {
  /** As the last leader stored it: undefined or unreadable where this cell has none. */
  readonly heartbeatTime: string | null | undefined;
  /** Wall clock, Unix milliseconds. */
  readonly nowMs: number;
  readonly heartbeatMs: number;
  readonly staleAfterMs: number;
}

/**
 * Milliseconds to the first heartbeat of a new leader, which goes on at the pace of the last one. What became due
 * meanwhile comes soon, and not all at once: before it would be stale, if it can.
 */
export function firstHeartbeatInMs(
  { heartbeatTime, nowMs, heartbeatMs, staleAfterMs }: FirstHeartbeat,
  random: Randomness,
): number {
  const atMs = parseMs(heartbeatTime);
  if (atMs === 0) return heartbeatMs * random.fraction();
  const ageMs = Math.max(0, nowMs - atMs);
  const dueInMs = nextHeartbeatInMs(heartbeatMs, random) - ageMs;
  if (dueInMs > 0) return dueInMs;
  const freshMs = staleAfterMs - ageMs;
  return Math.min(freshMs > 0 ? freshMs / 2 : Number.POSITIVE_INFINITY, SPREAD * heartbeatMs) * random.fraction();
}

function isLater(text: string, than: string): boolean {
  if (isMicroTime(text) && isMicroTime(than)) return text > than;
  return parseMs(text) > parseMs(than);
}

function isMicroTime(text: string): boolean {
  return text.length === MICRO_TIME_LENGTH && text.endsWith("Z");
}
