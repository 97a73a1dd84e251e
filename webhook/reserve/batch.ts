import { type Decision, decide } from "../../shared/decide/quota.ts";
import { apply, holdCell, holdsNonce, rollBack } from "../../shared/decide/reserve.ts";
import { cloneState, type ProtectorState } from "../../shared/decide/state/protector-state.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { PendingRequest, PendingReserve, PendingRollBack } from "./pending.ts";

type Allowed = Extract<Decision, { allowed: true }>;
type Refused = Extract<Decision, { allowed: false }>;

/** What one version of a protector means for the requests that wait for it; made without IO. */
export interface Batch {
  readonly base: ProtectorVersion;
  /** `base` with everything in `writes` applied. */
  readonly working: ProtectorState;
  /** Goes into the next write. */
  readonly writes: readonly PendingRequest[];
  readonly decisions: ReadonlyMap<PendingReserve, Allowed>;
  /** Allowed without a write. */
  readonly free: readonly { readonly work: PendingReserve; readonly decision: Allowed }[];
  readonly refused: readonly { readonly work: PendingReserve; readonly decision: Refused }[];
  /** Roll-backs of what is not there. */
  readonly done: readonly PendingRequest[];
  /** The decision threw: a defect, which must not take the others with it (style rule 8). */
  readonly broken: readonly { readonly work: PendingRequest; readonly error: unknown }[];
  /** Allowed only if a live read newer than `base` says the same (design 5.3, evictions of unavailable pods). */
  readonly stale: readonly PendingReserve[];
}

/** An eviction's pod was seen unavailable before the counts were: it may be counted by now. */
function needsReread(work: PendingReserve, decision: Allowed, cellSinceMs: (cell: string) => number): boolean {
  if (work.request.operation !== "EVICT" || work.reread === undefined || work.podReadMs === undefined) return false;
  if (decision.reason !== "PinnedUnavailable" && decision.reason !== "PinnedPending") return false;
  return work.podReadMs < cellSinceMs(work.request.cell);
}

class Planner {
  readonly base: ProtectorVersion;
  readonly working: ProtectorState;
  readonly writes: PendingRequest[] = [];
  readonly decisions = new Map<PendingReserve, Allowed>();
  readonly free: { work: PendingReserve; decision: Allowed }[] = [];
  readonly refused: { work: PendingReserve; decision: Refused }[] = [];
  readonly done: PendingRequest[] = [];
  readonly broken: { work: PendingRequest; error: unknown }[] = [];
  readonly stale: PendingReserve[] = [];
  readonly #cellSinceMs: (cell: string) => number;

  constructor(base: ProtectorVersion, cellSinceMs: (cell: string) => number) {
    this.base = base;
    this.working = cloneState(base.state);
    this.#cellSinceMs = cellSinceMs;
  }

  add(work: PendingRequest): void {
    if (work.kind === "reserve") this.#reserve(work);
    else if (work.kind === "rollBack") this.#rollBack(work);
    else {
      // Other replicas do the same with what they had reserved; what is written already stays as it is.
      for (const { request, decision } of work.reassertions) apply(this.working, request, decision);
      for (const cell of new Set([...work.cells, ...this.working.cells.keys()]))
        holdCell(this.working, cell, work.hold);
      this.writes.push(work);
    }
  }

  #rollBack(work: PendingRollBack): void {
    if (isCommitted(this.base, work)) {
      this.done.push(work);
      return;
    }
    rollBack(this.working, work.cell, work.uid, work.operation, work.nonce);
    this.writes.push(work);
  }

  #reserve(work: PendingReserve): void {
    const decision = decide(this.working, work.request);
    if (!decision.allowed) this.refused.push({ work, decision });
    else if (needsReread(work, decision, this.#cellSinceMs)) this.stale.push(work);
    else if (work.verdictOnly || decision.write === "none") this.free.push({ work, decision });
    else {
      apply(this.working, work.request, decision);
      this.writes.push(work);
      this.decisions.set(work, decision);
    }
  }
}

/** Decides everything that waits on one version of the object, in the given order, each after those before it. */
export function planBatch(
  base: ProtectorVersion,
  waiting: readonly PendingRequest[],
  cellSinceMs: (cell: string) => number,
): Batch {
  const planner = new Planner(base, cellSinceMs);
  for (const work of waiting) {
    try {
      planner.add(work);
    } catch (error) {
      planner.broken.push({ work, error });
    }
  }
  return planner;
}

/** True when the object carries what `work` wants written: its nonce, for a roll-back the absence of it. */
export function isCommitted(entry: ProtectorVersion, work: PendingRequest): boolean {
  if (work.kind === "reassert") return false;
  if (work.kind === "rollBack") return !holdsNonce(entry.state, work.cell, work.uid, work.operation, work.nonce);
  const { cell, pod, operation, nonce } = work.request;
  return holdsNonce(entry.state, cell, pod.uid, operation, nonce);
}
