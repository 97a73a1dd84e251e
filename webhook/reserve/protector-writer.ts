import { encodeStatus } from "../../shared/decide/state/encode-status.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Unavailable } from "../../shared/kube/client/api-result.ts";
import { Backoff } from "../../shared/runtime/backoff.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import {
  CONFLICT_WAIT_MAX_MS,
  CONFLICT_WAIT_MIN_MS,
  CONFLICTS_BEFORE_WAIT,
  CORE_RETRY,
  MAX_BATCH,
  MAX_CORE_CALL_MS,
  MAX_REREAD_MS,
  MAX_WAITING_PER_PROTECTOR,
} from "../limits.ts";
import { type Batch, isCommitted, planBatch } from "./batch.ts";
import { hasLostOwn } from "./lost-reservations.ts";
import { writerOf } from "./nonces.ts";
import type { PendingRequest, PendingReserve, ProtectorOutcome } from "./pending.ts";
import { PendingQueue } from "./pending-queue.ts";
import type { ProtectorClient } from "./protector-client.ts";
import { isWrittenByWebhook, type VersionFinding, VersionTracker } from "./version-tracker.ts";
import { WritePacing } from "./write-pacing.ts";
import { failureMessage, type ReadPurpose, readResult, type WriterObserver, writeResult } from "./writer-observer.ts";

export interface ProtectorWriterOptions {
  readonly namespace: string;
  readonly name: string;
  readonly ports: Ports;
  readonly calls: ProtectorClient;
  /** What the watch holds now. */
  readonly watched: () => ProtectorVersion | undefined;
  /** Told the version that each answer of the core has shown. */
  readonly learned?: (version: string) => void;
  readonly observer: WriterObserver;
  /** This replica's tag, as its nonces carry it. */
  readonly tag: string;
  /** The core has just come back from an outage: nothing is reserved yet (`outage.ts`). */
  readonly recovering?: () => boolean;
}

/** More than can be on their way: each is kept at least until its roll-back is seen. */
const MAX_WITHDRAWN = 1_024;

const DEFECT: ProtectorOutcome = {
  kind: "failed",
  tag: "defect",
  message: "the decision failed because of a defect in the webhook; see its log",
};

/**
 * All requests of this process for one protector (design 5.8): one call to its object at a time, everything that waits is decided
 * together on the newest version known, and written by one compare-and-swap.
 */
export class ProtectorWriter {
  readonly #options: ProtectorWriterOptions;
  readonly #known = new VersionTracker();
  readonly #turns: WritePacing;
  readonly #backoff: Backoff;
  readonly #waiting: PendingQueue;
  #running = false;
  #writing = false;
  #conflicts = 0;
  #wake: (() => void) | undefined;
  /** Nonces that this replica has taken back or tries to. */
  readonly #withdrawn = new Set<string>();
  /** Message of the core's last failure, until a call succeeds. */
  #failure: string | undefined;

  constructor(options: ProtectorWriterOptions) {
    this.#options = options;
    this.#waiting = new PendingQueue(options.ports, (work) => this.#expire(work));
    this.#turns = new WritePacing(options.tag, options.ports.random);
    this.#backoff = new Backoff(CORE_RETRY, options.ports.random);
  }

  /** True when nothing waits here. */
  get idle(): boolean {
    return this.#waiting.size === 0;
  }

  /** The newest version known, for a verdict that needs no write. */
  newest(): ProtectorVersion | undefined {
    const watched = this.#options.watched();
    if (watched !== undefined && !this.#writing) this.#note(this.#known.newest, watched, this.#known.offer(watched));
    return this.#known.newest;
  }

  /** The newest version known by now, without a look at the watch. */
  get known(): ProtectorVersion | undefined {
    return this.#known.newest;
  }

  cellSinceMs(cell: string): number {
    return this.#known.cellSinceMs(cell);
  }

  /** Queues a request; its outcome is settled before its deadline. */
  submit(work: PendingRequest): void {
    if (this.#waiting.size >= MAX_WAITING_PER_PROTECTOR && work.kind === "reserve") {
      work.settle({ kind: "overloaded", cause: "queue" });
      return;
    }
    if (work.kind === "rollBack") this.#withdraw(work.nonce);
    this.#waiting.add(work);
    if (!this.#running) void this.#run();
  }

  /** The watch has shown that history was lost: `entry` is what there is now. */
  restart(entry: ProtectorVersion): void {
    this.#known.restart(entry);
  }

  /** The watch has another version. While an own write is under way it may be that very write: judged when it is answered. */
  watchChanged(): void {
    if (this.#writing) return;
    this.newest();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      while (this.#waiting.size > 0) {
        await this.#turn();
        this.#sweep();
        if (this.#waiting.size > 0) await this.#round();
      }
    } catch (error) {
      this.#options.observer.crashed(error);
      this.#waiting.settleAll(DEFECT);
    } finally {
      this.#running = false;
    }
  }

  /** Waits until it is this replica's turn to write (L5), which without rivals is now. */
  async #turn(): Promise<void> {
    for (;;) {
      this.newest();
      const nowMs = this.#nowMs();
      const waitMs = Math.min(this.#turns.waitMs(nowMs), this.#slackMs(nowMs));
      if (waitMs <= 0) break;
      await this.#sleepUntilWoken(waitMs);
    }
    if (this.#conflicts < CONFLICTS_BEFORE_WAIT || this.#turns.hasRivals) return;
    const spread = CONFLICT_WAIT_MAX_MS - CONFLICT_WAIT_MIN_MS;
    await this.#sleep(CONFLICT_WAIT_MIN_MS + spread * this.#options.ports.random.fraction());
  }

  /** How long the most urgent request can still wait for a write. */
  #slackMs(nowMs: number): number {
    return this.#waiting.earliestDeadlineMs - nowMs - 3 * this.#turns.roundTripMs;
  }

  /** Answers before the write what cannot make it, and drops what nobody waits for any more (design 5.8). */
  #sweep(): void {
    const tooLateMs = this.#nowMs() + this.#turns.roundTripMs;
    for (const work of this.#waiting.all()) {
      if (work.kind !== "reserve" || work.attempt !== undefined) continue;
      if (work.gone()) this.#waiting.settle(work, { kind: "abandoned" });
      else if (work.deadlineMs <= tooLateMs) this.#expire(work);
    }
  }

  async #round(): Promise<void> {
    const base = this.newest();
    if (base === undefined) {
      await this.#read("first");
      return;
    }
    if (this.#turns.readsFirst && this.#waiting.allArrivedAfter(base.receivedMs)) {
      await this.#read("stale");
      this.#turns.cacheWas(this.#known.newest?.version === base.version ? "current" : "stale");
      return;
    }
    const round = await this.#plan(base);
    for (const { work, error } of round.broken) {
      this.#options.observer.crashed(error);
      this.#waiting.settle(work, DEFECT);
    }
    for (const work of round.done) this.#waiting.settle(work, { kind: "done" });
    for (const { work, decision } of round.free)
      this.#waiting.settle(work, { kind: "allowed", decision, written: false });
    if (this.#putOff(round)) return;
    const isAnswered = this.#refuse(round);
    if (round.writes.length > 0) await this.#write(round);
    else if (!isAnswered) await this.#read("confirm");
  }

  /** While the core recovers, what would be reserved is answered busy; true when the rest has to be planned anew without it. */
  #putOff({ writes }: Batch): boolean {
    if (this.#options.recovering?.() !== true) return false;
    const reserves = writes.filter((work) => work.kind === "reserve");
    for (const work of reserves) {
      // What may be written already must not be refused: it is an HTTP error, and the reservation settles (design 5.7).
      if (work.attempt !== undefined) this.#expire(work);
      else this.#waiting.settle(work, { kind: "overloaded", cause: "recovering" });
    }
    return reserves.length > 0;
  }

  async #plan(base: ProtectorVersion): Promise<Batch> {
    const round = planBatch(base, this.#waiting.mostUrgent(MAX_BATCH), (cell) => this.#known.cellSinceMs(cell));
    if (round.stale.length === 0) return round;
    await Promise.all(round.stale.map((work) => this.#reread(work)));
    return planBatch(base, this.#waiting.mostUrgent(MAX_BATCH), (cell) => this.#known.cellSinceMs(cell));
  }

  async #reread(work: PendingReserve): Promise<void> {
    const timeoutMs = Math.min(MAX_REREAD_MS, work.deadlineMs - this.#nowMs());
    const live = await work.reread?.(timeoutMs);
    if (live?.kind === "found") {
      work.request = { ...work.request, pod: live.pod };
      work.podReadMs = live.sentMs;
    } else if (live?.kind === "gone") this.#waiting.settle(work, { kind: "podGone" });
    else
      this.#waiting.settle(work, { kind: "failed", tag: "cell-unavailable", message: live?.message ?? "no live read" });
  }

  /** Answers the refusals that rest on a version no older than the request; false when one needs a fresh read (L6). */
  #refuse({ base: { sentMs }, refused, writes }: Batch): boolean {
    let complete = true;
    for (const { work, decision } of refused) {
      // Busy may rest on what this very round is about to write, and is decided again on its answer. A denial rests on the counts,
      // which no webhook writes: it does not wait for a round without a write, which a busy protector may not have for long.
      if (writes.length > 0 && decision.kind === "Busy") continue;
      if (sentMs !== undefined && sentMs >= work.arrivedMs) this.#waiting.settle(work, { kind: "refused", decision });
      else complete = false;
    }
    return complete;
  }

  async #write(round: Batch): Promise<void> {
    const { calls, observer } = this.#options;
    const { base, writes, decisions } = round;
    const status = encodeStatus(round.working, base.object.status);
    for (const [work, decision] of decisions) work.attempt = { decision, baseVersion: base.version };
    const sentMs = this.#nowMs();
    this.#writing = true;
    const result = await calls.write(base.object, status, this.#callBudgetMs()).finally(() => {
      this.#writing = false;
    });
    const tookMs = this.#nowMs() - sentMs;
    const label = writeResult(result);
    observer.wrote(label, writes.length, tookMs, failureMessage(result));
    if (result.kind === "ok") this.#turns.wrote(this.#nowMs(), tookMs, writes.length);
    if (result.kind === "ok") this.#written(round, new ProtectorVersion(result.object, this.#nowMs(), sentMs));
    else if (result.kind === "conflict") {
      this.#conflicts++;
      this.#turns.conflicted(tookMs);
      await this.#read("conflict");
    } else if (result.kind === "gone") this.#absent();
    else if (result.kind === "rejected") this.#rejected(writes, result.message);
    else await this.#unavailable(result, decisions.keys());
  }

  #written(round: Batch, entry: ProtectorVersion): void {
    this.#succeeded();
    this.#conflicts = 0;
    this.#learn(entry, "own");
    this.#options.observer.committed(entry, round);
    for (const work of round.writes) {
      const decision = work.kind === "reserve" ? round.decisions.get(work) : undefined;
      this.#waiting.settle(
        work,
        decision === undefined ? { kind: "done" } : { kind: "allowed", decision, written: true },
      );
    }
  }

  /** The server does not take this write, whatever it is repeated: nothing was written. */
  #rejected(works: readonly PendingRequest[], message: string): void {
    for (const work of works) {
      if (work.kind === "reserve") work.attempt = undefined;
      this.#waiting.settle(work, { kind: "failed", tag: "core-rejected", message });
    }
  }

  /** No answer: what was not sent is tried again, what may have been made is looked for (design 5.7). */
  async #unavailable(result: Unavailable, attempted: Iterable<PendingReserve>): Promise<void> {
    this.#failure = result.error.message;
    if (!result.sent) for (const work of attempted) work.attempt = undefined;
    await this.#sleep(Math.max(this.#backoff.nextMs(), Math.min(result.retryAfterMs ?? 0, 1_000)));
    if (result.sent) await this.#read("unknown");
  }

  async #read(purpose: ReadPurpose): Promise<void> {
    const { calls, observer, namespace, name } = this.#options;
    const sentMs = this.#nowMs();
    const result = await calls.read(namespace, name, this.#callBudgetMs());
    observer.read(purpose, readResult(result), failureMessage(result));
    if (result.kind === "ok") {
      this.#succeeded();
      const entry = new ProtectorVersion(result.object, this.#nowMs(), sentMs);
      this.#learn(entry, "read");
      this.#resolveAttempts(entry);
    } else if (result.kind === "gone") this.#absent();
    else if (result.kind === "unavailable") await this.#unavailable({ ...result, sent: false }, []);
    else this.#rejected(this.#waiting.all(), result.message);
  }

  /** Which of the writes with an unknown outcome were made? Those that were not can't be any more once the version moved. */
  #resolveAttempts(entry: ProtectorVersion): void {
    for (const work of this.#waiting.all()) {
      if (work.kind !== "reserve" || work.attempt === undefined) continue;
      const { decision, baseVersion } = work.attempt;
      if (isCommitted(entry, work)) this.#waiting.settle(work, { kind: "allowed", decision, written: true });
      else if (entry.version !== baseVersion) work.attempt = undefined;
    }
  }

  #learn(entry: ProtectorVersion, source: "own" | "read"): void {
    const before = this.#known.newest;
    this.#note(before, entry, this.#known.answered(entry), source === "own");
    if (this.#known.newest === entry) this.#options.learned?.(entry.version);
  }

  /** What the watch shows of lost history is noticed by the core, for all protectors; what a read shows is noticed here. */
  #note(before: ProtectorVersion | undefined, entry: ProtectorVersion, finding: VersionFinding, own = false): void {
    if (finding === "known" || before === undefined) return;
    if (finding !== "newer") {
      if (entry.sentMs !== undefined) this.#options.observer.historyLost(finding, before, entry);
    } else if (!own && hasLostOwn(before, entry, this.#options.tag, this.#withdrawn)) {
      this.#options.observer.historyLost("wentBack", before, entry);
    } else if (!own && isWrittenByWebhook(before, entry)) {
      const contending = this.#waiting.size > (this.#turns.readsFirst ? 1 : 0);
      this.#turns.rivalWrote(writerOf(before.object, entry.object), this.#nowMs(), contending);
    }
  }

  #withdraw(nonce: string): void {
    this.#withdrawn.add(nonce);
    for (const oldest of this.#withdrawn) {
      if (this.#withdrawn.size <= MAX_WITHDRAWN) break;
      this.#withdrawn.delete(oldest);
    }
  }

  #absent(): void {
    this.#succeeded();
    this.#known.forget();
    this.#waiting.settleAll({ kind: "absent" });
  }

  #succeeded(): void {
    this.#failure = undefined;
    this.#backoff.reset();
  }

  #expire(work: PendingRequest): void {
    if (work.kind === "reserve" && work.attempt !== undefined) {
      const message = "the write of the reservation was not answered in time; it is not known whether it was made";
      this.#waiting.settle(work, { kind: "failed", tag: "deadline", message });
    } else if (this.#failure !== undefined) {
      this.#waiting.settle(work, { kind: "failed", tag: "core-unavailable", message: this.#failure });
    } else this.#waiting.settle(work, { kind: "overloaded", cause: "time" });
  }

  #callBudgetMs(): number {
    return Math.max(1, Math.min(MAX_CORE_CALL_MS, this.#waiting.latestDeadlineMs - this.#nowMs()));
  }

  #nowMs(): number {
    return this.#options.ports.clock.monotonicMs();
  }

  /** A wait that a change of the object ends. */
  async #sleepUntilWoken(delayMs: number): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await sleep(this.#options.ports, delayMs, woken.signal);
    this.#wake = undefined;
  }

  #sleep(delayMs: number): Promise<void> {
    return sleep(this.#options.ports, delayMs);
  }
}
