/**
 * The messages of the plugin to its page: a `hello` with the history, then updates with the changes since. Times are
 * Unix milliseconds of this machine's wall clock, which plugin and browser share. The page parses what it receives.
 */
import * as v from "valibot";
import { HEALTH_STATES } from "../health.ts";

/** Stands for an unknown time. */
export const UNKNOWN_MS = 0;
/** What the charts show. */
export const WINDOW_MS = 3_600_000;

const text = v.string();
const number = v.number();
const State = v.picklist(HEALTH_STATES);

/** A protector. */
const PLACE = {
  /** Index in the list of cores. */
  core: number,
  namespace: text,
  name: text,
};

const ProtectorRow = v.object({
  ...PLACE,
  state: State,
  required: number,
  available: number,
  total: number,
  reserved: number,
  allowed: number,
  /** Cells with pods of the protector, by index in the list of cells, and how many of these are counted and current. */
  cells: v.array(number),
  cellsOk: number,
  /** The time of the oldest reservation. */
  oldestMs: number,
});
export type ProtectorRow = v.InferOutput<typeof ProtectorRow>;

const CellRow = v.object({
  core: number,
  cell: text,
  protectors: number,
  available: number,
  reserved: number,
  /** The newest and the oldest heartbeat that the cell's aggregator has written to a protector. */
  newestMs: number,
  oldestMs: number,
  /** The number of protectors that do not count the cell, by cause. */
  onHold: number,
  stale: number,
  notCounted: number,
});
export type CellRow = v.InferOutput<typeof CellRow>;

const ReservationRow = v.object({ ...PLACE, cell: text, pod: text, operation: text, weight: number, sinceMs: number });
export type ReservationRow = v.InferOutput<typeof ReservationRow>;

const RefusalRow = v.object({
  id: text,
  ...PLACE,
  /** The word for the webhook's action, and the Event's reason. */
  what: text,
  reason: text,
  message: text,
  count: number,
  firstMs: number,
  lastMs: number,
});
export type RefusalRow = v.InferOutput<typeof RefusalRow>;

const CapacityPoint = v.object({ atMs: number, available: number, required: number, reserved: number });
export type CapacityPoint = v.InferOutput<typeof CapacityPoint>;

const FleetPoint = v.object({
  ...CapacityPoint.entries,
  /** Pods that promises lack, at the worst moment. */
  missing: number,
  denied: number,
});
export type FleetPoint = v.InferOutput<typeof FleetPoint>;

const WatchRow = v.object({
  core: number,
  what: v.picklist(["protectors", "Events"]),
  state: v.picklist(["starting", "live", "stale", "forbidden"]),
  sinceMs: number,
  why: text,
});
export type WatchRow = v.InferOutput<typeof WatchRow>;

export const Hello = v.object({
  version: text,
  cores: v.array(text),
  /** The namespace, or "" for all. */
  namespace: text,
  startedMs: number,
  slotMs: number,
  history: v.array(FleetPoint),
});
export type Hello = v.InferOutput<typeof Hello>;

export const Update = v.object({
  atMs: number,
  cellNames: v.optional(v.array(text)),
  rows: v.optional(v.array(ProtectorRow)),
  gone: v.optional(v.array(text)),
  cells: v.optional(v.array(CellRow)),
  reservations: v.optional(v.object({ all: number, oldest: v.array(ReservationRow) })),
  /** New and repeated refusals, newest last. */
  refusals: v.optional(v.array(RefusalRow)),
  /** The present slot, or one that has just begun. */
  point: v.optional(FleetPoint),
  watches: v.optional(v.array(WatchRow)),
});
export type DashboardUpdate = v.InferOutput<typeof Update>;

export const Detail = v.object({
  row: ProtectorRow,
  source: text,
  derivation: text,
  suspended: text,
  cells: v.array(
    v.object({
      cell: text,
      state: text,
      available: number,
      total: number,
      reserved: number,
      heartbeatMs: number,
      lastEventMs: number,
    }),
  ),
  reservations: v.array(ReservationRow),
  reservationCount: number,
  conditions: v.array(v.object({ type: text, status: text, reason: text, message: text })),
  refusals: v.array(RefusalRow),
  history: v.array(CapacityPoint),
});
export type Detail = v.InferOutput<typeof Detail>;

export function rowKey({ core, namespace, name }: Pick<ProtectorRow, "core" | "namespace" | "name">): string {
  return `${core}/${namespace}/${name}`;
}
