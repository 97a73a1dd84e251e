import { decide } from "../../shared/decide/quota.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { sleep } from "../../shared/runtime/clock.ts";
import { type Batch, planBatch } from "./batch.ts";
import { PendingQueue, type PendingRequest, type PendingReserve } from "./pending-queue.ts";
import { ProtectorCalls, type ProtectorCallsOptions } from "./protector-calls.ts";
import type { ProtectorDecision } from "./verdict.ts";
import { VersionTracker } from "./version-tracker.ts";
import { WritePacing } from "./write-pacing.ts";

/** Requests that wait for one protector; one more reservation is busy at once. */
const MAX_PENDING = 4_000;
/** Most requests in a batch. Bounds the cost of a conflict, and the time that planning blocks the event loop. */
const MAX_BATCH = 1_000;
/**
 * A live read delays the whole batch, so that only its own request fails after this time. A read takes longer than a
 * second only where the cell misses Kubernetes' own objective for its apiservers, however far away the cell is.
 */
export const MAX_REREAD_MS = 1_000;
/** After this many conflicts in a row, the writer waits for a random time before each attempt. */
const CONFLICTS_BEFORE_WAIT = 3;
const CONFLICT_WAIT_MIN_MS = 5;
const CONFLICT_WAIT_MAX_MS = 20;

export interface ProtectorWriterOptions extends ProtectorCallsOptions {
  /** Called when no request waits for this protector any more. */
  readonly onIdle?: () => void;
}

/**
 * Longest wait for pods that are about to be Ready. A ReplicaSet deletes an old pod when the new one is Ready; the
 * count of the new one arrives some 20 ms later. A kubelet may take a second to set Ready. The client repeats a busy
 * request after a second anyway.
 */
const READY_WAIT_MS = 1_500;
/** Requests of one protector that wait for Ready pods: each takes one of the requests in flight. */
const MAX_AWAITING_READY = 50;

const DEFECT: ProtectorDecision = {
  kind: "failed",
  tag: "defect",
  message: "the decision failed because of a defect in the webhook; see its log",
};

/**
 * Serialises all writes of this process to one protector (docs/design.md#batches). One call is in flight at a time.
 * Everything that waits is decided together on the newest version known, and written by one compare-and-swap.
 */
export class ProtectorWriter {
  readonly versions = new VersionTracker();
  readonly #options: ProtectorWriterOptions;
  readonly #queue: PendingQueue;
  readonly #pacing: WritePacing;
  readonly #calls: ProtectorCalls;
  #isRunning = false;
  /** Ends the wait for a turn: for a new version, or a request whose deadline is earlier than those of all others. */
  #wake: ((deadlineMs?: number) => void) | undefined;
  /** Aborted when there is something new to decide. */
  #awaited: AbortController | undefined;

  constructor(options: ProtectorWriterOptions) {
    this.#options = options;
    this.#queue = new PendingQueue(options.ports);
    this.#pacing = new WritePacing(options.tag, options.ports.random);
    this.#calls = new ProtectorCalls(options, this.versions, this.#queue, this.#pacing);
  }

  /** True when no request waits here. */
  get idle(): boolean {
    return this.#queue.size === 0;
  }

  /** The newest version, for a decision that needs no write. */
  newest(): ProtectorVersion | undefined {
    return this.#calls.newest();
  }

  /** Queues a request, which is settled before its deadline. */
  submit(pending: PendingRequest): void {
    if (this.#queue.size >= MAX_PENDING && pending.kind === "reserve") {
      pending.settle({ kind: "overloaded", cause: "queue" });
      return;
    }
    if (pending.kind === "rollBack") this.#calls.withdraw(pending.nonce);
    this.#queue.add(pending);
    this.#wake?.(pending.deadlineMs);
    this.#awaited?.abort();
    if (!this.#isRunning) void this.#run();
  }

  /** The watch has another version, which is looked at after an own write that is in flight. */
  watchChanged(): void {
    this.newest();
    this.#wake?.();
    this.#awaited?.abort();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    try {
      while (this.#queue.size > 0) {
        await this.#waitForTurn();
        const isLate = this.#queue.sweep(this.#pacing.roundTripMs);
        if (this.#queue.size > 0) await this.#decideBatch();
        else if (isLate) this.#pacing.notTried();
      }
    } catch (error) {
      this.#options.onEvent({ kind: "crashed", error });
      this.#queue.settleAll(DEFECT);
    } finally {
      this.#isRunning = false;
      this.#options.onIdle?.();
    }
  }

  /** Resolves when this replica may write (L5 of docs/design.md#invariants): at once without competing replicas. */
  async #waitForTurn(): Promise<void> {
    const { ports } = this.#options;
    for (;;) {
      this.newest();
      const nowMs = this.#nowMs();
      // The most urgent request must still be written in time.
      const { earliestDeadlineMs } = this.#queue;
      const slackMs = earliestDeadlineMs - nowMs - 3 * this.#pacing.roundTripMs;
      const waitMs = Math.min(this.#pacing.waitMs(nowMs), slackMs);
      if (waitMs <= 0) break;
      const woken = new AbortController();
      this.#wake = (deadlineMs = Number.NEGATIVE_INFINITY) => {
        if (deadlineMs < earliestDeadlineMs) woken.abort();
      };
      await sleep(ports, waitMs, woken.signal);
      this.#wake = undefined;
    }
    if (this.#calls.conflicts < CONFLICTS_BEFORE_WAIT || this.#pacing.hasCompetitors) return;
    const spreadMs = CONFLICT_WAIT_MAX_MS - CONFLICT_WAIT_MIN_MS;
    await sleep(ports, CONFLICT_WAIT_MIN_MS + spreadMs * ports.random.fraction());
  }

  async #decideBatch(): Promise<void> {
    const base = this.newest();
    if (base === undefined) {
      await this.#calls.read("first");
      return;
    }
    if (this.#pacing.readsFirst && this.#queue.allArrivedAfter(base.receivedMs)) {
      await this.#calls.read("stale");
      this.#pacing.cacheWas(this.versions.newest?.version === base.version ? "current" : "stale");
      return;
    }
    const batch = await this.#plan(base);
    for (const { pending, error } of batch.broken) {
      this.#options.onEvent({ kind: "crashed", error });
      this.#queue.settle(pending, DEFECT);
    }
    for (const pending of batch.done) this.#queue.remove(pending);
    for (const { pending, decision } of batch.free)
      this.#queue.settle(pending, { kind: "allowed", decision, version: base, written: false });
    if (this.#holdBack(batch)) return;
    const awaiting = this.#awaitingReady(batch);
    const isSettled = this.#deny(batch, awaiting);
    if (this.#isFirstAfterFailure(batch)) await this.#calls.read("outage");
    else if (batch.writes.length > 0) await this.#calls.write(batch);
    else if (!isSettled) await this.#calls.read("confirm");
    // A newer version may have come during a live read of this batch.
    else if (awaiting.size > 0 && awaiting.size === this.#queue.size && this.newest() === base)
      await this.#nextVersion(awaiting);
  }

  /** The denied requests that the next version may allow, because the pods that they need are about to be Ready. */
  #awaitingReady({ denied }: Batch): ReadonlySet<PendingRequest> {
    const awaiting = new Set<PendingRequest>();
    for (const { pending, decision } of denied)
      if (decision.cause === "NotReady" && awaiting.size < MAX_AWAITING_READY && this.#readyWaitMs(pending) > 0)
        awaiting.add(pending);
    return awaiting;
  }

  /** Milliseconds that the request may still wait for Ready pods, with time left for a read and a write. */
  #readyWaitMs({ arrivedMs, deadlineMs }: PendingRequest): number {
    return Math.min(arrivedMs + READY_WAIT_MS, deadlineMs - 3 * this.#pacing.roundTripMs) - this.#nowMs();
  }

  /** Resolves with the next version, the next request, or the end of the first wait. */
  async #nextVersion(awaiting: ReadonlySet<PendingRequest>): Promise<void> {
    this.#awaited = new AbortController();
    const waitMs = Math.min(...[...awaiting].map((pending) => this.#readyWaitMs(pending)));
    await sleep(this.#options.ports, Math.max(0, waitMs), this.#awaited.signal);
    this.#awaited = undefined;
  }

  async #plan(base: ProtectorVersion): Promise<Batch> {
    const plan = (): Batch => {
      this.#queue.addOwed();
      return planBatch(base, this.#queue.mostUrgent(MAX_BATCH), (cell) => this.versions.cellSinceMs(cell));
    };
    const batch = plan();
    if (batch.stale.length === 0) return batch;
    await Promise.all(batch.stale.map((pending) => this.#reread(pending)));
    return plan();
  }

  async #reread(pending: PendingReserve): Promise<void> {
    const timeoutMs = Math.min(MAX_REREAD_MS, pending.deadlineMs - this.#nowMs());
    const live = await pending.reread?.(timeoutMs);
    if (live?.kind === "found") {
      pending.request = { ...pending.request, pod: live.pod };
      pending.podReadMs = live.sentMs;
    } else if (live?.kind === "gone") this.#queue.settle(pending, { kind: "podGone" });
    else {
      const message = live?.message ?? "no live read";
      this.#queue.settle(pending, { kind: "failed", tag: "cell-unavailable", message });
    }
  }

  /** Makes reservations busy while the core recovers. True when the batch has to be planned again without them. */
  #holdBack({ writes }: Batch): boolean {
    if (this.#options.isRecovering?.() !== true) return false;
    const reserves = writes.filter((pending) => pending.kind === "reserve");
    for (const pending of reserves) {
      if (pending.attempt !== undefined) this.#queue.expire(pending);
      else this.#queue.settle(pending, { kind: "overloaded", cause: "recovering" });
    }
    return reserves.length > 0;
  }

  /**
   * True when the core has to be read before a reservation is written. Only a response shows whether there was an
   * outage, in which the core may have been restored to the state in this replica's cache.
   */
  #isFirstAfterFailure({ writes }: Batch): boolean {
    return this.#options.isFailing?.() === true && writes.some(({ kind }) => kind === "reserve");
  }

  /** Settles the denials that rest on a version no older than their request; false when one needs a fresh read. */
  #deny({ base: version, denied, writes }: Batch, awaiting: ReadonlySet<PendingRequest>): boolean {
    const { sentMs } = version;
    let isComplete = true;
    for (const { pending, decision: found } of denied) {
      if (awaiting.has(pending)) continue;
      // A denial that only this batch's own writes cause is not final: the request is decided again on their result.
      // Any other denial rests on the stored state, and does not wait for a batch without a write, which may be long in
      // coming.
      const isByBatch = writes.length > 0 && found.kind === "Busy";
      if (isByBatch && pending.together !== undefined) continue;
      const decision = isByBatch ? decide(version.state, pending.request) : found;
      if (decision.allowed) continue;
      if (sentMs !== undefined && sentMs >= pending.arrivedMs)
        this.#queue.settle(pending, { kind: "denied", decision, version });
      else isComplete = false;
    }
    return isComplete;
  }

  #nowMs(): number {
    return this.#options.ports.clock.monotonicMs();
  }
}
