/**
 * Opens the counted readiness gate (design 10): a pod that carries it becomes Ready only once the count that contains it is stored in
 * every protector that counts it, so that a workload controller never deletes an old pod before the new one is known. At once
 * where no protector counts it, and after a bound when a core does not take the count: no outage keeps pods from becoming Ready.
 *
 * A pod is counted once. That it becomes unready and ready again later does not close the gate, because then each flap would wait for
 * this process; a condition that is lost is set again, after the count is found to be stored.
 */
import { isDead, readySinceMs } from "../../../shared/decide/availability/availability.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { Ports, Timer } from "../../../shared/runtime/clock.ts";
import {
  DONE,
  failed,
  later,
  type ReconcileOutcome,
  runWorkers,
  type Workers,
} from "../../../shared/runtime/reconcile.ts";
import { WorkQueue } from "../../../shared/runtime/work-queue.ts";
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { EventSink, GateReason } from "../events.ts";
import type { Membership, MembershipListener, TrackedProtector } from "./membership.ts";

export interface CountedGateOptions {
  readonly membership: Membership;
  /** The cell's pods, by `namespace/name`. */
  readonly pods: { get(key: string): Pod | undefined; values(): Iterable<Pod> };
  readonly ports: Ports;
  /** The longest that a pod waits for its count. */
  readonly boundMs: number;
  /** Whether every core has been listed: before that, "no protector" is not known. */
  readonly isSynced: () => boolean;
  readonly mayWrite: () => boolean;
  /** Sets the pod's condition. */
  readonly open: (pod: Pod, reason: GateReason) => Promise<ApiResult<unknown>>;
  readonly onEvent: EventSink;
}

interface Waiting {
  pod: Pod;
  readonly sinceMs: number;
  /** Entries whose stored count contains the pod. */
  readonly counted: Set<TrackedProtector>;
  readonly timer: Timer;
  /** The bound is over. */
  isOverdue: boolean;
  /** Its condition was set as far as is known, and does not show yet. */
  isSet: boolean;
}

/** Patches under way at once. */
const OPENERS = 16;
/** What was set, and does not show for so long, is set again: a cell that is restored meanwhile has lost it, and nothing else may tell. */
const UNSEEN_AGAIN_MS = 30_000;
/** A process that may not write looks again after this: its term is about to end. */
const LEADERLESS_RETRY_MS = 1_000;

/** True for a pod that is ready but for the counted gate. */
export function waitsForCount(pod: Pod): boolean {
  if (pod.readinessGates?.includes(COUNTED_CONDITION) !== true || isDead(pod)) return false;
  if (pod.conditions.some(({ type, status }) => type === COUNTED_CONDITION && status)) return false;
  return readySinceMs(pod) !== undefined;
}

export class CountedGate implements MembershipListener {
  readonly #options: CountedGateOptions;
  readonly #waiting = new Map<string, Waiting>();
  readonly #queue: WorkQueue<string>;
  readonly #workers: Workers;
  readonly #unlisten: () => void;

  /** Begins at once, with the pods that wait already. */
  constructor(options: CountedGateOptions) {
    const { membership, pods, ports } = options;
    this.#options = options;
    this.#queue = new WorkQueue({ name: "counted gate", ports });
    this.#workers = runWorkers(this.#queue, (uid) => this.#open(uid), { workers: OPENERS, ports });
    this.#unlisten = membership.listen(this);
    for (const pod of pods.values()) this.podSeen(pod);
  }

  /** Pods that are ready but for this gate. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Milliseconds that the oldest of them has waited. */
  oldestMs(): number {
    const nowMs = this.#options.ports.clock.monotonicMs();
    let oldestMs = 0;
    for (const { sinceMs } of this.#waiting.values()) oldestMs = Math.max(oldestMs, nowMs - sinceMs);
    return oldestMs;
  }

  async stop(): Promise<void> {
    this.#unlisten();
    for (const { timer } of this.#waiting.values()) timer.cancel();
    this.#waiting.clear();
    await this.#workers.stop({ abort: true });
  }

  /** UIDs of the entry's pods that wait; to be asked at the moment at which they are counted. */
  waitingOf(entry: TrackedProtector): readonly string[] {
    if (this.#waiting.size === 0) return [];
    return [...this.#waiting.keys()].filter((uid) => entry.pods.has(uid));
  }

  /** The count of `entry` that is stored now contains these pods. */
  counted(entry: TrackedProtector, uids: readonly string[]): void {
    for (const uid of uids) {
      const waiting = this.#waiting.get(uid);
      if (waiting === undefined) continue;
      waiting.counted.add(entry);
      this.#look(uid, waiting);
    }
  }

  podSeen(seen: Pod): void {
    const { pods, ports, boundMs } = this.#options;
    const now = pods.get(`${seen.namespace}/${seen.name}`);
    const known = this.#waiting.get(seen.uid);
    if (now === undefined || now.uid !== seen.uid || !waitsForCount(now)) {
      if (known !== undefined) this.#forget(seen.uid, known);
      return;
    }
    if (known !== undefined) {
      known.pod = now;
      // Its condition was set in vain, or on a version that was none any more: this is another.
      known.isSet = false;
      this.#look(seen.uid, known);
      return;
    }
    const timer = ports.timers.after(boundMs, () => this.#overdue(seen.uid));
    const waiting = {
      pod: now,
      sinceMs: ports.clock.monotonicMs(),
      counted: new Set<TrackedProtector>(),
      timer,
      isOverdue: false,
      isSet: false,
    };
    this.#waiting.set(seen.uid, waiting);
    this.#look(seen.uid, waiting);
  }

  podChanged(): void {}

  /** Its selector may be another, or a core has just been listed. */
  protectorChanged(): void {
    this.#lookAtAll();
  }

  protectorGone(): void {
    this.#lookAtAll();
  }

  #lookAtAll(): void {
    for (const [uid, waiting] of this.#waiting) this.#look(uid, waiting);
  }

  /** Perhaps in the middle of a list, of which the rest is not known yet: that it may be opened is found out again at its turn. */
  #look(uid: string, waiting: Waiting): void {
    if (!waiting.isSet && this.#reasonFor(waiting) !== undefined) this.#queue.addNow(uid);
  }

  /** Why it may be opened as far as is known now; undefined when it may not. */
  #reasonFor({ pod, counted, isOverdue }: Waiting): GateReason | undefined {
    const { membership, isSynced } = this.#options;
    const entries = isSynced() ? membership.protectorsOf(pod) : undefined;
    if (entries?.length === 0) return "Unprotected";
    if (entries?.every((entry) => counted.has(entry))) return "Counted";
    return isOverdue ? "Overdue" : undefined;
  }

  #overdue(uid: string): void {
    const waiting = this.#waiting.get(uid);
    if (waiting === undefined) return;
    waiting.isOverdue = true;
    this.#look(uid, waiting);
  }

  #forget(uid: string, { timer }: Waiting): void {
    timer.cancel();
    this.#waiting.delete(uid);
    this.#queue.forget(uid);
  }

  async #open(uid: string): Promise<ReconcileOutcome> {
    const waiting = this.#waiting.get(uid);
    if (waiting === undefined) return DONE;
    const { mayWrite, open, onEvent, ports } = this.#options;
    if (!mayWrite()) return later(LEADERLESS_RETRY_MS);
    const reason = this.#reasonFor(waiting);
    waiting.isSet = reason !== undefined;
    if (reason === undefined) return DONE;
    const { pod, sinceMs } = waiting;
    const result = await open(pod, reason);
    // The pod's own event ends the wait, so that a condition which is lost at once is noticed.
    if (result.kind === "ok")
      onEvent({ kind: "gateOpened", podName: pod.name, reason, waitedMs: ports.clock.monotonicMs() - sinceMs });
    if (result.kind === "ok" || result.kind === "gone" || result.kind === "conflict") return later(UNSEEN_AGAIN_MS);
    const message = result.kind === "rejected" ? result.message : result.error.message;
    onEvent({ kind: "gateFailed", podName: pod.name, message });
    return failed(new Error(message), true);
  }
}
