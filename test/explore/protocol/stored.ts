/**
 * The stored form of a protector: `storedProtector` encodes it with the shipping code, `readCell` parses what was
 * encoded. Between the two there is always JSON.
 */

import { specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import { encodeBuckets } from "../../../shared/decide/ledger/ledger-encode.ts";
import { hashUid, type Reservation, type ReservationRecord } from "../../../shared/decide/ledger/reservation.ts";
import { parseCell } from "../../../shared/decide/state/protector-state.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import {
  type CellStatus,
  type Operation,
  type PodProtector,
  type PodProtectorSpec,
  parsePodProtector,
} from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { makePod, makeSpec, NOW_MS } from "../../support/decide/fixtures.ts";
import type { Bounds } from "../bounds.ts";
import { OPERATIONS, POD, type PodStage } from "../world/world.ts";

/** One operation's record: the reviewed version, relative to what it is compared with. */
export interface RecordForm {
  /** -1, 0 or 1: older than a certain version, the same, or newer. */
  readonly version: number;
  readonly paid: boolean;
  readonly nonces: readonly string[];
}

export interface ReservationForm {
  readonly weight: number;
  readonly packed: boolean;
  /** By index of `OPERATIONS`. */
  readonly records: readonly (RecordForm | undefined)[];
}

/** One cell's entry: the reservations of pods by number. */
export interface CellForm {
  readonly total: number;
  readonly available: number;
  /** -1, 0 or 1 as well. */
  readonly position: number;
  readonly reservations: readonly (ReservationForm | undefined)[];
}

export const WALL = formatMs(NOW_MS);
const SUMMARY = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
/** What -1, 0 and 1 stand for. An older position has not reached the version of a reviewed pod. */
const POSITIONS = ["7", "20", "21"];
const VERSIONS = ["5", "10", "30"];

export function specOf({ minAvailable, compactThreshold }: Bounds): PodProtectorSpec {
  return makeSpec({ minAvailable, admissionHistoryConfig: { compactThreshold } });
}

export function cellID(cell: number): string {
  return `cell-${cell}`;
}

export function uidOf(pod: number): string {
  return `uid-${pod}`;
}

export function positionText(position: number): string {
  return POSITIONS[position + 1] ?? "";
}

function versionText(version: number): string {
  return VERSIONS[version + 1] ?? "";
}

/** Eight characters that stand for one admission. */
export function nonceText(operation: number, pod: number, index: number): string {
  return `${operation}${pod}${String(index).padStart(6, "0")}`;
}

/** The pod as an apiserver shows it, at the version that record versions are relative to. */
export function podOf(pod: number, state: PodStage): Pod {
  return makePod(`db-${pod}`, {
    uid: uidOf(pod),
    resourceVersion: versionText(0),
    readyForSeconds: state === POD.Ready || state === POD.TakenTerminating ? 3600 : undefined,
    terminating: state === POD.Terminating || state === POD.TakenTerminating,
  });
}

export function storedProtector(cells: readonly CellForm[], spec: PodProtectorSpec): PodProtector {
  const entries = cells.map((cell, index) => storedCell(cell, index, spec));
  return throughJson({
    metadata: { name: "db", namespace: "default", uid: "protector", resourceVersion: "100" },
    spec,
    status: { cells: entries, summary: SUMMARY },
  });
}

export function throughJson(protector: PodProtector): PodProtector {
  return parsePodProtector(JSON.parse(JSON.stringify(protector)));
}

function storedCell(cell: CellForm, index: number, spec: PodProtectorSpec): CellStatus {
  const { total, available, position } = cell;
  const { specHash, compactThreshold } = specFacts(spec);
  const reservations = cell.reservations.flatMap((form, pod) => (form === undefined ? [] : [reservationOf(form, pod)]));
  return {
    cellID: cellID(index),
    aggregation: {
      totalReplicas: total,
      availableReplicas: available,
      readyReplicas: available,
      scheduledReplicas: total,
      runningReplicas: total,
      lastEventTime: WALL,
      heartbeatTime: WALL,
      epoch: 0,
      resourceVersion: positionText(position),
      specHash,
    },
    admissionHistory: { buckets: encodeBuckets({ reservations, ranges: [] }, compactThreshold) },
  };
}

function reservationOf({ weight, packed, records }: ReservationForm, pod: number): Reservation {
  const byOperation = new Map<Operation, ReservationRecord>();
  for (const [index, operation] of OPERATIONS.entries()) {
    const form = records[index];
    if (form === undefined) continue;
    byOperation.set(operation, {
      podResourceVersion: versionText(form.version),
      podGeneration: undefined,
      nonces: form.nonces,
      paid: form.paid,
      startMicros: NOW_MS * 1000,
      firstMicros: NOW_MS * 1000,
    });
  }
  return {
    uid: packed ? undefined : uidOf(pod),
    uidHash: packed ? hashUid(uidOf(pod)) : undefined,
    podName: `db-${pod}`,
    weight: weight === 1 ? 1 : 0,
    records: byOperation,
  };
}

/** Reads a cell's entry. Throws when its counters and weights differ, or when a reservation is not a pod's (S7). */
export function readCell(protector: PodProtector, index: number, pods: number): CellForm {
  const stored = protector.status?.cells.find((cell) => cell.cellID === cellID(index));
  if (stored === undefined) throw new Error(`the protector has no entry of cell ${index}`);
  const { aggregation, ledger } = parseCell(stored, specFacts(protector.spec));
  const buckets = stored.admissionHistory?.buckets ?? [];
  const counters = buckets.reduce((sum, bucket) => sum + (bucket.counter ?? 1), 0);
  if (counters !== ledger.weight) throw new Error(`S7: the counters say ${counters}, the weights ${ledger.weight}`);
  const reservations = Array.from({ length: pods }, (_, pod) => formOf(ledger.get(uidOf(pod), `db-${pod}`)));
  const found = reservations.filter((form) => form !== undefined).length;
  if (found !== ledger.size) throw new Error(`S7: ${ledger.size} reservations, of which ${found} are of a pod`);
  return {
    total: aggregation?.totalReplicas ?? 0,
    available: aggregation?.availableReplicas ?? 0,
    position: POSITIONS.indexOf(aggregation?.resourceVersion ?? "") - 1,
    reservations,
  };
}

function formOf(reservation: Reservation | undefined): ReservationForm | undefined {
  if (reservation === undefined) return undefined;
  const records = OPERATIONS.map((operation) => {
    const record = reservation.records.get(operation);
    if (record === undefined) return undefined;
    const version = VERSIONS.indexOf(record.podResourceVersion ?? "") - 1;
    return { version, paid: record.paid, nonces: record.nonces };
  });
  return { weight: reservation.weight, packed: reservation.uid === undefined, records };
}
