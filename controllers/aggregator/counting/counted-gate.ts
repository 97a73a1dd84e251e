/**
 * Opens the counted readiness gate (docs/design.md#counted-gate). A pod with the gate becomes Ready only when every
 * protector that counts it stores a count that contains it, so that a workload controller never deletes an old pod
 * before its replacement is counted. The gate opens at once where no protector counts the pod, and after a bound when a
 * core does not accept the count. So no outage keeps pods from becoming Ready.
 *
 * A pod that becomes unready and ready again keeps its open gate: otherwise each flap would wait for this process. A
 * lost condition is set again.
 */

import { isDead, readySinceMs } from "../../../shared/decide/availability/availability.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { errorOf } from "../../../shared/kube/client/api-result.ts";
import type { Timer } from "../../../shared/runtime/clock.ts";
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
import type { GateReason } from "../observe/events.ts";
import type { ReconcileSettings } from "../settling/reconcile-input.ts";
import type { Membership, MembershipListener, TrackedProtector } from "./membership.ts";

export interface CountedGateOptions extends Pick<ReconcileSettings, "ports" | "mayWrite" | "onEvent"> {
  readonly membership: Membership;
  /** The cell's pods, by `namespace/name`. */
  readonly pods: { get(key: string): Pod | undefined; values(): Iterable<Pod> };
  /** The longest that a pod waits for its count. */
  readonly boundMs: number;
  /** True once every core is listed. Before that, no pod is known to be unprotected. */
  readonly isSynced: () => boolean;
  /** Sets the pod's condition. */
  readonly open: (pod: Pod, reason: GateReason) => Promise<ApiResult<unknown>>;
}

interface WaitingPod {
  pod: Pod;
  readonly sinceMs: number;
  /** The protectors whose stored count contains the pod. */
  readonly countedBy: Set<TrackedProtector>;
  readonly bound: Timer;
  isOverdue: boolean;
  /** The condition was set, and the watch has not shown a later version of the pod. */
  isSet: boolean;
}

const MAX_PATCHES_IN_FLIGHT = 16;
/**
 * A condition that the watch does not show after this time is set again: a restore of the cell's etcd may have lost it.
 */
const UNSEEN_RETRY_MS = 30_000;
/** A process that may not write is about to lose its leadership. */
const LEADERLESS_RETRY_MS = 1_000;

/** True for a pod that would be Ready if its counted gate were open. */
function waitsForCount(pod: Pod): boolean {
  if (pod.readinessGates?.includes(COUNTED_CONDITION) !== true || isDead(pod)) return false;
  if (pod.conditions.some(({ type, status }) => type === COUNTED_CONDITION && status)) return false;
  return readySinceMs(pod) !== undefined;
}

export class CountedGate implements MembershipListener {
  readonly #options: CountedGateOptions;
  /** By UID. */
  readonly #waiting = new Map<string, WaitingPod>();
  readonly #queue: WorkQueue<string>;
  readonly #workers: Workers;
  readonly #unlisten: () => void;
  /** Every core was listed at the last look at all waiting pods. */
  #wasSynced = false;

  /** Starts with the pods that wait already. */
  constructor(options: CountedGateOptions) {
    const { membership, pods, ports } = options;
    this.#options = options;
    this.#queue = new WorkQueue({ name: "counted gate", ports });
    this.#workers = runWorkers(this.#queue, (uid) => this.#open(uid), { workers: MAX_PATCHES_IN_FLIGHT, ports });
    this.#unlisten = membership.listen(this);
    for (const pod of pods.values()) this.podSeen(pod);
  }

  /** The number of pods that only wait for their gate. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Milliseconds that the pod that waits longest has waited; 0 when no pod waits. */
  oldestMs(): number {
    const nowMs = this.#options.ports.clock.monotonicMs();
    let oldestMs = 0;
    for (const { sinceMs } of this.#waiting.values()) oldestMs = Math.max(oldestMs, nowMs - sinceMs);
    return oldestMs;
  }

  async stop(): Promise<void> {
    this.#unlisten();
    for (const { bound } of this.#waiting.values()) bound.cancel();
    this.#waiting.clear();
    await this.#workers.stop({ abort: true });
  }

  /** UIDs of the waiting pods that a count made now contains. Pass them to {@link counted} once the count is stored. */
  waitingOf(tracked: TrackedProtector): readonly string[] {
    const [few, many] =
      this.#waiting.size < tracked.pods.size ? [this.#waiting, tracked.pods] : [tracked.pods, this.#waiting];
    return [...few.keys()].filter((uid) => many.has(uid));
  }

  /** The stored count of `tracked` contains these pods. */
  counted(tracked: TrackedProtector, uids: readonly string[]): void {
    for (const uid of uids) {
      const waiting = this.#waiting.get(uid);
      waiting?.countedBy.add(tracked);
      if (waiting !== undefined) this.#openIfAllowed(uid, waiting);
    }
  }

  podSeen(seen: Pod): void {
    const { uid } = seen;
    const { pods, ports, boundMs } = this.#options;
    const pod = pods.get(`${seen.namespace}/${seen.name}`);
    let waiting = this.#waiting.get(uid);
    if (pod === undefined || pod.uid !== uid || !waitsForCount(pod)) {
      if (waiting !== undefined) this.#forget(uid, waiting);
      return;
    }
    if (waiting === undefined) {
      const bound = ports.timers.after(boundMs, () => this.#overdue(uid));
      const sinceMs = ports.clock.monotonicMs();
      waiting = { pod, sinceMs, countedBy: new Set(), bound, isOverdue: false, isSet: false };
      this.#waiting.set(uid, waiting);
    }
    waiting.pod = pod;
    // A later version lacks the condition: the patch was lost, or changed a version that no longer exists.
    waiting.isSet = false;
    this.#openIfAllowed(uid, waiting);
  }

  podChanged(): void {}

  /** The protector may count other pods now, or a core was listed. Most changes are of a status, and open nothing. */
  protectorChanged({ id: { namespace } }: TrackedProtector, isSelectorNew: boolean): void {
    const isNowSynced = !this.#wasSynced && this.#options.isSynced();
    this.#wasSynced ||= isNowSynced;
    if (!isSelectorNew && !isNowSynced) return;
    for (const [uid, waiting] of this.#waiting)
      if (isNowSynced || waiting.pod.namespace === namespace) this.#openIfAllowed(uid, waiting);
  }

  protectorGone(tracked: TrackedProtector): void {
    this.protectorChanged(tracked, true);
  }

  /** Only queues the pod, because a list may be half applied. The worker determines the reason again. */
  #openIfAllowed(uid: string, waiting: WaitingPod): void {
    if (!waiting.isSet && this.#reasonToOpen(waiting) !== undefined) this.#queue.addNow(uid);
  }

  #reasonToOpen({ pod, countedBy, isOverdue }: WaitingPod): GateReason | undefined {
    const { membership, isSynced } = this.#options;
    const protectors = isSynced() ? membership.protectorsOf(pod) : undefined;
    if (protectors?.length === 0) return "Unprotected";
    if (protectors?.every((tracked) => countedBy.has(tracked))) return "Counted";
    return isOverdue ? "Overdue" : undefined;
  }

  #overdue(uid: string): void {
    const waiting = this.#waiting.get(uid);
    if (waiting === undefined) return;
    waiting.isOverdue = true;
    this.#openIfAllowed(uid, waiting);
  }

  #forget(uid: string, { bound }: WaitingPod): void {
    bound.cancel();
    this.#waiting.delete(uid);
    this.#queue.forget(uid);
  }

  async #open(uid: string): Promise<ReconcileOutcome> {
    const waiting = this.#waiting.get(uid);
    if (waiting === undefined) return DONE;
    const { mayWrite, open, onEvent, ports } = this.#options;
    if (!mayWrite()) return later(LEADERLESS_RETRY_MS);
    const reason = this.#reasonToOpen(waiting);
    waiting.isSet = reason !== undefined;
    if (reason === undefined) return DONE;
    const { pod, sinceMs } = waiting;
    const podName = pod.name;
    const result = await open(pod, reason);
    // The pod stays in the map until the watch shows the condition, so that a condition that is lost at once is set
    // again.
    if (result.kind === "ok")
      onEvent({ kind: "gateOpened", podName, reason, waitedMs: ports.clock.monotonicMs() - sinceMs });
    if (result.kind === "ok" || result.kind === "gone" || result.kind === "conflict") return later(UNSEEN_RETRY_MS);
    const error = errorOf(result);
    onEvent({ kind: "gateFailed", podName, message: error.message });
    return failed(error, true);
  }
}
