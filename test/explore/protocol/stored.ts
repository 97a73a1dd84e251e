/**
 * The stored form of a protector: `storedProtector` encodes it with the shipping code, `readCell` parses what was
 * encoded. Between the two there is always JSON.
 */

import { maturityCutoffMs } from "../../../shared/decide/availability/availability.ts";
import { specFacts, specHash } from "../../../shared/decide/availability/spec-facts.ts";
import { encodeBuckets } from "../../../shared/decide/ledger/ledger-encode.ts";
import { hashUid, type Reservation, type ReservationRecord } from "../../../shared/decide/ledger/reservation.ts";
import { parseCell } from "../../../shared/decide/state/protector-state.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import {
  type Aggregation,
  type CellStatus,
  type Operation,
  type PodProtector,
  type PodProtectorSpec,
  parsePodProtector,
} from "../../../shared/schema/podprotector.ts";
import { formatMs, parseMs } from "../../../shared/schema/time.ts";
import { makePod, makeSpec, NOW_MS } from "../../support/decide/fixtures.ts";
import type { Bounds } from "../bounds.ts";
import { type Edits, OPERATIONS, POD, type PodStage, type WorldCell } from "../world/world.ts";

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
  readonly isCounted: boolean;
  readonly total: number;
  readonly ready: number;
  readonly available: number;
  /** -1, 0 or 1 as well. */
  readonly position: number;
  readonly isOfEditedSelector: boolean;
  readonly cutoff: number;
  readonly epoch: number;
  /** The text of the hold. */
  readonly hold: string | undefined;
  readonly reservations: readonly (ReservationForm | undefined)[];
}

export const WALL = formatMs(NOW_MS);
const SUMMARY = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
/** What -1, 0 and 1 stand for. An older position has not reached the version of a reviewed pod. */
const POSITIONS = ["7", "20", "21"];
const VERSIONS = ["5", "10", "30"];

/** The stored hold. */
export const HOLD = "Hold/0-stored";
/** What an edit of the counted selector adds to a spec. */
const EDITED = { aggregationSelector: { matchLabels: { app: "web", counted: "yes" } } };
/** How much later it is at 1 of the world's clock. */
const TICK_SECONDS = 10;

/** The aggregators' wall clock. */
export function wallMs(clock: number): number {
  return NOW_MS + clock * TICK_SECONDS * 1000;
}

/** The specs that a world may have: one protector, edited or not. */
export class Specs {
  readonly #bounds: Bounds;
  readonly #made = new Map<string, PodProtectorSpec>();

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  of(edits: Edits): PodProtectorSpec {
    const key = editsKey(edits);
    const made = this.#made.get(key) ?? this.#make(edits);
    this.#made.set(key, made);
    return made;
  }

  #make({ isMinimumRaised, isSelectorEdited, isSuspended }: Edits): PodProtectorSpec {
    const { minAvailable, compactThreshold, minReadySeconds } = this.#bounds;
    return makeSpec({
      minAvailable: minAvailable + (isMinimumRaised ? 1 : 0),
      minReadySeconds,
      admissionHistoryConfig: { compactThreshold },
      ...(isSelectorEdited ? EDITED : {}),
      ...(isSuspended ? { suspend: { enabled: true } } : {}),
    });
  }
}

export function editsKey({ isMinimumRaised, isSelectorEdited, isSuspended }: Edits): string {
  return `${isMinimumRaised ? "m" : ""}${isSelectorEdited ? "s" : ""}${isSuspended ? "u" : ""}`;
}

/** The stored counts, without reservations; of a position it is not said what it is relative to. */
export function entryForm(cell: WorldCell): Omit<CellForm, "position" | "reservations"> {
  const { isCounted, total, ready, available, isOfEditedSelector, cutoff, epoch, isOnHold } = cell;
  return { isCounted, total, ready, available, isOfEditedSelector, cutoff, epoch, hold: isOnHold ? HOLD : undefined };
}

export function entryKey(cell: WorldCell): string {
  const { isCounted, total, ready, available, isOfEditedSelector, cutoff, epoch, isOnHold } = cell;
  const flags = `${isCounted ? "c" : "-"}${isOfEditedSelector ? "s" : "-"}${isOnHold ? "h" : "-"}`;
  return `${flags}${total},${ready},${available},${cutoff},${epoch}`;
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

const READY_FOR_SECONDS: Readonly<Record<PodStage, number>> = {
  [POD.Ready]: 3600,
  [POD.TakenTerminating]: 3600,
  [POD.Maturing]: 0,
  [POD.Immature]: -TICK_SECONDS,
};

/** The pod as an apiserver shows it, at the version that record versions are relative to. */
export function podOf(pod: number, state: PodStage): Pod {
  return makePod(`db-${pod}`, {
    uid: uidOf(pod),
    resourceVersion: versionText(0),
    readyForSeconds: READY_FOR_SECONDS[state],
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
  const { compactThreshold } = specFacts(spec);
  const reservations = cell.reservations.flatMap((form, pod) => (form === undefined ? [] : [reservationOf(form, pod)]));
  return {
    cellID: cellID(index),
    aggregation: aggregationOf(cell, spec),
    admissionHistory: { buckets: encodeBuckets({ reservations, ranges: [] }, compactThreshold) },
  };
}

/** As an aggregator left it, or, of a cell that was removed, as the generator did. */
function aggregationOf(cell: CellForm, spec: PodProtectorSpec): Aggregation {
  const { isCounted, total, ready, available, position, epoch, hold, cutoff } = cell;
  if (!isCounted) return { totalReplicas: 0, availableReplicas: 0, epoch, ...(hold === undefined ? {} : { hold }) };
  const { minReadySeconds } = specFacts(spec);
  const cutoffMs = maturityCutoffMs(wallMs(cutoff), specFacts(spec));
  return {
    totalReplicas: total,
    availableReplicas: available,
    readyReplicas: ready,
    scheduledReplicas: total,
    runningReplicas: total,
    lastEventTime: WALL,
    heartbeatTime: WALL,
    epoch,
    resourceVersion: positionText(position),
    specHash: specHash(cell.isOfEditedSelector ? { ...spec, ...EDITED } : { ...spec, aggregationSelector: undefined }),
    ...(minReadySeconds > 0 ? { maturityCutoff: formatMs(cutoffMs) } : {}),
    ...(hold === undefined ? {} : { hold }),
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
  const { resourceVersion, hold, epoch = 0 } = aggregation ?? {};
  const edited = specHash({ ...protector.spec, ...EDITED });
  return {
    isCounted: resourceVersion !== undefined,
    total: aggregation?.totalReplicas ?? 0,
    ready: aggregation?.readyReplicas ?? 0,
    available: aggregation?.availableReplicas ?? 0,
    position: resourceVersion === undefined ? 0 : POSITIONS.indexOf(resourceVersion) - 1,
    isOfEditedSelector: aggregation?.specHash === edited,
    cutoff: parseMs(aggregation?.maturityCutoff) >= NOW_MS ? 1 : 0,
    epoch,
    hold,
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
