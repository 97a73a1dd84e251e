/** Takes over into the world what webhook and aggregator have written. */

import type { Account } from "../protocol/aggregator.ts";
import { type CellForm, HOLD, type ReservationForm } from "../protocol/stored.ts";
import { isNew, type Review, type Written } from "../protocol/webhook.ts";
import { type BrokenInvariant, countViolation } from "./invariants.ts";
import {
  type Nonce,
  OPERATIONS,
  type SmallWorld,
  type WorldCell,
  type WorldPod,
  type WorldRecord,
  type WorldReservation,
} from "./world.ts";

/** Of one reviewed pod. `removed` is the number of a nonce that was taken back. */
export function storeWritten(
  world: SmallWorld,
  review: Review,
  written: Written,
  mayCommit: boolean,
  removed?: number,
): BrokenInvariant | undefined {
  const cell = world.cells[review.cell];
  const pod = cell?.pods[review.pod];
  if (cell === undefined || pod === undefined) return undefined;
  const reviewed = written.reviewed ?? [review.pod];
  let other = 0;
  for (const [index, one] of cell.pods.entries())
    if (!reviewed.includes(index) && one.reservation !== undefined)
      one.reservation.packed = written.packed[other++] === true;
  const before = pod.reservation;
  const seen = new Array<boolean>(cell.aggregators.length).fill(false);
  const isAfterRestore = cell.pods.some(({ lost }) => lost.length > 0);
  const fresh: Nonce = { inFlight: mayCommit, isAfterRestore, seen };
  pod.reservation = reservationOf(before, written.form, (record, form, operation) => {
    const nonces = (record?.nonces ?? []).filter((_, index) => operation !== review.operation || index !== removed);
    if (form.nonces.some(isNew)) nonces.push(fresh);
    const version = form.version === 0 ? review.version : (record?.version ?? review.version);
    return { version, paid: form.paid, nonces };
  });
  return removedViolation(before, pod);
}

/** Of an aggregator that has accounted with the snapshot at `position`. */
export function storeAccount(
  cell: WorldCell,
  which: number,
  position: number,
  { written, isLost, isRestoreFound, adoptedEpoch }: Account,
): BrokenInvariant | undefined {
  const { isCounted, position: storedBefore, epoch: epochBefore } = cell;
  const aggregator = cell.aggregators[which];
  if (aggregator === undefined) return undefined;
  const isUnaware = written !== undefined && aggregator.isLost && epochBefore > aggregator.adoptedEpoch;
  const violation = written === undefined ? undefined : storeCount(cell, position, written, aggregator.isLost);
  meetAll(cell, which);
  if (isRestoreFound) aggregator.hasIncident = true;
  else if (written !== undefined) aggregator.hasIncident = false;
  aggregator.seenEpoch = Math.max(epochBefore, cell.epoch);
  aggregator.adoptedEpoch = adoptedEpoch;
  if (written !== undefined) {
    aggregator.position = position;
    aggregator.adoptedEpoch = Math.max(adoptedEpoch, cell.epoch);
  }
  // What is lost is remembered once the hold is written.
  if (written !== undefined || !isLost)
    Object.assign(aggregator, { isKnowing: true, knewCounts: cell.isCounted, knownEpoch: cell.epoch });
  aggregator.sawHold = cell.isOnHold;
  if (isUnaware) return "S3: the count is of a history that is known to be lost";
  const before = { isCounted, position: storedBefore, epoch: epochBefore };
  return violation ?? (written === undefined ? undefined : countViolation(cell, position, before));
}

function storeCount(
  cell: WorldCell,
  position: number,
  written: CellForm,
  isCountLost: boolean,
): BrokenInvariant | undefined {
  const { isCounted, total, ready, available, isOfEditedSelector, cutoff, epoch, hold } = written;
  if (hold !== undefined && hold !== HOLD) for (const aggregator of cell.aggregators) aggregator.sawHold = false;
  Object.assign(cell, { isCounted, total, ready, available, isOfEditedSelector, cutoff, epoch });
  cell.isOnHold = hold !== undefined;
  if (written.position === 0) Object.assign(cell, { position, isCountLost });
  let violation: BrokenInvariant | undefined;
  for (const [index, pod] of cell.pods.entries()) {
    const before = pod.reservation;
    pod.reservation = reservationOf(before, written.reservations[index], (record) => record);
    violation ??= removedViolation(before, pod);
  }
  return violation;
}

type Merge = (
  record: WorldRecord | undefined,
  form: NonNullable<ReservationForm["records"][number]>,
  operation: number,
) => WorldRecord | undefined;

function reservationOf(
  before: WorldReservation | undefined,
  form: ReservationForm | undefined,
  merge: Merge,
): WorldReservation | undefined {
  if (form === undefined) return undefined;
  const records = form.records.map((record, operation) =>
    record === undefined ? undefined : merge(before?.records[operation], record, operation),
  );
  return { weight: form.weight, packed: form.packed, records };
}

/** S5: the record of a request that may still be committed stays. */
function removedViolation(
  before: WorldReservation | undefined,
  { reservation }: WorldPod,
): BrokenInvariant | undefined {
  for (const [operation, record] of (before?.records ?? []).entries())
    for (const nonce of record?.nonces ?? [])
      if (nonce.inFlight && reservation?.records[operation]?.nonces.includes(nonce) !== true)
        return `S5: the record of the ${OPERATIONS[operation]} is removed, and it can still be committed`;
  return undefined;
}

/** True when the aggregator has met every admission. */
export function isSeenBy({ pods }: WorldCell, which: number): boolean {
  for (const { reservation } of pods)
    for (const record of reservation?.records ?? [])
      for (const { seen } of record?.nonces ?? []) if (seen[which] !== true) return false;
  return true;
}

/** The aggregator has met every admission, or, a new one, none. */
export function meetAll({ pods }: WorldCell, which: number, isSeen = true): void {
  for (const { reservation } of pods)
    for (const record of reservation?.records ?? []) for (const { seen } of record?.nonces ?? []) seen[which] = isSeen;
}

/** What is stored, in short. */
export function storyOf({ cells }: SmallWorld): string {
  const told = cells.map(({ isCounted, isOnHold, available, pods }) => {
    const reserved = pods.reduce((sum, { reservation }) => sum + (reservation?.weight ?? 0), 0);
    const records = pods.flatMap(({ reservation }) => reservation?.records ?? []).filter((one) => one !== undefined);
    const counted = isCounted ? `${available} counted, ${reserved} reserved, ${records.length} records` : "not counted";
    return isOnHold ? `${counted}, on hold` : counted;
  });
  return told.join("; ");
}
