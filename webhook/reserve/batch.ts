import { type Decision, decide, isPin } from "../../shared/decide/quota.ts";
import { apply, holdCell, holdsNonce, reapply, rollBack } from "../../shared/decide/reserve.ts";
import { cloneState, type ProtectorState } from "../../shared/decide/state/protector-state.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { PendingRequest, PendingReserve, TogetherToken } from "./pending-queue.ts";

/**
 * The requests that one write decides together, each one after the effects of the ones before (docs/design.md#batches).
 * Does no IO.
 */
export class Batch {
  readonly base: ProtectorVersion;
  /** `base` with everything in `writes` applied. */
  readonly working: ProtectorState;
  readonly writes: PendingRequest[] = [];
  /** The decisions of the reservations in `writes`. */
  readonly decisions = new Map<PendingReserve, Extract<Decision, { allowed: true }>>();
  readonly free: { pending: PendingReserve; decision: Extract<Decision, { allowed: true }> }[] = [];
  readonly denied: { pending: PendingReserve; decision: Extract<Decision, { allowed: false }> }[] = [];
  /** Roll-backs of reservations that `base` does not have. */
  readonly done: PendingRequest[] = [];
  /** The decision threw, which is a defect. The other requests go on. */
  readonly broken: { pending: PendingRequest; error: unknown }[] = [];
  /** Evictions that are allowed only if a live read newer than `base` says the same. */
  readonly stale: PendingReserve[] = [];

  constructor(base: ProtectorVersion) {
    this.base = base;
    this.working = cloneState(base.state);
  }
}

/** What a write has stored. */
export type WrittenBatch = { readonly [K in "writes" | "decisions"]: Readonly<Batch[K]> };

/** Decides `pending` in the given order. `cellSinceMs` returns when this process learned what a cell counts. */
export function planBatch(
  base: ProtectorVersion,
  requests: readonly PendingRequest[],
  cellSinceMs: (cell: string) => number,
): Batch {
  const batch = new Batch(base);
  const groups = new Map<TogetherToken, PendingReserve[]>();
  for (const pending of requests) {
    const together = pending.kind === "reserve" ? pending.together : undefined;
    if (pending.kind === "reserve" && together !== undefined)
      groups.set(together, [...(groups.get(together) ?? []), pending]);
    else guarded(batch, [pending], () => add(batch, pending, cellSinceMs));
  }
  for (const [token, group] of groups) guarded(batch, group, () => addTogether(batch, token, group));
  return batch;
}

function guarded(batch: Batch, requests: readonly PendingRequest[], plan: () => void): void {
  try {
    plan();
  } catch (error) {
    for (const pending of requests) batch.broken.push({ pending, error });
  }
}

/**
 * After everything else, because decisions without a write must not use quota that other requests of the batch need.
 */
function addTogether(batch: Batch, { decide }: TogetherToken, group: readonly PendingReserve[]): void {
  const decisions = decide(
    batch.working,
    group.map(({ request }) => request),
  );
  for (const [index, pending] of group.entries()) {
    const decision = decisions[index];
    if (decision?.allowed === true) batch.free.push({ pending, decision });
    else if (decision !== undefined) batch.denied.push({ pending, decision });
  }
}

function add(batch: Batch, pending: PendingRequest, cellSinceMs: (cell: string) => number): void {
  const { base, working } = batch;
  if (pending.kind === "reserve") {
    reserve(batch, pending, cellSinceMs);
    return;
  }
  if (pending.kind === "rollBack" && isCommitted(base, pending)) {
    batch.done.push(pending);
    return;
  }
  if (pending.kind === "rollBack") {
    const { cell, uid, operation, nonce, hasPaid } = pending;
    rollBack(working, cell, uid, operation, nonce, hasPaid);
  } else {
    // Other replicas re-assert their own reservations. Reservations that are stored already do not change. The hold
    // covers reservations without room, so it is written in any case.
    for (const { request, decision } of pending.reassertions) reapply(working, request, decision);
    for (const cell of pending.cells) holdCell(working, cell, pending.hold);
  }
  batch.writes.push(pending);
}

function reserve(batch: Batch, pending: PendingReserve, cellSinceMs: (cell: string) => number): void {
  const decision = decide(batch.working, pending.request);
  if (!decision.allowed) batch.denied.push({ pending, decision });
  else if (isStale(pending, decision, cellSinceMs)) batch.stale.push(pending);
  else if (pending.decideOnly || decision.write === "none") batch.free.push({ pending, decision });
  else {
    apply(batch.working, pending.request, decision);
    batch.writes.push(pending);
    batch.decisions.set(pending, decision);
  }
}

/**
 * True for an eviction whose pod was not available in a live read from before the cell's counts arrived: the counts may
 * include the pod by now. That matters even for an eviction that needs no quota: its record must not weigh less than
 * the pod counts.
 */
function isStale(pending: PendingReserve, decision: Decision, cellSinceMs: (cell: string) => number): boolean {
  if (pending.request.operation !== "EVICT" || pending.reread === undefined || pending.podReadMs === undefined)
    return false;
  if (!decision.allowed || decision.write === "none" || (decision.write.weight === 1 && !isPin(decision))) return false;
  return pending.podReadMs < cellSinceMs(pending.request.cell);
}

/** True when the object has what the request wants written: its nonce, or for a roll-back the absence of it. */
export function isCommitted(
  { state }: ProtectorVersion,
  pending: Exclude<PendingRequest, { readonly kind: "reassert" }>,
): boolean {
  if (pending.kind === "rollBack")
    return !holdsNonce(state, pending.cell, pending.uid, pending.operation, pending.nonce);
  const { cell, pod, operation, nonce } = pending.request;
  return holdsNonce(state, cell, pod.uid, operation, nonce);
}

/**
 * True when the response to an own write has no reservation of the pod at all: a policy took it out, or something in
 * between answered. An older CRD leaves a count without UIDs of packed ones.
 */
export function isMissing({ state }: ProtectorVersion, { request: { cell, pod } }: PendingReserve): boolean {
  const ledger = state.cells.get(cell)?.ledger;
  return ledger === undefined || (ledger.get(pod.uid, pod.name) === undefined && ledger.ranges.size === 0);
}

/**
 * True when the server stored an own write without the fields that exact accounting needs: a CRD that does not know
 * them drops them silently. Checks one of the written reservations: the newest buckets are last, and not packed.
 */
export function dropsFields(stored: ProtectorVersion, batch: WrittenBatch): boolean {
  const pending = batch.writes.findLast((one) => one.kind === "reserve");
  if (pending === undefined) return false;
  const { cell, pod } = pending.request;
  const written = stored.object.status?.cells.find(({ cellID }) => cellID === cell);
  const buckets = written?.admissionHistory?.buckets ?? [];
  const own = buckets.findLast(({ podUID }) => podUID === pod.uid);
  if (own !== undefined) return own.nonce === undefined || own.podResourceVersion === undefined;
  return !buckets.some(({ packed }) => packed !== undefined);
}
