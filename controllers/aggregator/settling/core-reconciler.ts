/**
 * One core cluster during one term of leadership: a queue of protectors, workers that account and write, and everything that makes
 * a protector due again. Level-triggered: a key says that something may have changed, the state says what.
 */

import type { Incident, KnownEntry } from "../../../shared/decide/settling/lost-history.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiFailure, ApiResult } from "../../../shared/kube/client/api-result.ts";
import { sleep } from "../../../shared/runtime/clock.ts";
import {
  DONE,
  failed,
  later,
  type ReconcileOutcome,
  runWorkers,
  type Workers,
} from "../../../shared/runtime/reconcile.ts";
import { type QueueEvent, WorkQueue } from "../../../shared/runtime/work-queue.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodProtector, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";
import { cellEntry, namespacedName } from "../../../shared/schema/podprotector.ts";
import type { CountedGate } from "../counting/counted-gate.ts";
import { staleCells } from "../counting/heartbeats.ts";
import type { Membership, MembershipListener, TrackedProtector } from "../counting/membership.ts";
import type { EventSink, ReconcileResult } from "../events.ts";
import { makePlan, type PlanContext, type ReconcilePlan } from "./reconcile-plan.ts";
import { ReconcileState } from "./reconcile-state.ts";
import { ReservationIndex } from "./reservation-index.ts";
import type { ReservationVoider } from "./reservation-voider.ts";

export interface CoreReconcilerOptions extends Omit<PlanContext, "incident" | "algorithm"> {
  readonly core: string;
  readonly algorithm: PlanContext["algorithm"];
  readonly membership: Membership;
  readonly client: Pick<ApiClient, "getPodProtector" | "putPodProtectorStatus">;
  /** Told the version of a protector, by `namespace/name`, that each answer of the core has shown. */
  readonly learned: (key: string, version: string) => void;
  /** Asked before each write: this process holds the lease for longer than the write can take. */
  readonly mayWrite: () => boolean;
  readonly voider: ReservationVoider | undefined;
  /** Told which pods are in the stored count. */
  readonly gate?: Pick<CountedGate, "waitingOf" | "counted">;
  readonly coalesceMs: number;
  readonly writeConcurrency: number;
  readonly timeoutMs: number;
  readonly incident: Incident | undefined;
  /** The snapshot is older than what a quorum read sent after it was stored: told to all terms. */
  readonly onCellRestored: (snapshot: string, stored: string) => void;
  readonly onEvent: EventSink;
  readonly onQueueEvent: (event: QueueEvent) => void;
}

/** Conflicts in one go, after which the key waits out a backoff. */
const MAX_CONFLICTS = 10;
/** Conflicts that are answered at once; the next ones wait a little, so that contenders separate (design 5.8). */
const PROMPT_CONFLICTS = 3;
const CONFLICT_PAUSE_MS = { least: 5, most: 20 };
/** A heartbeat comes at up to this fraction of the interval early, so that the protectors' writes spread out. */
const HEARTBEAT_SPREAD = 0.2;
/** How often a protector that waits for the stream's progress is looked at while it moves. */
const PROGRESS_PAUSE_MS = 100;
const DEPARTED_SETTLES = 4;
const FIELD_MANAGER = "podseidon-aggregator";
/** A process that may not write looks again after this: its term is about to end. */
const LEADERLESS_RETRY_MS = 1_000;

export class CoreReconciler implements MembershipListener {
  readonly #options: CoreReconcilerOptions;
  readonly #queue: WorkQueue<TrackedProtector>;
  readonly #progress = new Map<TrackedProtector, ReconcileState>();
  readonly #reserved = new ReservationIndex<TrackedProtector>();
  /** What was known of protectors that are gone: one that is made again under the same name has lost its history (design 5.4). */
  readonly #departed = new Map<string, { readonly known: KnownEntry; readonly atMs: number }>();
  /** Those that any progress of the stream may settle, without an event of one of their pods. */
  readonly #onProgress = new Set<TrackedProtector>();
  readonly #unlisten: (() => void)[];
  readonly #workers: Workers;
  readonly #stopping = new AbortController();
  #incident: Incident | undefined;
  #algorithm: PlanContext["algorithm"];

  /** Begins at once: every protector is accounted for. */
  constructor(options: CoreReconcilerOptions) {
    const { ports, core, membership, writeConcurrency } = options;
    this.#options = options;
    this.#incident = options.incident;
    this.#algorithm = options.algorithm;
    this.#queue = new WorkQueue({ name: core, ports, onEvent: options.onQueueEvent });
    this.#unlisten = [membership.listen(this), options.cell.pods.subscribe({ advanced: () => this.#positionMoved() })];
    for (const entry of membership.protectors(core)) this.#queue.add(entry);
    this.#workers = runWorkers(this.#queue, (entry) => this.#reconcile(entry), { workers: writeConcurrency, ports });
  }

  get queue(): WorkQueue<TrackedProtector> {
    return this.#queue;
  }

  /** What is known of each protector, for metrics. */
  states(): Iterable<[TrackedProtector, ReconcileState]> {
    return this.#progress;
  }

  /** Other cells that are known to this core and have missed their heartbeats. */
  staleCells(): ReadonlySet<string> {
    const { membership, core, ports, staleAfterMs } = this.#options;
    const protectors = [...membership.protectors(core)].map(({ protector }) => protector);
    return staleCells(protectors, ports.clock.nowMs() - staleAfterMs);
  }

  /** The way admissions are settled here; it falls back to `clock` where the core drops this project's fields. */
  get algorithm(): PlanContext["algorithm"] {
    return this.#algorithm;
  }

  /** Takes no more work and ends what is under way. */
  async stop(): Promise<void> {
    for (const unlisten of this.#unlisten) unlisten();
    this.#stopping.abort();
    await this.#workers.stop({ abort: true });
    for (const entry of this.#progress.keys()) this.#options.evidence.need(entry, undefined);
    this.#progress.clear();
  }

  /** History may be lost everywhere: every protector is judged anew (design 5.4). */
  historyLost(incident: Incident): void {
    this.#incident = incident;
    for (const progress of this.#progress.values()) progress.forgetOwn();
    for (const entry of this.#options.membership.protectors(this.#options.core)) this.#queue.addNow(entry);
  }

  /** There is evidence that this protector waited for. */
  evidenceFound(entry: TrackedProtector): void {
    if (entry.id.core === this.#options.core) this.#queue.add(entry);
  }

  podChanged(entry: TrackedProtector): void {
    if (entry.id.core !== this.#options.core) return;
    const { ports, coalesceMs } = this.#options;
    const progress = this.#progress.get(entry);
    if (progress !== undefined) progress.changedSinceMs ??= ports.clock.monotonicMs();
    this.#queue.addAfter(entry, coalesceMs);
  }

  protectorChanged(entry: TrackedProtector): void {
    if (entry.id.core !== this.#options.core) return;
    if (this.#progress.get(entry)?.isOwn(entry.protector) === true) return;
    this.#queue.add(entry);
  }

  protectorGone(entry: TrackedProtector): void {
    if (entry.id.core !== this.#options.core) return;
    this.#depart(entry);
    this.#progress.delete(entry);
    this.#reserved.set(entry, []);
    this.#onProgress.delete(entry);
    this.#options.evidence.need(entry, undefined);
    this.#queue.forget(entry);
  }

  #depart(entry: TrackedProtector): void {
    const known = this.#progress.get(entry)?.known;
    if (known === undefined) return;
    const { ports, settleMs } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    // After this long nothing that was admitted there can still be committed, and every snapshot has it.
    for (const [key, { atMs }] of this.#departed)
      if (atMs < nowMs - DEPARTED_SETTLES * settleMs) this.#departed.delete(key);
    this.#departed.set(namespacedName(entry.id), { known, atMs: nowMs });
  }

  podSeen(pod: Pod): void {
    // A pod that was relabelled out of its protector is still waited for there.
    for (const entry of this.#reserved.holdersOf(pod)) this.#queue.addAfter(entry, this.#options.coalesceMs);
  }

  #positionMoved(): void {
    for (const entry of this.#onProgress) this.#queue.addAfter(entry, PROGRESS_PAUSE_MS);
  }

  async #reconcile(entry: TrackedProtector): Promise<ReconcileOutcome> {
    const { ports, onEvent } = this.#options;
    const startedMs = ports.clock.monotonicMs();
    const [result, outcome] = await this.#attempts(entry);
    onEvent({ kind: "reconciled", id: entry.id, result, durationMs: ports.clock.monotonicMs() - startedMs });
    return outcome;
  }

  async #attempts(entry: TrackedProtector): Promise<[ReconcileResult, ReconcileOutcome]> {
    const { membership, core, mayWrite, gate } = this.#options;
    for (let conflicts = 0; conflicts <= MAX_CONFLICTS; conflicts++) {
      await this.#whenCurrent();
      if (membership.protector(core, namespacedName(entry.id)) !== entry) return ["gone", DONE];
      if (this.#stopping.signal.aborted) return ["stopped", DONE];
      const progress = this.#progressOf(entry);
      const plan = this.#plan(entry, progress);
      const waiting = gate?.waitingOf(entry) ?? [];
      // What is stored already says the same as the snapshot.
      if (isStored(plan)) gate?.counted(entry, waiting);
      if (plan.status === undefined)
        return [plan.result.refused === undefined ? "unchanged" : "refused", later(this.#againMs(progress, plan))];
      if (!mayWrite()) return ["stopped", later(LEADERLESS_RETRY_MS)];
      const startedMs = this.#options.ports.clock.monotonicMs();
      const written = await this.#put(plan, plan.status);
      if (written.kind === "ok") {
        this.#wrote(entry, progress, plan, written.object, startedMs);
        gate?.counted(entry, waiting);
        return ["written", later(this.#againMs(progress, plan))];
      }
      this.#tellFailure(entry, written);
      if (written.kind === "gone") return ["gone", DONE];
      if (written.kind !== "conflict") return ["failed", failedBy(written)];
      const read = await this.#readAfterConflict(entry, conflicts);
      if (read !== undefined) return read;
    }
    return ["failed", failed(new Error(`${MAX_CONFLICTS} conflicts in a row`), true)];
  }

  /** Until the entries are as current as the pods, and the pods of one history. */
  async #whenCurrent(): Promise<void> {
    const { membership, cell } = this.#options;
    const wait = (): Promise<void> | undefined => cell.whenTrusted() ?? membership.whenCurrent();
    while (wait() !== undefined) await wait();
  }

  #progressOf(entry: TrackedProtector): ReconcileState {
    const known = this.#progress.get(entry);
    if (known !== undefined) return known;
    const { ports, heartbeatMs } = this.#options;
    // After a change of leaders the heartbeats do not all come at once.
    const progress = new ReconcileState(ports.clock.monotonicMs() + heartbeatMs * ports.random.fraction());
    progress.known = this.#departed.get(namespacedName(entry.id))?.known;
    this.#departed.delete(namespacedName(entry.id));
    this.#progress.set(entry, progress);
    return progress;
  }

  #plan(entry: TrackedProtector, progress: ReconcileState): ReconcilePlan {
    const { evidence, onEvent, voider, cell, cellID } = this.#options;
    const plan = makePlan(entry, progress, { ...this.#options, algorithm: this.#algorithm, incident: this.#incident });
    evidence.need(entry, plan.need);
    this.#reserved.set(entry, progress.pending);
    if (waitsForProgress(plan, this.#algorithm)) this.#onProgress.add(entry);
    else this.#onProgress.delete(entry);
    if (plan.result.refused !== undefined) onEvent({ kind: "refused", id: entry.id, refusal: plan.result.refused });
    if (plan.isCellRestored) {
      const stored = cellEntry(plan.protector, cellID)?.aggregation?.resourceVersion;
      this.#options.onCellRestored(cell.position ?? "", stored ?? "");
    }
    voider?.consider(entry, progress.pending);
    this.#tellDeferred(entry, progress);
    return plan;
  }

  /** Once for each pod whose resize waits for room: its quota stays reserved (design 10). */
  #tellDeferred(entry: TrackedProtector, progress: ReconcileState): void {
    const { cell, onEvent } = this.#options;
    const deferred = new Set<string>();
    for (const { operation, uid } of progress.pending) {
      const pod = operation === "UPDATE" && uid !== undefined ? cell.podByUid(uid) : undefined;
      if (pod === undefined || !cell.changes.isDeferred(pod)) continue;
      deferred.add(pod.uid);
      if (!progress.deferred.has(pod.uid)) onEvent({ kind: "deferred", id: entry.id, podName: pod.name });
    }
    progress.deferred = deferred;
  }

  /** Milliseconds until the protector is looked at again, whatever happens. */
  #againMs({ heartbeatDueMs, pending }: ReconcileState, plan: ReconcilePlan): number {
    const nowMs = this.#options.ports.clock.monotonicMs();
    const voidInMs = this.#options.voider?.dueInMs(pending) ?? Number.POSITIVE_INFINITY;
    return Math.max(
      1,
      Math.min(plan.againMs, voidInMs, heartbeatDueMs > nowMs ? heartbeatDueMs - nowMs : plan.againMs),
    );
  }

  #put({ protector }: ReconcilePlan, status: PodProtectorStatus): Promise<ApiResult<PodProtector>> {
    const { namespace = "", name, uid, resourceVersion } = protector.metadata;
    const { client, timeoutMs } = this.#options;
    const options = { timeoutMs, signal: this.#stopping.signal, fieldManager: FIELD_MANAGER };
    return client.putPodProtectorStatus({ namespace, name, uid, resourceVersion }, status, options);
  }

  #wrote(
    entry: TrackedProtector,
    progress: ReconcileState,
    plan: ReconcilePlan,
    object: PodProtector,
    startedMs: number,
  ): void {
    const { ports, onEvent, heartbeatMs, cellID } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    const stored = cellEntry(object, cellID);
    this.#learn(entry, progress, object);
    progress.remember(object, stored, this.#incident?.id);
    progress.adoptedEpoch = Math.max(progress.adoptedEpoch, stored?.aggregation?.epoch ?? 0);
    progress.lastWriteMs = nowMs;
    progress.heartbeatDueMs = nowMs + heartbeatMs * (1 - HEARTBEAT_SPREAD * ports.random.fraction());
    // Changes that came while the write was under way are not in it.
    const isPublished = progress.changedSinceMs !== undefined && progress.changedSinceMs <= startedMs;
    const latencyMs =
      isPublished && progress.changedSinceMs !== undefined ? nowMs - progress.changedSinceMs : undefined;
    if (isPublished) progress.changedSinceMs = undefined;
    const cause = plan.result.reasons.every((reason) => reason === "Heartbeat") ? "heartbeat" : "changed";
    onEvent({ kind: "wrote", id: entry.id, cause, latencyMs, durationMs: nowMs - startedMs });
    for (const { operation, rule } of plan.result.dropped) onEvent({ kind: "dropped", id: entry.id, operation, rule });
    this.#tellHold(entry, progress, plan, stored?.aggregation?.hold, nowMs);
    if (stored !== undefined) this.#checkFields(plan, stored.aggregation?.resourceVersion);
  }

  #learn(entry: TrackedProtector, progress: ReconcileState, object: PodProtector): void {
    progress.learned(object);
    this.#options.learned(namespacedName(entry.id), object.metadata.resourceVersion);
  }

  #tellHold(
    entry: TrackedProtector,
    progress: ReconcileState,
    plan: ReconcilePlan,
    hold: string | undefined,
    nowMs: number,
  ): void {
    const { onEvent } = this.#options;
    const { lost, epoch } = plan.history;
    if (lost !== undefined) onEvent({ kind: "held", id: entry.id, reason: lost, epoch });
    if (progress.hold !== undefined && hold === undefined) {
      onEvent({ kind: "released", id: entry.id, heldMs: nowMs - progress.hold.sinceMs });
    }
    if (hold === undefined) progress.hold = undefined;
    else if (progress.hold?.text !== hold) progress.hold = { text: hold, sinceMs: nowMs };
  }

  /** A CRD that drops the position makes exact accounting impossible: both sides would trust what is not there (design 5.4). */
  #checkFields({ result }: ReconcilePlan, storedPosition: string | undefined): void {
    if (this.#algorithm !== "exact" || result.entry.aggregation?.resourceVersion === undefined) return;
    if (storedPosition !== undefined) return;
    this.#algorithm = "clock";
    this.#options.onEvent({
      kind: "fieldsDropped",
      core: this.#options.core,
      fields: ["status.cells.aggregation.resourceVersion"],
    });
  }

  /** After a conflict what is stored now replaces what was known (design 5.4); an outcome when it can't be read. */
  async #readAfterConflict(
    entry: TrackedProtector,
    conflicts: number,
  ): Promise<[ReconcileResult, ReconcileOutcome] | undefined> {
    const { ports, client, timeoutMs } = this.#options;
    if (conflicts >= PROMPT_CONFLICTS) {
      const { least, most } = CONFLICT_PAUSE_MS;
      await sleep(ports, least + (most - least) * ports.random.fraction(), this.#stopping.signal);
    }
    const { namespace, name } = entry.id;
    const read = await client.getPodProtector(namespace, name, { timeoutMs, signal: this.#stopping.signal });
    if (read.kind === "ok") {
      this.#learn(entry, this.#progressOf(entry), read.object);
      return undefined;
    }
    this.#tellFailure(entry, read);
    return read.kind === "gone" ? ["gone", DONE] : ["failed", failedBy(read)];
  }

  #tellFailure(entry: TrackedProtector, failure: ApiFailure): void {
    if (this.#stopping.signal.aborted) return;
    this.#options.onEvent({ kind: "writeFailed", id: entry.id, failure: failure.kind, message: messageOf(failure) });
  }
}

/** Nothing is to be written, and not because it may not be, or must wait. */
function isStored({ status, result, isMatched, isWithheld }: ReconcilePlan): boolean {
  return status === undefined && isMatched && !isWithheld && !result.write && result.refused === undefined;
}

/**
 * What is withheld is written once there is a list. A reserved pod that is not in the snapshot is dead once the position has passed its version, and what a shard that is behind does not know
 * is published once it has caught up; upstream's algorithms settle by the next event of any pod.
 */
function waitsForProgress({ result, isWithheld }: ReconcilePlan, algorithm: PlanContext["algorithm"]): boolean {
  if (isWithheld) return true;
  if (algorithm !== "exact") return (result.entry.admissionHistory?.buckets ?? []).length > 0;
  return result.awaitsPosition || result.wants.records.some(({ needsList }) => needsList);
}

function messageOf(failure: ApiFailure): string {
  if (failure.kind === "gone") return "the protector is gone";
  return failure.kind === "unavailable" ? failure.error.message : failure.message;
}

/** Everything is tried again: a rejection may end with a permission that is granted or a CRD that is upgraded. */
function failedBy(failure: ApiFailure): ReconcileOutcome {
  const error = failure.kind === "unavailable" ? failure.error : new Error(messageOf(failure));
  return failed(error, true, failure.kind === "unavailable" ? failure.retryAfterMs : undefined);
}
