import { encodeStatus } from "../../shared/decide/state/encode-status.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Unavailable } from "../../shared/kube/client/api-result.ts";
import { Backoff } from "../../shared/runtime/backoff.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import { type Batch, isCommitted, planBatch } from "./batch.ts";
import { LostReservations } from "./lost-reservations.ts";
import { writerOf } from "./nonces.ts";
import { PendingQueue, type PendingRequest, type PendingReserve } from "./pending-queue.ts";
import type { ProtectorClient } from "./protector-client.ts";
import type { ProtectorDecision } from "./verdict.ts";
import { isWrittenByWebhook, type VersionFinding, VersionTracker } from "./version-tracker.ts";
import { WritePacing } from "./write-pacing.ts";
import { failureMessage, type ReadPurpose, readResult, type WriterObserver, writeResult } from "./writer-observer.ts";

/** Requests that wait for one protector; beyond it a reservation is busy at once. */
const MAX_PENDING = 4_000;
/** Bounds what a conflict costs, and how long planning holds the event loop. */
const MAX_BATCH = 1_000;
/** No call to a core cluster takes longer, whatever the deadlines are. */
const MAX_CALL_MS = 3_000;
/** A live read holds up the whole batch: after this time, its own request fails alone. */
export const MAX_REREAD_MS = 250;
/** After so many conflicts in a row, the writer waits this long before each attempt. */
const CONFLICTS_BEFORE_WAIT = 3;
const CONFLICT_WAIT_MIN_MS = 5;
const CONFLICT_WAIT_MAX_MS = 20;
/**
 * Pauses between the calls for one protector while its core does not answer: a blip is bridged in milliseconds, an outage sees at most ten
 * calls in its first ten seconds, and a request with ten seconds left still meets a core that comes back.
 */
const CORE_RETRY = { initialMs: 20, maxMs: 2_500, factor: 3, jitter: 0.25 };

export interface ProtectorWriterOptions {
  readonly namespace: string;
  readonly name: string;
  readonly ports: Ports;
  readonly client: ProtectorClient;
  /** The version that the watch has now. */
  readonly watched: () => ProtectorVersion | undefined;
  /** Called with the version of each object that the core returned. */
  readonly learned?: (version: string) => void;
  readonly observer: WriterObserver;
  /** This replica's tag, which begins its nonces. */
  readonly tag: string;
  /** The core has just come back from an outage: nothing is reserved yet (`outage-detector.ts`). */
  readonly isRecovering?: () => boolean;
}

const DEFECT: ProtectorDecision = {
  kind: "failed",
  tag: "defect",
  message: "the decision failed because of a defect in the webhook; see its log",
};

/**
 * Serialises all writes of this process to one protector (docs/design.md#batches). One call is in flight at a time. Everything that waits
 * is decided together on the newest version known, and written by one compare-and-swap.
 */
export class ProtectorWriter {
  readonly #options: ProtectorWriterOptions;
  readonly #versions = new VersionTracker();
  readonly #lost: LostReservations;
  readonly #pacing: WritePacing;
  readonly #backoff: Backoff;
  readonly #queue: PendingQueue;
  #isRunning = false;
  #isWriting = false;
  #conflicts = 0;
  #wake: (() => void) | undefined;

  constructor(options: ProtectorWriterOptions) {
    this.#options = options;
    this.#queue = new PendingQueue(options.ports);
    this.#lost = new LostReservations(options.tag);
    this.#pacing = new WritePacing(options.tag, options.ports.random);
    this.#backoff = new Backoff(CORE_RETRY, options.ports.random);
  }

  /** True when no request waits here. */
  get idle(): boolean {
    return this.#queue.size === 0;
  }

  /** The newest version, for a decision that needs no write. */
  newest(): ProtectorVersion | undefined {
    const watched = this.#options.watched();
    if (watched !== undefined && !this.#isWriting)
      this.#note(this.#versions.newest, watched, this.#versions.offer(watched));
    return this.#versions.newest;
  }

  /** The newest version without a look at the watch. */
  get known(): ProtectorVersion | undefined {
    return this.#versions.newest;
  }

  cellSinceMs(cell: string): number {
    return this.#versions.cellSinceMs(cell);
  }

  /** Queues a request, which is settled before its deadline. */
  submit(pending: PendingRequest): void {
    if (this.#queue.size >= MAX_PENDING && pending.kind === "reserve") {
      pending.settle({ kind: "overloaded", cause: "queue" });
      return;
    }
    if (pending.kind === "rollBack") this.#lost.withdraw(pending.nonce);
    this.#queue.add(pending);
    if (!this.#isRunning) void this.#run();
  }

  /** The watch has shown that history was lost: `version` replaces what was known. */
  restart(version: ProtectorVersion): void {
    this.#versions.restart(version);
  }

  /** The watch has another version. During an own write it may be that write, so it is judged after the response. */
  watchChanged(): void {
    if (this.#isWriting) return;
    this.newest();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    try {
      while (this.#queue.size > 0) {
        await this.#waitForTurn();
        this.#queue.sweep(this.#pacing.roundTripMs);
        if (this.#queue.size > 0) await this.#decideBatch();
      }
    } catch (error) {
      this.#options.observer.crashed(error);
      this.#queue.settleAll(DEFECT);
    } finally {
      this.#isRunning = false;
    }
  }

  /** Resolves when this replica may write (L5 of docs/design.md#invariants), which is at once without competing replicas. */
  async #waitForTurn(): Promise<void> {
    const { ports } = this.#options;
    for (;;) {
      this.newest();
      const nowMs = this.#nowMs();
      // Never longer than the most urgent request can wait for its write.
      const slackMs = this.#queue.earliestDeadlineMs - nowMs - 3 * this.#pacing.roundTripMs;
      const waitMs = Math.min(this.#pacing.waitMs(nowMs), slackMs);
      if (waitMs <= 0) break;
      const woken = new AbortController();
      this.#wake = () => woken.abort();
      await sleep(ports, waitMs, woken.signal);
      this.#wake = undefined;
    }
    if (this.#conflicts < CONFLICTS_BEFORE_WAIT || this.#pacing.hasRivals) return;
    const spreadMs = CONFLICT_WAIT_MAX_MS - CONFLICT_WAIT_MIN_MS;
    await sleep(ports, CONFLICT_WAIT_MIN_MS + spreadMs * ports.random.fraction());
  }

  async #decideBatch(): Promise<void> {
    const base = this.newest();
    if (base === undefined) {
      await this.#read("first");
      return;
    }
    if (this.#pacing.readsFirst && this.#queue.allArrivedAfter(base.receivedMs)) {
      await this.#read("stale");
      this.#pacing.cacheWas(this.#versions.newest?.version === base.version ? "current" : "stale");
      return;
    }
    const batch = await this.#plan(base);
    for (const { pending, error } of batch.broken) {
      this.#options.observer.crashed(error);
      this.#queue.settle(pending, DEFECT);
    }
    for (const pending of batch.done) this.#queue.remove(pending);
    for (const { pending, decision } of batch.free)
      this.#queue.settle(pending, { kind: "allowed", decision, version: base, written: false });
    if (this.#holdBack(batch)) return;
    const isSettled = this.#deny(batch);
    if (batch.writes.length > 0) await this.#write(batch);
    else if (!isSettled) await this.#read("confirm");
  }

  async #plan(base: ProtectorVersion): Promise<Batch> {
    const plan = (): Batch =>
      planBatch(base, this.#queue.mostUrgent(MAX_BATCH), (cell) => this.#versions.cellSinceMs(cell));
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

  /** While the core recovers, reservations are busy. Returns true when the batch has to be planned again without them. */
  #holdBack({ writes }: Batch): boolean {
    if (this.#options.isRecovering?.() !== true) return false;
    const reserves = writes.filter((pending) => pending.kind === "reserve");
    for (const pending of reserves) {
      if (pending.attempt !== undefined) this.#queue.expire(pending);
      else this.#queue.settle(pending, { kind: "overloaded", cause: "recovering" });
    }
    return reserves.length > 0;
  }

  /** Settles the denials that rest on a version no older than their request; false when one needs a fresh read (L6). */
  #deny({ base: { sentMs }, denied, writes }: Batch): boolean {
    let isComplete = true;
    for (const { pending, decision } of denied) {
      // Busy may rest on what this batch is about to write, and is decided again on its result. A denial rests on the counts, which no
      // webhook writes, so it does not wait for a batch without a write, which a busy protector may not have for long.
      if (writes.length > 0 && decision.kind === "Busy") continue;
      if (sentMs !== undefined && sentMs >= pending.arrivedMs)
        this.#queue.settle(pending, { kind: "denied", decision });
      else isComplete = false;
    }
    return isComplete;
  }

  async #write(batch: Batch): Promise<void> {
    const { client, observer } = this.#options;
    const { base, writes, decisions } = batch;
    const status = encodeStatus(batch.working, base.object.status);
    for (const [pending, decision] of decisions) pending.attempt = { decision, baseVersion: base.version };
    const sentMs = this.#nowMs();
    this.#isWriting = true;
    const result = await client.write(base.object, status, this.#callBudgetMs()).finally(() => {
      this.#isWriting = false;
    });
    const tookMs = this.#nowMs() - sentMs;
    observer.wrote(writeResult(result), writes.length, tookMs, failureMessage(result));
    if (result.kind === "ok") {
      this.#pacing.wrote(this.#nowMs(), tookMs, writes.length);
      this.#written(batch, new ProtectorVersion(result.object, this.#nowMs(), sentMs));
    } else if (result.kind === "conflict") {
      this.#conflicts++;
      this.#pacing.conflicted(tookMs);
      await this.#read("conflict");
    } else if (result.kind === "gone") this.#absent();
    else if (result.kind === "rejected") this.#rejected(writes, result.message);
    else await this.#unavailable(result, decisions.keys());
  }

  #written(batch: Batch, stored: ProtectorVersion): void {
    this.#succeeded();
    this.#conflicts = 0;
    this.#learn(stored, "write");
    this.#options.observer.committed(stored, batch);
    for (const pending of batch.writes) {
      const decision = pending.kind === "reserve" ? batch.decisions.get(pending) : undefined;
      if (decision === undefined) this.#queue.remove(pending);
      else this.#queue.settle(pending, { kind: "allowed", decision, version: batch.base, written: true });
    }
  }

  /** The server would reject a repetition too, and nothing was written. */
  #rejected(requests: readonly PendingRequest[], message: string): void {
    for (const pending of requests) {
      if (pending.kind === "reserve") pending.attempt = undefined;
      this.#queue.settle(pending, { kind: "failed", tag: "core-rejected", message });
    }
  }

  /** A write that was not sent is tried again. A write that may have been made is looked for in the object. */
  async #unavailable(result: Unavailable, attempted: Iterable<PendingReserve>): Promise<void> {
    this.#queue.coreFailure = result.error.message;
    if (!result.sent) for (const pending of attempted) pending.attempt = undefined;
    const pauseMs = Math.max(this.#backoff.nextMs(), Math.min(result.retryAfterMs ?? 0, 1_000));
    await sleep(this.#options.ports, pauseMs);
    if (result.sent) await this.#read("unknown");
  }

  async #read(purpose: ReadPurpose): Promise<void> {
    const { client, observer, namespace, name } = this.#options;
    const sentMs = this.#nowMs();
    const result = await client.read(namespace, name, this.#callBudgetMs());
    observer.read(purpose, readResult(result), failureMessage(result));
    if (result.kind === "ok") {
      this.#succeeded();
      const version = new ProtectorVersion(result.object, this.#nowMs(), sentMs);
      this.#learn(version, "read");
      this.#resolveAttempts(version);
    } else if (result.kind === "gone") this.#absent();
    else if (result.kind === "unavailable") await this.#unavailable({ ...result, sent: false }, []);
    else this.#rejected(this.#queue.all(), result.message);
  }

  /** Finds the writes with an unknown result that were made. A write that was not made cannot be made once the version has changed. */
  #resolveAttempts(version: ProtectorVersion): void {
    for (const pending of this.#queue.all()) {
      if (pending.kind !== "reserve" || pending.attempt === undefined) continue;
      const { decision, baseVersion } = pending.attempt;
      if (isCommitted(version, pending))
        this.#queue.settle(pending, { kind: "allowed", decision, version, written: true });
      else if (version.version !== baseVersion) pending.attempt = undefined;
    }
  }

  #learn(version: ProtectorVersion, source: "write" | "read"): void {
    const before = this.#versions.newest;
    this.#note(before, version, this.#versions.answered(version), source === "write");
    if (this.#versions.newest === version) this.#options.learned?.(version.version);
  }

  /** The protector cache notices lost history that the watch shows. What a response shows is noticed here. */
  #note(before: ProtectorVersion | undefined, now: ProtectorVersion, finding: VersionFinding, isOwn = false): void {
    if (finding === "known" || before === undefined) return;
    if (finding !== "newer") {
      if (now.sentMs !== undefined) this.#options.observer.historyLost(finding, before, now);
    } else if (isOwn) return;
    else if (this.#lost.isLost(before, now)) this.#options.observer.historyLost("wentBack", before, now);
    else if (isWrittenByWebhook(before, now)) {
      const isContending = this.#queue.size > (this.#pacing.readsFirst ? 1 : 0);
      this.#pacing.rivalWrote(writerOf(before.object, now.object), this.#nowMs(), isContending);
    }
  }

  #absent(): void {
    this.#succeeded();
    this.#versions.forget();
    this.#queue.settleAll({ kind: "absent" });
  }

  #succeeded(): void {
    this.#queue.coreFailure = undefined;
    this.#backoff.reset();
  }

  #callBudgetMs(): number {
    return Math.max(1, Math.min(MAX_CALL_MS, this.#queue.latestDeadlineMs - this.#nowMs()));
  }

  #nowMs(): number {
    return this.#options.ports.clock.monotonicMs();
  }
}
