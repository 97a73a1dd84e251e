/**
 * Changes a protector's working copy, which `encodeStatus` writes: records an allowed disruption, and rolls it back.
 */
import type { Operation } from "../schema/podprotector.ts";
import { parseMicros } from "../schema/time.ts";
import { type Decision, type DisruptionRequest, HARD_CAP_BYTES } from "./quota.ts";
import { cellOf, historyBytesAtMost, type ProtectorState } from "./state/protector-state.ts";

/** Records `decision`. The same request a second time changes nothing. */
export function apply(state: ProtectorState, request: DisruptionRequest, decision: Decision): void {
  if (!decision.allowed || decision.write === "none") return;
  const { operation, nonce, pod } = request;
  const { weight, paid } = decision.write;
  const admission = {
    operation,
    nonce,
    podResourceVersion: pod.resourceVersion,
    podGeneration: operation === "UPDATE" ? pod.generation : undefined,
    paid,
    atMicros: parseMicros(request.startTime),
  };
  cellOf(state, request.cell).ledger.admit(pod.uid, pod.name, admission, weight);
}

/** Records a lost admission again, unless the history has no room: more than fit may have been made and settled. */
export function reapply(state: ProtectorState, request: DisruptionRequest, decision: Decision): void {
  const { cell, pod } = request;
  const isHeld = state.cells.get(cell)?.ledger.get(pod.uid, pod.name) !== undefined;
  if (isHeld || historyBytesAtMost(state) <= HARD_CAP_BYTES) apply(state, request, decision);
}

/**
 * Rolls back one admission of a request (docs/design.md#several-protectors). Other admissions that share the record
 * stay. With `hasPaid`, the record is unpaid afterwards, so a repeat of the others needs quota.
 */
export function rollBack(
  state: ProtectorState,
  cell: string,
  uid: string,
  operation: Operation,
  nonce: string,
  hasPaid = false,
): void {
  state.cells.get(cell)?.ledger.removeNonce(uid, operation, nonce, hasPaid);
}

/** True when `state` has this admission, which shows whether a write without a response succeeded. */
export function holdsNonce(
  state: ProtectorState,
  cell: string,
  uid: string,
  operation: Operation,
  nonce: string,
): boolean {
  return state.cells.get(cell)?.ledger.holdsNonce(uid, operation, nonce) ?? false;
}

/**
 * Puts a cell on hold (docs/design.md#lost-history). For a protector whose version went back or whose UID changed, a
 * webhook puts every cell on hold, in the same write as its lost reservations. A cell without an entry gets one, so
 * that its aggregator notices the loss. `hold` is a text of `state/hold.ts`.
 */
export function holdCell(state: ProtectorState, cellID: string, hold: string): void {
  const cell = cellOf(state, cellID);
  const aggregation = { ...(cell.aggregation ?? { totalReplicas: 0, availableReplicas: 0 }), hold };
  state.cells.set(cellID, { ...cell, aggregation, isOnHold: true });
}
