/**
 * What the webhook decides: the shipping `planBatch` and `encodeStatus` on the stored form. Both are pure, so that each
 * distinct input is decided once and remembered. Inputs differ only by what a decision can tell apart: a version is
 * older than the reviewed one, the same, or newer.
 */
import { isDeepStrictEqual } from "node:util";
import { encodeStatus } from "../../../shared/decide/state/encode-status.ts";
import { ProtectorVersion } from "../../../shared/decide/state/protector-version.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { type Batch, planBatch } from "../../../webhook/reserve/batch.ts";
import type { PendingRequest } from "../../../webhook/reserve/pending-queue.ts";
import { NOW_MS } from "../../support/decide/fixtures.ts";
import { OPERATIONS, type PodStage, type SmallWorld, type WorldReservation } from "../world/world.ts";

/** What decisions read of a world. */
type Asked = Pick<SmallWorld, "cells" | "edits">;

import {
  type CellForm,
  cellID,
  editsKey,
  entryForm,
  entryKey,
  nonceText,
  podOf,
  type RecordForm,
  type ReservationForm,
  readCell,
  type Specs,
  storedProtector,
  throughJson,
  uidOf,
  WALL,
} from "./stored.ts";

/** A pod and an operation, as the webhook is asked. */
export interface Review {
  readonly cell: number;
  readonly pod: number;
  readonly operation: number;
  /** The pod as it was reviewed. */
  readonly state: PodStage;
  readonly version: number;
  /** The stored count has a newer version of the pod. */
  readonly isOvertaken: boolean;
}

/** The reviewed pod's reservation after an admission; other pods' stay, but may be packed by now. */
export interface Written {
  readonly form: ReservationForm | undefined;
  readonly packed: readonly boolean[];
  /** The pods that are not among the others, where more than one was reviewed. */
  readonly reviewed?: readonly number[];
}

export interface AllowedReview {
  readonly reason: string;
  /** Undefined when nothing is written. */
  readonly written: Written | undefined;
}

const NEW_NONCE = "new00000";
const READ_MS = 1;
const NO_DEADLINE = { arrivedMs: 0, deadlineMs: Number.POSITIVE_INFINITY };
const LONG_AGO = formatMs(NOW_MS - 3_600_000);
/** More nonces of a record make no difference. */
const NONCES = 2;

export class AdmissionDecisions {
  readonly #specs: Specs;
  readonly #outcomes = new Map<string, AllowedReview | undefined>();
  readonly #rollBacks = new Map<string, Written>();
  readonly #batches = new Map<string, readonly AllowedReview[] | undefined>();

  constructor(specs: Specs) {
    this.#specs = specs;
  }

  /** What the webhook answers, and has written by then; undefined for a denial. */
  admit(world: Asked, review: Review): AllowedReview | undefined {
    const key = keyOf(world, review);
    if (this.#outcomes.has(key)) return this.#outcomes.get(key);
    const outcome = this.#admit(world, review, pendingOf(review, 0));
    this.#outcomes.set(key, outcome);
    return outcome;
  }

  #admit(world: Asked, review: Review, pending: PendingRequest): AllowedReview | undefined {
    const { batch, forms } = this.#plan(world, [review], [pending]);
    const free = batch.free[0]?.decision;
    if (free !== undefined) return { reason: free.reason, written: undefined };
    // An eviction whose pod has to be read again is another review.
    const [decision] = batch.decisions.values();
    return decision && { reason: decision.reason, written: writtenOf(forms, 0, 1) };
  }

  /**
   * As {@link admit}, by a replica that has decided on `before`, and has met a conflict. Undefined where that makes no
   * difference.
   */
  admitAgain(before: Asked, world: Asked, review: Review): AllowedReview | undefined {
    const key = `${keyOf(before, review)}>${keyOf(world, review)}`;
    if (this.#outcomes.has(key)) return this.#outcomes.get(key);
    const pending = pendingOf(review, 0);
    this.#plan(before, [review], [pending]);
    const again = this.#admit(world, review, pending);
    const isSame = isDeepStrictEqual(again, this.admit(world, review));
    const outcome = isSame ? undefined : again;
    this.#outcomes.set(key, outcome);
    return outcome;
  }

  /** What one write makes of two reviews of pods of one cell; undefined unless both are allowed and written. */
  admitTogether(world: Asked, first: Review, second: Review): readonly AllowedReview[] | undefined {
    const key = keyOf(world, first, second);
    if (this.#batches.has(key)) return this.#batches.get(key);
    const { batch, forms } = this.#plan(world, [first, second], [pendingOf(first, 0), pendingOf(second, 1)]);
    const reviewed = [first.pod, second.pod];
    const outcomes = [...batch.decisions.values()].map(({ reason }, pod) => ({
      reason,
      written: { ...writtenOf(forms, pod, reviewed.length), reviewed },
    }));
    const outcome = outcomes.length === reviewed.length ? outcomes : undefined;
    this.#batches.set(key, outcome);
    return outcome;
  }

  /** What is left after one admission of the reviewed pod's record was taken back. */
  rollBack(world: Asked, review: Review): Written {
    const key = keyOf(world, review);
    const known = this.#rollBacks.get(key);
    if (known !== undefined) return known;
    const { operation } = review;
    const pending: PendingRequest = {
      kind: "rollBack",
      cell: cellID(0),
      uid: uidOf(0),
      operation: OPERATIONS[operation] ?? "DELETE",
      nonce: nonceText(operation, 0, 0),
      ...NO_DEADLINE,
    };
    const { forms } = this.#plan(world, [review], [pending]);
    const written = writtenOf(forms, 0, 1);
    this.#rollBacks.set(key, written);
    return written;
  }

  /** Decides on the stored form, and reads back what is written of the reviewed cell. */
  #plan(world: Asked, reviews: readonly Review[], pending: readonly PendingRequest[]) {
    const cells = formsOf(world, reviews);
    const protector = storedProtector(cells, this.#specs.of(world.edits));
    const sinceMs = reviews.some(({ isOvertaken }) => isOvertaken) ? READ_MS + 1 : 0;
    const batch: Batch = planBatch(new ProtectorVersion(protector, 0), pending, () => sinceMs);
    for (const { error } of batch.broken) throw error;
    const after = throughJson({ ...protector, status: encodeStatus(batch.working, protector.status) });
    for (const [index, cell] of cells.slice(1).entries())
      if (!isDeepStrictEqual(readCell(after, index + 1, cell.reservations.length), cell))
        throw new Error("an admission has changed another cell");
    return { batch, forms: readCell(after, 0, cells[0]?.reservations.length ?? 0).reservations };
  }
}

function pendingOf({ operation, state }: Review, pod: number): PendingRequest {
  return {
    kind: "reserve",
    request: {
      cell: cellID(0),
      operation: OPERATIONS[operation] ?? "DELETE",
      nonce: NEW_NONCE,
      pod: podOf(pod, state),
      forced: false,
      criterion: "Available",
      startTime: WALL,
      staleRefreshBefore: LONG_AGO,
    },
    decideOnly: false,
    podReadMs: READ_MS,
    reread: () => Promise.resolve({ kind: "gone" }),
    isCallerGone: () => false,
    attempt: undefined,
    settle: () => undefined,
    ...NO_DEADLINE,
  };
}

/** Of reviewed pod number `pod`; the pods after the `reviewed` ones are others that have a reservation. */
function writtenOf(forms: CellForm["reservations"], pod: number, reviewed: number): Written {
  return { form: forms[pod], packed: forms.slice(reviewed).map((other) => other?.packed === true) };
}

/** True for the nonce of the admission that was just made. */
export function isNew(nonce: string): boolean {
  return nonce === NEW_NONCE;
}

function reservationKey(reservation: WorldReservation | undefined, version: number | undefined): string {
  if (reservation === undefined) return "";
  let key = reservation.weight === 1 ? "w" : "-";
  if (reservation.packed) key += "p";
  for (const record of reservation.records) {
    if (record === undefined) {
      key += ".";
      continue;
    }
    key += record.paid ? "$" : "0";
    if (version !== undefined) key += `${Math.sign(record.version - version)}${Math.min(record.nonces.length, NONCES)}`;
  }
  return key;
}

function keyOf({ cells, edits }: Asked, ...reviews: readonly Review[]): string {
  const [first] = reviews;
  let key = editsKey(edits);
  for (const { operation, state, isOvertaken } of reviews) key += `${operation}${state}${isOvertaken ? "o" : ""}`;
  for (const [index, cell] of cells.entries()) {
    const isReviewed = index === first?.cell;
    key += isReviewed ? "*" : "/";
    if (isReviewed) for (const { version } of reviews) key += cell.position >= version ? "r" : "-";
    key += entryKey(cell);
    for (const [pod, { reservation }] of cell.pods.entries()) {
      const review = isReviewed ? reviews.findIndex((one) => one.pod === pod) : -1;
      if (review >= 0) key += `!${review}${reservationKey(reservation, reviews[review]?.version)}`;
      else if (reservation !== undefined) key += `;${reservationKey(reservation, undefined)}`;
    }
  }
  return key;
}

/** The reviewed cell is the first, and the reviewed pods are its first. Pods without a reservation are not stored. */
function formsOf({ cells }: Asked, reviews: readonly Review[]): readonly CellForm[] {
  const forms: CellForm[] = [];
  const [first] = reviews;
  for (const [index, cell] of cells.entries()) {
    const isReviewed = index === first?.cell;
    const asked = isReviewed ? reviews : [];
    const reservations = asked.map(({ pod, version }, place) =>
      reservationForm(cell.pods[pod]?.reservation, place, version),
    );
    for (const [pod, { reservation }] of cell.pods.entries())
      if (reservation !== undefined && !asked.some((review) => review.pod === pod))
        reservations.push(reservationForm(reservation, reservations.length, undefined));
    const isReached = asked.every(({ version }) => cell.position >= version);
    const form = { ...entryForm(cell), position: isReached || !cell.isCounted ? 0 : -1, reservations };
    if (isReviewed) forms.unshift(form);
    else forms.push(form);
  }
  return forms;
}

/** Versions of other pods make no difference: without a `version` all are the same. */
function reservationForm(
  reservation: WorldReservation | undefined,
  pod: number,
  version: number | undefined,
): ReservationForm | undefined {
  if (reservation === undefined) return undefined;
  const records = reservation.records.map((record, operation): RecordForm | undefined => {
    if (record === undefined) return undefined;
    const count = version === undefined ? 1 : Math.min(record.nonces.length, NONCES);
    return {
      version: version === undefined ? 0 : Math.sign(record.version - version),
      paid: record.paid,
      nonces: Array.from({ length: count }, (_, index) => nonceText(operation, pod, index)),
    };
  });
  return { weight: reservation.weight, packed: reservation.packed, records };
}
