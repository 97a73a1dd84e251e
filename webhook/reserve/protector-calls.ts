import { decide } from "../../shared/decide/quota.ts";
import { encodeStatus } from "../../shared/decide/state/encode-status.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Unavailable } from "../../shared/kube/client/api-result.ts";
import { Backoff } from "../../shared/runtime/backoff.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import { type Batch, isCommitted, isMissing } from "./batch.ts";
import { LostReservations } from "./lost-reservations.ts";
import { writerOf } from "./nonces.ts";
import type { PendingQueue, PendingRequest, PendingReserve } from "./pending-queue.ts";
import type { ProtectorClient } from "./protector-client.ts";
import { failureMessage, type ProtectorEvent, type ReadPurpose, readResult, writeResult } from "./protector-event.ts";
import type { ProtectorDecision } from "./verdict.ts";
import { isWrittenByWebhook, type VersionFinding, type VersionTracker } from "./version-tracker.ts";
import type { WritePacing } from "./write-pacing.ts";

/** No call takes longer, whatever the deadlines are. */
const MAX_CALL_MS = 3_000;
/**
 * Pauses between the calls for one protector while its core does not answer, or fails each write: a short interruption
 * costs milliseconds, a core gets at most ten calls in the first ten seconds of an outage, and a request with ten
 * seconds left is still decided if the core comes back.
 */
const CORE_RETRY = { initialMs: 20, maxMs: 2_500, factor: 3, jitter: 0.25 };

const UNSTORED: ProtectorDecision = {
  kind: "failed",
  tag: "core-rejected",
  message: "the core's answer lacks the reservation that was written: does a policy or a proxy in between drop it?",
};

export interface ProtectorCallsOptions {
  readonly namespace: string;
  readonly name: string;
  readonly ports: Ports;
  readonly client: ProtectorClient;
  /** The version that the watch last showed. */
  readonly watched: () => ProtectorVersion | undefined;
  /** The core has just come back from an outage: nothing is reserved yet (`outage-detector.ts`). */
  readonly isRecovering?: () => boolean;
  /** The newest call to the core failed, or its stream broke (`outage-detector.ts`). */
  readonly isFailing?: () => boolean;
  /** Called with the version of each object that the core returned. */
  readonly learned?: (version: string) => void;
  readonly onEvent: (event: ProtectorEvent) => void;
  /** This replica's tag, which begins its nonces. */
  readonly tag: string;
}

/** The reads and writes of one protector. Each result updates the version tracker and the queue. */
export class ProtectorCalls {
  readonly #options: ProtectorCallsOptions;
  readonly #versions: VersionTracker;
  readonly #queue: PendingQueue;
  readonly #pacing: WritePacing;
  readonly #lost: LostReservations;
  readonly #backoff: Backoff;
  #isWriting = false;
  /** The newest write failed, so a read shows nothing new: writes alone may fail, by a webhook or a full disk. */
  #writesFail = false;
  #conflicts = 0;

  constructor(options: ProtectorCallsOptions, versions: VersionTracker, queue: PendingQueue, pacing: WritePacing) {
    this.#options = options;
    this.#versions = versions;
    this.#queue = queue;
    this.#pacing = pacing;
    this.#lost = new LostReservations(options.tag);
    this.#backoff = new Backoff(CORE_RETRY, options.ports.random);
  }

  get conflicts(): number {
    return this.#conflicts;
  }

  /**
   * The newest version, whether from the watch or from a response. During an own write, the version of the watch may
   * come from this write, so it is checked after the response.
   */
  newest(): ProtectorVersion | undefined {
    const watched = this.#options.watched();
    if (watched !== undefined && !this.#isWriting) {
      const before = this.#versions.newest;
      const finding = this.#versions.offer(watched);
      this.#note(before, watched, finding);
      if (finding === "newer" && this.#isWatchBelieved) this.#settleStored(watched);
    }
    return this.#versions.newest;
  }

  /** A roll-back of this nonce is queued, so its reservation is not lost when the object no longer has it. */
  withdraw(nonce: string): void {
    this.#lost.withdraw(nonce);
  }

  /** Writes a batch and settles its requests, or keeps them for the next attempt. */
  async write(batch: Batch): Promise<void> {
    const { client, onEvent } = this.#options;
    const { base, writes, decisions } = batch;
    const status = encodeStatus(batch.working, base.object.status);
    for (const [pending, decision] of decisions) pending.attempt = { decision, baseVersion: base.version };
    const sentMs = this.#nowMs();
    this.#isWriting = true;
    const result = await client.write(base.object, status, this.#callBudgetMs()).finally(() => {
      this.#isWriting = false;
    });
    const tookMs = this.#nowMs() - sentMs;
    onEvent({
      kind: "wrote",
      result: writeResult(result),
      requests: writes.length,
      tookMs,
      error: failureMessage(result),
    });
    this.#writesFail = result.kind === "unavailable";
    if (result.kind === "ok") {
      this.#pacing.wrote(this.#nowMs(), tookMs, writes.length);
      this.#written(batch, new ProtectorVersion(result.object, this.#nowMs(), sentMs));
    } else if (result.kind === "conflict") {
      this.#conflicts++;
      this.#pacing.conflicted(tookMs);
      await this.read("conflict");
    } else if (result.kind === "gone") this.#absent();
    else if (result.kind === "rejected") await this.#refused(batch, result.message);
    else await this.#unavailable(result, decisions.keys());
  }

  #written(batch: Batch, stored: ProtectorVersion): void {
    this.#succeeded();
    this.#conflicts = 0;
    this.#learn(stored, "write");
    this.#options.onEvent({ kind: "committed", stored, batch });
    for (const pending of batch.writes) {
      const decision = pending.kind === "reserve" ? batch.decisions.get(pending) : undefined;
      if (decision === undefined) this.#queue.remove(pending);
      else if (pending.kind === "reserve" && isMissing(stored, pending)) this.#queue.settle(pending, UNSTORED);
      else this.#queue.settle(pending, { kind: "allowed", decision, version: batch.base, written: true });
    }
  }

  /** Without its hold, nothing is reserved either. A denial by the stored state is told, once a read confirms it. */
  async #refused({ base, writes }: Batch, message: string): Promise<void> {
    if (!writes.some(({ kind }) => kind === "reassert")) return this.#rejected(writes, message);
    const isDenied = (one: PendingRequest): boolean =>
      one.kind === "reserve" && !decide(base.state, one.request).allowed;
    this.#rejected(
      this.#queue.all().filter((one) => !isDenied(one)),
      message,
    );
    if (this.#queue.size > 0) await this.read("confirm");
  }

  /** Nothing was written, and the server would reject a repetition, too. */
  #rejected(requests: readonly PendingRequest[], message: string): void {
    for (const pending of requests) this.#queue.settle(pending, { kind: "failed", tag: "core-rejected", message });
  }

  /** A write that was not sent is repeated. Before a write that may have succeeded is repeated, the object is read. */
  async #unavailable(result: Unavailable, attempted: Iterable<PendingReserve>): Promise<void> {
    this.#queue.coreFailure = result.error.message;
    if (!result.sent) for (const pending of attempted) pending.attempt = undefined;
    const pauseMs = Math.max(this.#backoff.nextMs(), Math.min(result.retryAfterMs ?? 0, 1_000));
    await sleep(this.#options.ports, pauseMs);
    // The watch may show what the late response would.
    this.newest();
    const isOpen = (pending: PendingRequest): boolean => pending.kind !== "reserve" || pending.attempt !== undefined;
    if (result.sent && this.#queue.all().some(isOpen)) await this.read("unknown");
  }

  async read(purpose: ReadPurpose): Promise<void> {
    const { client, onEvent, namespace, name } = this.#options;
    const sentMs = this.#nowMs();
    const result = await client.read(namespace, name, this.#callBudgetMs());
    onEvent({ kind: "read", purpose, result: readResult(result), error: failureMessage(result) });
    if (result.kind === "ok") {
      if (!this.#writesFail) this.#succeeded();
      const version = new ProtectorVersion(result.object, this.#nowMs(), sentMs);
      this.#learn(version, "read");
      this.#resolveAttempts(version);
    } else if (result.kind === "gone") this.#absent();
    else if (result.kind === "unavailable") await this.#unavailable({ ...result, sent: false }, []);
    else this.#rejected(this.#queue.all(), result.message);
  }

  /**
   * Finds which writes with an unknown result succeeded. Once the version has changed, the others can no longer
   * succeed.
   */
  #resolveAttempts(version: ProtectorVersion): void {
    this.#settleStored(version);
    for (const pending of this.#queue.all())
      if (pending.kind === "reserve" && pending.attempt?.baseVersion !== version.version) pending.attempt = undefined;
  }

  /** Settles the reservations that this version has, of writes that nobody answered. */
  #settleStored(version: ProtectorVersion): void {
    const decisions: Batch["decisions"] = new Map();
    for (const pending of this.#queue.all()) {
      if (pending.kind !== "reserve" || pending.attempt === undefined || !isCommitted(version, pending)) continue;
      const { decision } = pending.attempt;
      decisions.set(pending, decision);
      this.#queue.settle(pending, { kind: "allowed", decision, version, written: true });
    }
    const batch = { writes: [...decisions.keys()], decisions };
    if (decisions.size > 0) this.#options.onEvent({ kind: "committed", stored: version, batch });
  }

  /**
   * The watch may show a write whose response is late. After a failure only a read tells: the core may have been
   * restored since.
   */
  get #isWatchBelieved(): boolean {
    const { isRecovering, isFailing } = this.#options;
    return isRecovering?.() !== true && isFailing?.() !== true;
  }

  #learn(version: ProtectorVersion, source: "write" | "read"): void {
    const before = this.#versions.newest;
    this.#note(before, version, this.#versions.answered(version), source === "write");
    if (this.#versions.newest === version) this.#options.learned?.(version.version);
  }

  /** Notices lost history in a response. The protector cache notices it in the watch. */
  #note(before: ProtectorVersion | undefined, now: ProtectorVersion, finding: VersionFinding, isOwn = false): void {
    if (finding === "known" || before === undefined) return;
    const { onEvent } = this.#options;
    if (finding !== "newer") {
      if (now.sentMs !== undefined) onEvent({ kind: "historyLost", finding, before, now });
    } else if (isOwn) return;
    else if (this.#lost.isLost(before, now)) onEvent({ kind: "historyLost", finding: "wentBack", before, now });
    else if (isWrittenByWebhook(before, now)) {
      const isContending = this.#queue.size > (this.#pacing.readsFirst ? 1 : 0);
      this.#pacing.competitorWrote(writerOf(before.object, now.object), this.#nowMs(), isContending);
    }
  }

  #absent(): void {
    this.#writesFail = false;
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
