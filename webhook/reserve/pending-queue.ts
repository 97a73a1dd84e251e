import type { Decision, DisruptionRequest } from "../../shared/decide/quota.ts";
import { holdAt } from "../../shared/decide/state/hold.ts";
import type { ProtectorState } from "../../shared/decide/state/protector-state.ts";
import type { Ports, Timer } from "../../shared/runtime/clock.ts";
import type { Operation } from "../../shared/schema/podprotector.ts";
import type { LiveRead } from "../request/cell-client.ts";
import type { ProtectorDecision } from "./verdict.ts";

interface Timed {
  readonly arrivedMs: number;
  /** Monotonic milliseconds; the request leaves the queue before. */
  readonly deadlineMs: number;
}

/**
 * Requests with the same token stand or fall together (docs/design.md#node-deletion). The token carries the decision
 * function, whose module few clusters ever load.
 */
export interface TogetherToken {
  /** One decision for each request: all allow, or all deny. */
  readonly decide: (state: ProtectorState, requests: readonly DisruptionRequest[]) => readonly Decision[];
}

/** A disruption that waits for the decision of one protector. */
export interface PendingReserve extends Timed {
  readonly kind: "reserve";
  request: DisruptionRequest;
  /** Only the decision is wanted, for a dry run or before several reservations: nothing is written. */
  readonly decideOnly: boolean;
  /** Only with `decideOnly`. */
  readonly together?: TogetherToken | undefined;
  /** Monotonic send time of the live read of `request.pod`; undefined when the pod came with the request. */
  podReadMs: number | undefined;
  /** Reads the pod of an eviction again. */
  readonly reread: ((timeoutMs: number) => Promise<LiveRead>) | undefined;
  readonly isCallerGone: () => boolean;
  /** The last write that carried the request, until it is known to have failed: the reservation may be stored. */
  attempt: { readonly decision: Extract<Decision, { allowed: true }>; readonly baseVersion: string } | undefined;
  readonly settle: (decision: ProtectorDecision) => void;
}

/** Takes back a reservation by its nonce (docs/design.md#several-protectors). */
interface PendingRollBack extends Timed {
  readonly kind: "rollBack";
  readonly cell: string;
  readonly uid: string;
  readonly operation: Operation;
  readonly nonce: string;
  /** The reservation has made its record paid. */
  readonly hasPaid?: boolean;
}

/** One own reservation that is written again. */
export interface Reassertion {
  readonly request: DisruptionRequest;
  readonly decision: Extract<Decision, { allowed: true }>;
}

/** Writes lost reservations again and puts cells on hold (docs/design.md#lost-history). */
interface PendingReassert extends Timed {
  readonly kind: "reassert";
  readonly reassertions: readonly Reassertion[];
  /** Cells that this replica serves and that the object has, or had before its history was lost. */
  readonly cells: readonly string[];
  readonly hold: string;
}

export type PendingRequest = PendingReserve | PendingRollBack | PendingReassert;

/** Re-assertions first, then roll-backs, which free quota, then the earliest deadline. */
const ORDER: Readonly<Record<PendingRequest["kind"], number>> = { reassert: 0, rollBack: 1, reserve: 2 };

function byUrgency(a: PendingRequest, b: PendingRequest): number {
  return ORDER[a.kind] - ORDER[b.kind] || a.deadlineMs - b.deadlineMs;
}

/** The requests that wait for one protector. Each leaves once, at its deadline at the latest. */
export class PendingQueue {
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #waiting = new Map<PendingRequest, Timer>();
  /** Holds that could not be written. Nothing is reserved before they are. */
  readonly #owed = new Set<PendingReassert>();
  /** Message of the core's last failure, until a call succeeds. */
  coreFailure: string | undefined;

  constructor(ports: Pick<Ports, "clock" | "timers">) {
    this.#ports = ports;
  }

  get size(): number {
    return this.#waiting.size;
  }

  add(pending: PendingRequest): void {
    const leftMs = pending.deadlineMs - this.#ports.clock.monotonicMs();
    this.#waiting.set(
      pending,
      this.#ports.timers.after(leftMs, () => this.expire(pending)),
    );
  }

  /** Removes the request and passes on its decision, unless that has happened before. A hold stays owed. */
  settle(pending: PendingRequest, decision: ProtectorDecision): void {
    if (!this.remove(pending)) return;
    if (pending.kind === "reserve") pending.settle(decision);
    else if (pending.kind === "reassert") this.#owed.add(pending);
  }

  /** Queues the holds again that could not be written. To be called before a batch is planned. */
  addOwed(): void {
    const { clock } = this.#ports;
    const nowMs = clock.monotonicMs();
    for (const { hold, arrivedMs, deadlineMs, ...owed } of this.#owed) {
      const timed = { arrivedMs: nowMs, deadlineMs: nowMs + deadlineMs - arrivedMs };
      // The hold shows people when it was written.
      this.add({ ...owed, ...timed, hold: holdAt(hold, clock.nowMs()) });
    }
    this.#owed.clear();
  }

  /** False when the request has left the queue before. */
  remove(pending: PendingRequest): boolean {
    // A hold is never too late.
    if (pending.kind === "reassert") this.#owed.delete(pending);
    this.#waiting.get(pending)?.cancel();
    return this.#waiting.delete(pending);
  }

  settleAll(decision: ProtectorDecision): void {
    for (const pending of this.all()) this.settle(pending, decision);
  }

  /** Fails a reservation that may have been written instead of denying it. The reservation settles. */
  expire(pending: PendingRequest): void {
    if (pending.kind === "reserve" && pending.attempt !== undefined) {
      const message = `the reservation may be written: ${this.coreFailure ?? "no answer in time"}`;
      this.settle(pending, { kind: "failed", tag: "deadline", message });
    } else if (this.coreFailure !== undefined) {
      this.settle(pending, { kind: "failed", tag: "core-unavailable", message: this.coreFailure });
    } else this.settle(pending, { kind: "overloaded", cause: "time" });
  }

  /**
   * Settles requests that a write of `writeMs` can't answer in time, and those whose caller is gone. True when one was
   * too late.
   */
  sweep(writeMs: number): boolean {
    const tooLateMs = this.#ports.clock.monotonicMs() + writeMs;
    let isLate = false;
    for (const pending of this.all()) {
      if (pending.kind !== "reserve" || pending.attempt !== undefined) continue;
      if (pending.isCallerGone()) this.settle(pending, { kind: "abandoned" });
      else if (pending.deadlineMs <= tooLateMs) {
        isLate = true;
        this.expire(pending);
      }
    }
    return isLate;
  }

  /** A copy, so that requests can leave during a loop over it. */
  all(): PendingRequest[] {
    return [...this.#waiting.keys()];
  }

  mostUrgent(limit: number): PendingRequest[] {
    return this.all().sort(byUrgency).slice(0, limit);
  }

  /** Monotonic; infinite when the queue is empty. */
  get earliestDeadlineMs(): number {
    let earliestMs = Number.POSITIVE_INFINITY;
    for (const { deadlineMs } of this.#waiting.keys()) earliestMs = Math.min(earliestMs, deadlineMs);
    return earliestMs;
  }

  get latestDeadlineMs(): number {
    let latestMs = Number.NEGATIVE_INFINITY;
    for (const { deadlineMs } of this.#waiting.keys()) latestMs = Math.max(latestMs, deadlineMs);
    return latestMs;
  }

  allArrivedAfter(timeMs: number): boolean {
    for (const { arrivedMs } of this.#waiting.keys()) if (arrivedMs <= timeMs) return false;
    return true;
  }
}
