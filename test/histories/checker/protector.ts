/** What one stored version of a protector says: promise, counts and reservations. */
import type { ObjectVersion } from "./history.ts";
import { at, integer, list, text } from "./json.ts";
import type { PodReservation, StoredRecord } from "./packed.ts";
import { unpack } from "./packed.ts";
import { nameOfUid } from "./pods.ts";

export interface CellEntry {
  readonly available: number;
  /** The revision of the cell that was counted; undefined where nobody has counted, or in shards. */
  readonly position: number | undefined;
  readonly isCounted: boolean;
  readonly isOnHold: boolean;
  readonly epoch: number;
  readonly cutoff: string;
  readonly specHash: string;
  /** By the name of the UID. */
  readonly reservations: ReadonlyMap<string, PodReservation>;
  /** Of all reservations, with and without identity. */
  readonly weight: number;
}

export interface StoredState {
  readonly version: ObjectVersion;
  readonly uid: string;
  readonly generation: number;
  readonly spec: unknown;
  readonly minAvailable: number;
  readonly cells: ReadonlyMap<string, CellEntry>;
}

/** Undefined for a deletion. */
export function stateOf(version: ObjectVersion): StoredState | undefined {
  const { object } = version;
  if (object === undefined) return undefined;
  const cells = new Map(list(object, "status", "cells").map((cell) => [text(cell, "cellID"), entryOf(cell)]));
  return {
    version,
    uid: text(object, "metadata", "uid"),
    generation: integer(object, "metadata", "generation"),
    spec: at(object, "spec"),
    minAvailable: integer(object, "spec", "minAvailable"),
    cells,
  };
}

function entryOf(cell: unknown): CellEntry {
  const aggregation = at(cell, "aggregation");
  const position = text(aggregation, "resourceVersion");
  const reservations = new Map<string, PodReservation>();
  let weight = 0;
  for (const bucket of list(cell, "admissionHistory", "buckets")) weight += addBucket(bucket, reservations);
  return {
    available: integer(aggregation, "availableReplicas"),
    position: /^[0-9]+$/.test(position) ? Number(position) : undefined,
    isCounted: position !== "" || at(aggregation, "lastEventTime") !== undefined,
    isOnHold: text(aggregation, "hold") !== "",
    epoch: integer(aggregation, "epoch"),
    cutoff: text(aggregation, "maturityCutoff"),
    specHash: text(aggregation, "specHash"),
    reservations,
    weight,
  };
}

/** Adds what one bucket has; the weight that it adds. */
function addBucket(bucket: unknown, reservations: Map<string, PodReservation>): number {
  const counter = at(bucket, "counter");
  const own = typeof counter === "number" ? (counter < 0 ? 1 : counter) : 1;
  const packed = text(bucket, "packed");
  if (packed !== "") {
    for (const [uid, reservation] of unpack(packed, nameOfUid)) reservations.set(uid, reservation);
    return own;
  }
  const podUid = text(bucket, "podUID");
  if (podUid === "") return own;
  const uid = nameOfUid(podUid);
  const before = reservations.get(uid);
  const records = new Map(before?.records);
  records.set(text(bucket, "operation") || "EVICT", recordOf(bucket));
  // The first bucket of a UID carries its weight.
  reservations.set(uid, { weight: before?.weight ?? own, records });
  return before === undefined ? own : 0;
}

function recordOf(bucket: unknown): StoredRecord {
  const nonces = text(bucket, "nonce")
    .split(",")
    .filter((nonce) => nonce !== "" && nonce !== "+");
  return { nonces, paid: at(bucket, "paid") === true, admittedMs: Date.parse(text(bucket, "startTime")) };
}

/** The pods that may be taken down to the promise: the estimate of docs/design.md#admission. */
export function estimate(state: StoredState, isCertain: (cell: string) => boolean = () => true): number {
  let sum = 0;
  for (const [cell, entry] of state.cells)
    if (entry.isCounted && !entry.isOnHold && isCertain(cell)) sum += Math.max(0, entry.available - entry.weight);
  return sum;
}

export function counted(state: StoredState): number {
  return [...state.cells.values()].reduce((sum, { available }) => sum + available, 0);
}

/** Whether the protector decides about such a disruption at all. */
export function isEnforcing(state: StoredState, operation: string): boolean {
  const { spec } = state;
  if (state.minAvailable <= 0 || at(spec, "suspend") !== undefined) return false;
  if (["Warn", "Off"].includes(text(spec, "enforcement"))) return false;
  const operations = list(spec, "protectedOperations");
  return operations.length === 0 || operations.includes(operation);
}
