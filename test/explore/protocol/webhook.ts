/**
 * What the webhook decides: the shipping `planBatch` and `encodeStatus` on the stored form. Both are pure, so that each
 * distinct input is decided once and remembered. Inputs differ only by what a decision can tell apart: a version is
 * older than the reviewed one, the same, or newer.
 */
import { encodeStatus } from "../../../shared/decide/state/encode-status.ts";
import { ProtectorVersion } from "../../../shared/decide/state/protector-version.ts";
import type { PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { type Batch, planBatch } from "../../../webhook/reserve/batch.ts";
import type { PendingRequest } from "../../../webhook/reserve/pending-queue.ts";
import { NOW_MS } from "../../support/decide/fixtures.ts";
import { OPERATIONS, type PodStage, type WorldCell, type WorldReservation } from "../world/world.ts";
import {
  type CellForm,
  cellID,
  nonceText,
  podOf,
  type RecordForm,
  type ReservationForm,
  readCell,
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
}

export interface AllowedReview {
  readonly reason: string;
  /** Undefined when nothing is written. */
  readonly written: Written | undefined;
}

const NEW_NONCE = "new00000";
const NO_DEADLINE = { arrivedMs: 0, deadlineMs: Number.POSITIVE_INFINITY };
const LONG_AGO = formatMs(NOW_MS - 3_600_000);
/** More nonces of a record make no difference. */
const NONCES = 2;

export class AdmissionDecisions {
  readonly #spec: PodProtectorSpec;
  readonly #allowances = new Map<string, AllowedReview | undefined>();
  readonly #rollBacks = new Map<string, Written>();

  constructor(spec: PodProtectorSpec) {
    this.#spec = spec;
  }

  /** What the webhook answers, and has written by then; undefined for a denial. */
  admit(cells: readonly WorldCell[], review: Review): AllowedReview | undefined {
    const { operation, state, isOvertaken } = review;
    const key = `${keyOf(cells, review)}${operation}${state}${isOvertaken ? "o" : ""}`;
    if (this.#allowances.has(key)) return this.#allowances.get(key);
    const allowance = this.#admit(formsOf(cells, review), review);
    this.#allowances.set(key, allowance);
    return allowance;
  }

  #admit(cells: readonly CellForm[], { operation, state, isOvertaken }: Review): AllowedReview | undefined {
    const request = {
      cell: cellID(0),
      operation: OPERATIONS[operation] ?? "DELETE",
      nonce: NEW_NONCE,
      pod: podOf(0, state),
      forced: false,
      criterion: "Available",
      startTime: WALL,
      staleRefreshBefore: LONG_AGO,
    } as const;
    const pending: PendingRequest = {
      kind: "reserve",
      request,
      decideOnly: false,
      podReadMs: 1,
      reread: () => Promise.resolve({ kind: "gone" }),
      isCallerGone: () => false,
      attempt: undefined,
      settle: () => undefined,
      ...NO_DEADLINE,
    };
    const { batch, written } = this.#plan(cells, pending, isOvertaken ? 2 : 0);
    const free = batch.free[0]?.decision;
    if (free !== undefined) return { reason: free.reason, written: undefined };
    // An eviction whose pod has to be read again is another review.
    const [decision] = batch.decisions.values();
    return decision && { reason: decision.reason, written };
  }

  /** What is left after one admission of the reviewed pod's record was taken back. */
  rollBack(cells: readonly WorldCell[], review: Review): Written {
    const { operation } = review;
    const key = `${keyOf(cells, review)}${operation}`;
    const known = this.#rollBacks.get(key);
    if (known !== undefined) return known;
    const nonce = nonceText(operation, 0, 0);
    const pending: PendingRequest = {
      kind: "rollBack",
      cell: cellID(0),
      uid: uidOf(0),
      operation: OPERATIONS[operation] ?? "DELETE",
      nonce,
      ...NO_DEADLINE,
    };
    const { written } = this.#plan(formsOf(cells, review), pending, 0);
    this.#rollBacks.set(key, written);
    return written;
  }

  #plan(cells: readonly CellForm[], pending: PendingRequest, sinceMs: number): { batch: Batch; written: Written } {
    const protector = storedProtector(cells, this.#spec);
    const batch = planBatch(new ProtectorVersion(protector, 0), [pending], () => sinceMs);
    for (const { error } of batch.broken) throw error;
    const after = throughJson({ ...protector, status: encodeStatus(batch.working, protector.status) });
    for (const [index, cell] of cells.slice(1).entries())
      if (JSON.stringify(readCell(after, index + 1, cell.reservations.length)) !== JSON.stringify(cell))
        throw new Error("an admission has changed another cell");
    const { reservations } = readCell(after, 0, cells[0]?.reservations.length ?? 0);
    const [form, ...others] = reservations;
    return { batch, written: { form, packed: others.map((other) => other?.packed === true) } };
  }
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

function keyOf(cells: readonly WorldCell[], { cell: at, pod: asked, version }: Review): string {
  let key = "";
  for (const [index, { total, available, position, pods }] of cells.entries()) {
    key += index === at ? `*${position >= version ? 1 : 0}` : "/";
    key += `${total},${available}`;
    for (const [pod, { reservation }] of pods.entries()) {
      if (index === at && pod === asked) key += `!${reservationKey(reservation, version)}`;
      else if (reservation !== undefined) key += `;${reservationKey(reservation, undefined)}`;
    }
  }
  return key;
}

/** The reviewed pod is the first one, and its cell is the first. Pods without a reservation are not stored. */
function formsOf(cells: readonly WorldCell[], { cell: at, pod: asked, version }: Review): readonly CellForm[] {
  const forms: CellForm[] = [];
  for (const [index, { total, available, position, pods }] of cells.entries()) {
    const own = index === at ? [reservationForm(pods[asked]?.reservation, 0, version)] : [];
    const reservations: (ReservationForm | undefined)[] = own;
    for (const [pod, { reservation }] of pods.entries())
      if (reservation !== undefined && !(index === at && pod === asked))
        reservations.push(reservationForm(reservation, reservations.length, undefined));
    const reached = position >= version ? 1 : -1;
    const form = { total, available, position: index === at ? reached : 0, reservations };
    if (index === at) forms.unshift(form);
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
