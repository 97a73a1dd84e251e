/**
 * Reconciles the protectors of one core cluster while this process leads: a work queue of protectors, workers, and
 * everything that makes a protector due. Level-triggered: a key only says that something may have changed; the current
 * state decides. A reconcile gathers (reconcile-input.ts), decides (reconcile-plan.ts), writes, and remembers
 * (reconcile-state.ts).
 */

import type { Labels } from "../../../shared/decide/availability/selector.ts";
import type { EtcdRestore, KnownEntry } from "../../../shared/decide/settling/lost-history.ts";
import { needsRecord } from "../../../shared/decide/settling/vanished-pods.ts";
import { isCounted } from "../../../shared/decide/state/protector-state.ts";
import {
  DONE,
  failed,
  later,
  type ReconcileOutcome,
  runWorkers,
  untried,
  type Workers,
} from "../../../shared/runtime/reconcile.ts";
import { type QueueEvent, WorkQueue } from "../../../shared/runtime/work-queue.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { type Aggregation, cellEntry, namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import type { CountedGate } from "../counting/counted-gate.ts";
import { firstHeartbeatInMs, nextHeartbeatInMs, staleCells } from "../counting/heartbeats.ts";
import type { Membership, MembershipListener, TrackedProtector } from "../counting/membership.ts";
import type { ReconcileResult } from "../observe/events.ts";
import { gather, type ReconcileContext } from "./reconcile-input.ts";
import { planReconcile, type ReconcilePlan } from "./reconcile-plan.ts";
import { ReconcileState } from "./reconcile-state.ts";
import { ReservationIndex } from "./reservation-index.ts";
import type { ReservationVoider } from "./reservation-voider.ts";
import { type CoreAccess, StatusWriter } from "./status-writer.ts";

export interface CoreReconcilerOptions extends Readonly<ReconcileContext> {
  readonly core: CoreAccess;
  readonly membership: Membership;
  readonly voider: ReservationVoider | undefined;
  readonly gate: Pick<CountedGate, "waitingOf" | "counted">;
  /** Selects protectors by labels (--protector-selector). The others are left unchanged. Default: selects all. */
  readonly selects?: ((labels: Labels) => boolean) | undefined;
  /** Milliseconds until the protector may be counted for the first time; 0 is now. Called at each reconcile. */
  readonly firstCountInMs: (tracked: TrackedProtector) => number;
  /** The same of the first pods: milliseconds until the cell's apiservers ask about the namespace. */
  readonly markedInMs: (tracked: TrackedProtector) => number;
  /** The protector is gone. */
  readonly forget: (tracked: TrackedProtector) => void;
  /** The stored position is newer than a quorum read of the cell, which concerns all cores. */
  readonly onCellRestored: (snapshot: string, stored: string) => void;
  /** Whether the webhook is asked about the pods of a namespace. */
  readonly isAsked: (namespace: string) => boolean;
  readonly onQueueEvent?: (core: string, event: QueueEvent) => void;
  /** Called once the core has the counts of each protector of the start. */
  readonly onCounted: () => void;
}

/** Conflicts in a row after which the key waits out a backoff. */
const MAX_CONFLICTS = 10;
/** Vanished pods that an Event names; the others are counted. */
const MAX_NAMED = 5;
/** Shortest time between two reconciles of a protector that waits for progress of the stream. */
const PROGRESS_PAUSE_MS = 100;
/** After this many settle periods, every snapshot has settled every admission of a deleted protector. */
const DEPARTED_SETTLES = 4;
/** Most vanished pods of one protector that wait for a report: more names at once would tell people nothing more. */
const MAX_GONE = 100;
/** A process that may not write is about to lose its leadership. */
const LEADERLESS_RETRY_MS = 1_000;

export class CoreReconciler implements MembershipListener {
  readonly queue: WorkQueue<TrackedProtector>;
  readonly #options: CoreReconcilerOptions;
  readonly #context: ReconcileContext;
  readonly #dropped = new Set<string>();
  readonly #states = new Map<TrackedProtector, ReconcileState>();
  readonly #reservations = new ReservationIndex();
  /** Last entries of deleted protectors: a new protector of the same name has lost its predecessor's history. */
  readonly #departed = new Map<string, { readonly known: KnownEntry; readonly atMs: number }>();
  readonly #waitingForProgress = new Set<TrackedProtector>();
  /** Protectors whose stored counts may be those of an earlier term. */
  readonly #uncounted: Set<TrackedProtector>;
  readonly #unlisten: (() => void)[];
  readonly #workers: Workers;
  readonly #writer: StatusWriter;

  /** Starts with a reconcile of every protector. */
  constructor(options: CoreReconcilerOptions) {
    const { ports, core, membership, writeConcurrency: workers, cell } = options;
    this.#options = options;
    this.#context = { ...options, dropped: this.#dropped };
    this.#writer = new StatusWriter(options);
    this.queue = new WorkQueue({
      name: core.name,
      ports,
      onEvent: (event) => options.onQueueEvent?.(core.name, event),
    });
    this.#unlisten = [membership.listen(this), cell.pods.subscribe({ advanced: () => this.#positionMoved() })];
    this.#uncounted = new Set(membership.protectors(core.name));
    for (const tracked of this.#uncounted) this.queue.add(tracked);
    if (this.#uncounted.size === 0) options.onCounted();
    this.#workers = runWorkers(this.queue, (tracked) => this.#reconcile(tracked), { workers, ports });
  }

  /** For metrics. */
  states(): Iterable<[TrackedProtector, ReconcileState]> {
    return this.#states;
  }

  /** Cells of this core that have missed their heartbeats. */
  staleCells(): ReadonlySet<string> {
    const { membership, core, ports, staleAfterMs } = this.#options;
    const protectors = [...membership.protectors(core.name)].map(({ protector }) => protector);
    return staleCells(protectors, ports.clock.nowMs() - staleAfterMs);
  }

  /** Takes no more work and aborts the calls in flight. */
  async stop(): Promise<void> {
    for (const unlisten of this.#unlisten) unlisten();
    this.queue.stop();
    this.#writer.stop();
    await this.#workers.stop({ abort: true });
  }

  /** Any protector may have lost history, so all are reconciled again. */
  historyLost(etcdRestore: EtcdRestore): void {
    this.#context.etcdRestore = etcdRestore;
    for (const state of this.#states.values()) state.trustWatchOnly();
    const { membership, core } = this.#options;
    for (const tracked of membership.protectors(core.name)) this.queue.addNow(tracked);
  }

  /** Something that a reconcile of this protector reads has changed. */
  reconcileAgain(tracked: TrackedProtector): void {
    if (this.#isMine(tracked)) this.queue.add(tracked);
  }

  podChanged(tracked: TrackedProtector): void {
    if (!this.#isMine(tracked)) return;
    const state = this.#states.get(tracked);
    if (state !== undefined) state.changedSinceMs ??= this.#options.ports.clock.monotonicMs();
    this.queue.addAfter(tracked, this.#options.coalesceMs);
  }

  protectorChanged(tracked: TrackedProtector): void {
    if (!this.#isMine(tracked) || this.#states.get(tracked)?.isKnownVersion(tracked.protector) === true) return;
    this.queue.add(tracked);
  }

  protectorGone(tracked: TrackedProtector): void {
    if (!this.#isMine(tracked)) return;
    this.#leave(tracked);
    this.#options.forget(tracked);
    this.queue.forget(tracked);
  }

  /** Waits for nothing of the protector any more, which is gone or left out. */
  #leave(tracked: TrackedProtector): void {
    this.#rememberDeparted(tracked);
    this.#states.delete(tracked);
    this.#reservations.set(tracked, []);
    this.#waitingForProgress.delete(tracked);
    this.#options.evidence.need(tracked, undefined);
    this.#counted(tracked);
  }

  podGone(tracked: TrackedProtector, pod: Pod): void {
    // Without a state, this leader has not counted the protector.
    const gone = this.#isMine(tracked) ? this.#states.get(tracked)?.gone : undefined;
    const { ports, isAsked } = this.#options;
    if (gone === undefined || gone.size >= MAX_GONE) return;
    const { uid, name, namespace } = pod;
    const isOdd = needsRecord(pod, tracked.protector.spec, ports.clock.nowMs()) && isAsked(namespace);
    if (isOdd) gone.set(uid, { uid, name });
  }

  podSeen(pod: Pod): void {
    for (const tracked of this.#reservations.holdersOf(pod)) this.queue.addAfter(tracked, this.#options.coalesceMs);
  }

  #positionMoved(): void {
    for (const tracked of this.#waitingForProgress) this.queue.addAfter(tracked, PROGRESS_PAUSE_MS);
  }

  #isMine({ id }: TrackedProtector): boolean {
    return id.core === this.#options.core.name;
  }

  #rememberDeparted(tracked: TrackedProtector): void {
    const known = this.#states.get(tracked)?.known;
    if (known === undefined) return;
    const { ports, settleMs } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    // Oldest first: the deletion of thousands must not look at all of them each time.
    for (const [key, { atMs }] of this.#departed) {
      if (atMs >= nowMs - DEPARTED_SETTLES * settleMs) break;
      this.#departed.delete(key);
    }
    this.#departed.set(namespacedName(tracked.id), { known, atMs: nowMs });
  }

  async #reconcile(tracked: TrackedProtector): Promise<ReconcileOutcome> {
    const { ports, onEvent } = this.#options;
    const startedMs = ports.clock.monotonicMs();
    const [result, outcome] = await this.#reconcileWithRetries(tracked);
    onEvent({ kind: "reconciled", id: tracked.id, result, durationMs: ports.clock.monotonicMs() - startedMs });
    return outcome;
  }

  #counted(tracked: TrackedProtector): void {
    if (this.#uncounted.delete(tracked) && this.#uncounted.size === 0) this.#options.onCounted();
  }

  async #reconcileWithRetries(tracked: TrackedProtector): Promise<readonly [ReconcileResult, ReconcileOutcome]> {
    const { membership, core, mayWrite, gate, ports } = this.#options;
    for (let conflicts = 0; conflicts <= MAX_CONFLICTS; conflicts++) {
      // No promise may stand between the last look and the count: the pods could change in between.
      for (let wait = this.#whenCurrent(); wait !== undefined; wait = this.#whenCurrent()) await wait;
      if (membership.protector(core.name, namespacedName(tracked.id)) !== tracked) return ["gone", DONE];
      if (this.queue.stopped) return ["stopped", DONE];
      // The next change of its labels or pods reconciles again.
      if (this.#options.selects?.(tracked.protector.metadata.labels ?? {}) === false) {
        this.#leave(tracked);
        gate.counted(tracked, gate.waitingOf(tracked));
        return ["leftOut", DONE];
      }
      const state = this.#stateOf(tracked);
      const waitMs = this.#firstCountInMs(tracked, state);
      if (waitMs > 0) {
        this.#counted(tracked);
        return ["waiting", later(waitMs)];
      }
      const plan = planReconcile(gather(tracked, state, this.#context));
      this.#remember(tracked, state, plan);
      // The pods that this count contains; later ones wait for the next write.
      const waiting = gate.waitingOf(tracked);
      if (plan.isStored) gate.counted(tracked, waiting);
      if (plan.status === undefined) {
        if (!plan.isPostponed) this.#counted(tracked);
        return [plan.result.stale === undefined ? "unchanged" : "refused", untried(this.#againInMs(state, plan))];
      }
      if (!mayWrite()) return ["stopped", later(LEADERLESS_RETRY_MS)];
      const startedMs = ports.clock.monotonicMs();
      const written = await this.#writer.write(tracked.id, plan.input.protector, plan.status, conflicts);
      if (written.kind === "failed") return [written.result, written.outcome];
      this.#learned(tracked, state, written.object);
      if (written.kind === "conflict") continue;
      this.#wrote(tracked, state, plan, written.object, startedMs);
      gate.counted(tracked, waiting);
      this.#counted(tracked);
      return ["written", later(this.#againInMs(state, plan))];
    }
    return ["failed", failed(new Error(`${MAX_CONFLICTS} conflicts in a row`), true)];
  }

  /** Undefined when the members are as current as the pods, and the pods belong to one history. */
  #whenCurrent(): Promise<void> | undefined {
    const { membership, cell } = this.#options;
    return cell.whenTrusted() ?? membership.whenCurrent();
  }

  /** A protector that was counted once is always counted: users rely on its promise. */
  #firstCountInMs(tracked: TrackedProtector, state: ReconcileState): number {
    const { firstCountInMs, markedInMs, cellID } = this.#options;
    const [waitMs, markedMs] = [firstCountInMs(tracked), markedInMs(tracked)];
    const aggregation = cellEntry(state.newest(tracked.protector), cellID)?.aggregation ?? undefined;
    if (!isCounted(aggregation)) return Math.max(waitMs, markedMs);
    // Nobody relies on a count of no pods, which may be from before the cell had the namespace.
    return (aggregation?.totalReplicas ?? 0) > 0 ? 0 : markedMs;
  }

  #stateOf(tracked: TrackedProtector): ReconcileState {
    const known = this.#states.get(tracked);
    if (known !== undefined) return known;
    const { ports, cellID } = this.#options;
    const { heartbeatTime } = cellEntry(tracked.protector, cellID)?.aggregation ?? {};
    const first = { ...this.#options, heartbeatTime, nowMs: ports.clock.nowMs() };
    const state = new ReconcileState(ports.clock.monotonicMs() + firstHeartbeatInMs(first, ports.random));
    state.known = this.#departed.get(namespacedName(tracked.id))?.known;
    // One that departs again goes to the end: the oldest are first.
    this.#departed.delete(namespacedName(tracked.id));
    this.#states.set(tracked, state);
    return state;
  }

  /** Remembers what the decision has found, and asks for the evidence that it needs. */
  #remember(tracked: TrackedProtector, state: ReconcileState, plan: ReconcilePlan): void {
    const { evidence, onEvent, voider, cell, onCellRestored } = this.#options;
    const { input, result } = plan;
    const { stored, history } = input.account;
    state.pending = result.unsettled;
    state.staleSinceMs = plan.staleSinceMs;
    state.windowSinceMs = plan.windowSinceMs;
    // The other pods' disruptions were admitted, or it is not known whether they were.
    for (const pod of input.account.gone ?? [])
      if (result.stale === undefined && !result.vanished.includes(pod)) state.gone.delete(pod.uid);
    if (history.lost === undefined) state.rememberEntry(input.protector, stored, input.etcdRestoreID);
    evidence.need(tracked, plan.evidence);
    this.#reservations.set(tracked, state.pending);
    if (plan.waitsForProgress) this.#waitingForProgress.add(tracked);
    else this.#waitingForProgress.delete(tracked);
    if (result.stale !== undefined) onEvent({ kind: "refused", id: tracked.id, refusal: result.stale });
    if (plan.isCellRestored) onCellRestored(cell.position ?? "", stored?.aggregation?.resourceVersion ?? "");
    voider?.voidDue(tracked, state.pending);
    this.#reportDeferred(tracked, state);
    this.#reportUnreadable(tracked, state, result.ledger.unreadableBuckets);
  }

  /** Reports each unreadable selector and bucket once. An unreadable bucket counts by its counter until it settles. */
  #reportUnreadable({ id, problems }: TrackedProtector, state: ReconcileState, buckets: number): void {
    const { onEvent } = this.#options;
    if (buckets > state.unreadableBuckets) onEvent({ kind: "corruptHistory", id, buckets });
    if (problems.length > 0 && problems !== state.selectorProblems) onEvent({ kind: "badSelector", id, problems });
    state.unreadableBuckets = buckets;
    state.selectorProblems = problems;
  }

  /** Reports once each pod whose resize the kubelet defers: the reservation stays until the resize is done. */
  #reportDeferred(tracked: TrackedProtector, state: ReconcileState): void {
    const { cell, onEvent } = this.#options;
    const deferred = new Set<string>();
    for (const { operation, uid } of state.pending) {
      const pod = operation === "UPDATE" && uid !== undefined ? cell.podByUid(uid) : undefined;
      if (pod === undefined || !cell.changes.isDeferred(pod)) continue;
      deferred.add(pod.uid);
      if (!state.deferred.has(pod.uid)) onEvent({ kind: "deferred", id: tracked.id, podName: pod.name });
    }
    state.deferred = deferred;
  }

  /** When a heartbeat, a maturing pod or a reservation to void is due without any event. */
  #againInMs({ heartbeatDueMs, pending }: ReconcileState, { againMs, input }: ReconcilePlan): number {
    const { ports, heartbeatMs, voider } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    // A timer may fire a moment early, so that a heartbeat becomes due after the plan was made without it.
    const heartbeatInMs = heartbeatDueMs > input.account.monotonicMs ? heartbeatDueMs - nowMs : heartbeatMs;
    return Math.max(1, Math.min(againMs, heartbeatInMs, voider?.dueInMs(pending) ?? heartbeatMs));
  }

  #wrote(
    tracked: TrackedProtector,
    state: ReconcileState,
    { input, result }: ReconcilePlan,
    object: PodProtector,
    startedMs: number,
  ): void {
    const { ports, onEvent, heartbeatMs, cellID } = this.#options;
    const { id } = tracked;
    const nowMs = ports.clock.monotonicMs();
    const stored = cellEntry(object, cellID);
    const aggregation = stored?.aggregation ?? undefined;
    // This write does not react to a restore that was noticed meanwhile: the next write puts the cell on hold.
    state.rememberEntry(object, stored, input.etcdRestoreID);
    state.adoptedEpoch = Math.max(state.adoptedEpoch, aggregation?.epoch ?? 0);
    state.windowSinceMs = undefined;
    state.yield(nowMs, nowMs - startedMs);
    state.heartbeatDueMs = nowMs + nextHeartbeatInMs(heartbeatMs, ports.random);
    const cause = result.reasons.every((reason) => reason === "Heartbeat") ? "heartbeat" : "changed";
    const latencyMs = state.published(startedMs, nowMs);
    onEvent({ kind: "wrote", id, cause, latencyMs, durationMs: nowMs - startedMs });
    for (const { uid } of result.vanished) state.gone.delete(uid);
    const names = result.vanished.map(({ name }) => name);
    if (names.length > 0) onEvent({ kind: "vanished", id, pods: names.length, names: names.slice(0, MAX_NAMED) });
    for (const { operation, rule } of result.settled) onEvent({ kind: "dropped", id, operation, rule });
    const { lost, epoch } = input.account.history;
    if (lost !== undefined) onEvent({ kind: "held", id, reason: lost, epoch });
    const heldMs = state.rememberHold(aggregation?.hold, nowMs);
    if (heldMs !== undefined) onEvent({ kind: "released", id, heldMs });
    if (aggregation !== undefined)
      this.#compareFields(result.entry.aggregation ?? {}, aggregation, input.account.stored?.aggregation ?? {});
  }

  /**
   * Checks that the stored entry has the written fields (docs/design.md#dropped-fields). Ignores fields that were
   * stored before.
   */
  #compareFields(written: Partial<Aggregation>, stored: object, kept: Partial<Aggregation>): void {
    const { algorithm, core, onEvent } = this.#options;
    // With upstream's algorithm, the core may have upstream's CRD.
    if (algorithm !== "exact") return;
    const before = this.#dropped.size;
    for (const [field, value] of Object.entries(written)) {
      if (field in stored) this.#dropped.delete(field);
      else if (value !== Reflect.get(kept, field)) this.#dropped.add(field);
    }
    this.#context.algorithm = this.#dropped.has("resourceVersion") ? "clock" : "exact";
    const { size } = this.#dropped;
    if (size > before) onEvent({ kind: "fieldsDropped", core: core.name, fields: [...this.#dropped] });
    else if (size === 0 && before > 0) onEvent({ kind: "fieldsKept", core: core.name });
  }

  /** The object in a response of the core replaces what was known (docs/design.md#lost-history). */
  #learned(tracked: TrackedProtector, state: ReconcileState, object: PodProtector): void {
    state.learned(object);
    this.#options.core.protectors.learned(namespacedName(tracked.id), object.metadata.resourceVersion);
  }
}
