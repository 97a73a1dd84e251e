/**
 * Changes of a protector's working copy, which `encodeStatus` writes: what an allowed disruption records, and how that
 * is taken back.
 */
import type { Operation } from "../schema/podprotector.ts";
import { parseMicros } from "../schema/time.ts";
import type { Decision, DisruptionRequest } from "./quota.ts";
import { cellOf, type ProtectorState } from "./state/protector-state.ts";

/** Records what `decision` asks for. The same request twice changes nothing more. */
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

/**
 * Takes back one admission of a request (docs/design.md#several-protectors): what others share, or wrote before, stays.
 * With `hasPaid` they have not paid: a repeat of theirs needs quota.
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

/** True when `state` holds this admission: it settles the outcome of a write that got no answer. */
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
 * Puts a cell on hold (docs/design.md#lost-history). A webhook does so with every cell of a protector whose version
 * went back or whose UID changed, in one write with its lost reservations. A cell without an entry gets one, so that
 * its aggregator learns of the loss. `hold` is a text of `state/hold.ts`.
 */
export function holdCell(state: ProtectorState, cellID: string, hold: string): void {
  const cell = cellOf(state, cellID);
  const aggregation = { ...(cell.aggregation ?? { totalReplicas: 0, availableReplicas: 0 }), hold };
  state.cells.set(cellID, { ...cell, aggregation, isOnHold: true });
}
