/**
 * Rules R1 to R3 (docs/design.md#settling): when a reservation is settled, that is when its disruption has happened or
 * can no longer happen. One function for each rule. No rule reads a wall clock, and no rule settles a reservation
 * because its pod became unready: the pod may become ready again before the disruption is committed.
 */
import type { Pod } from "../../schema/pod.ts";
import type { Operation } from "../../schema/podprotector.ts";
import { compareVersions, hasReached, isComparableVersion } from "../../schema/resource-version.ts";
import { isDead, readySinceMs } from "../availability/availability.ts";
import type { Reservation, ReservationRecord } from "../ledger/reservation.ts";
import type { SeenSpan } from "./first-seen.ts";

/** One complete, unfiltered snapshot of the cell's pods, in the protector's namespace. */
export interface CellSnapshot {
  /**
   * As on the wire: one version, or one for each shard, comma-separated. Undefined where versions are not comparable.
   */
  readonly position: string | undefined;
  /** The component of the pod's shard; for an unknown UID the oldest one. */
  positionOf(uid: string | undefined): string | undefined;
  podByUID(uid: string): Pod | undefined;
  /** The wanted pod of this name. Where a shard lags, the earlier pod of the name may still be there. */
  podByName(name: string, isWanted: (pod: Pod) => boolean): Pod | undefined;
  /**
   * The generation that the pod's status reports (images as in the spec, `observedGeneration` caught up). Asked only
   * for pods with an UPDATE record.
   */
  settledGeneration(pod: Pod): number | undefined;
  /** The generation that the kubelet has seen, where the reported images do not tell whether it runs. */
  unconfirmedGeneration(pod: Pod): number | undefined;
  /** The generation whose change the kubelet has declined for good: an infeasible resize. */
  declinedGeneration(pod: Pod): number | undefined;
}

/** Quorum reads, by the monotonic time at which they were sent. */
export interface Evidence {
  /** Send time of the newest quorum LIST that the snapshot has reached; undefined before the first. */
  readonly reachedSentMs: number | undefined;
  /**
   * When the pod's stream last brought something; for an unknown UID the stream that was silent for longest; infinite
   * where that is not known. While a stream is silent the server may have been restored, and the snapshot may belong to
   * another history than the pod that was reviewed.
   */
  heardMs(uid: string | undefined): number;
  /** Send time of the newest quorum GET that found this UID alive, as `isDead` has it; undefined without such a GET. */
  aliveSentMs(uid: string): number | undefined;
}

/** How long an UPDATE keeps its quota while its pod is Ready and nothing confirms the change. */
const UNCONFIRMED_SETTLE_PERIODS = 5;

/** One reservation and what the snapshot shows of its pod. */
export interface ObservedReservation {
  readonly reservation: Reservation;
  /** The pod in the snapshot; undefined when it is absent. */
  readonly pod: Pod | undefined;
  readonly uid: string | undefined;
  readonly snapshot: CellSnapshot;
  readonly evidence: Evidence;
  /** The pod counts as available. */
  readonly isAvailable: boolean;
  readonly settleMs: number;
}

/**
 * R1 and R2 need this: the stream has brought something, or has reached a LIST, since the admission was seen. The pod
 * was then reviewed in the history that the snapshot shows (docs/design.md#lost-history).
 */
export function isHeardSince(
  { evidence, uid }: Pick<ObservedReservation, "evidence" | "uid">,
  seenMs: number,
): boolean {
  const { reachedSentMs } = evidence;
  return evidence.heardMs(uid) > seenMs || (reachedSentMs !== undefined && reachedSentMs > seenMs);
}

/**
 * R1, dead: the pod is terminating or finished, or it is absent from a snapshot that has reached a version that was
 * reviewed. Where versions say nothing (upstream's buckets, versions that are no integers, a cell restored to older
 * ones), absent from a snapshot that has reached a LIST sent after first sight: the pod existed when it was reviewed,
 * so the LIST would have it. A LIST of the same moment does not count: the pod may be that young.
 */
export function isSettledByR1(
  { reservation, pod, uid, snapshot, evidence }: ObservedReservation,
  firstSeenMs: number,
): boolean {
  if (pod !== undefined) return isDead(pod);
  const position = snapshot.positionOf(uid);
  for (const { podResourceVersion } of reservation.records.values()) {
    if (hasReached(position, podResourceVersion)) return true;
  }
  return evidence.reachedSentMs !== undefined && evidence.reachedSentMs > firstSeenMs;
}

/**
 * R2, superseded: the pod is alive at a newer version than the reviewed one, so the reviewed DELETE can no longer be
 * committed. Not for an eviction, whose commit does not depend on the version, and not for an UPDATE, which makes such
 * a newer version.
 */
export function isSettledByR2({ pod }: ObservedReservation, operation: Operation, record: ReservationRecord): boolean {
  if (operation !== "DELETE") return false;
  const reviewed = record.podResourceVersion;
  if (pod === undefined || isDead(pod)) return false;
  if (!isComparableVersion(reviewed) || !isComparableVersion(pod.resourceVersion)) return false;
  return compareVersions(pod.resourceVersion, reviewed) > 0;
}

/**
 * R3, not executed: a quorum read that was sent a settle period after the newest admission was first seen proves the
 * pod alive. Either a GET of the pod, or a LIST that the snapshot, in which the pod is alive, has reached.
 */
export function isSettledByR3(observed: ObservedReservation, operation: Operation, span: SeenSpan): boolean {
  const { pod, uid, evidence, settleMs } = observed;
  const dueMs = settledAtMs(settleMs, span.lastMs);
  const listed = pod !== undefined && !isDead(pod) && reaches(evidence.reachedSentMs, dueMs);
  if (operation === "UPDATE") return listed && (!isUpdateUnderWay(observed) || isUpdateOverdue(observed, span));
  return listed || (uid !== undefined && reaches(evidence.aliveSentMs(uid), dueMs));
}

/** The UPDATE was committed, its restart has ended and the pod is available again (docs/design.md#in-place-changes). */
export function isUpdateDone(observed: ObservedReservation, operation: Operation, record: ReservationRecord): boolean {
  const { pod, snapshot, isAvailable } = observed;
  if (operation !== "UPDATE" || pod === undefined || record.podGeneration === undefined) return false;
  if (pod.generation <= Math.max(record.podGeneration, 1) || !isAvailable) return false;
  return (snapshot.settledGeneration(pod) ?? -1) >= pod.generation;
}

/**
 * The snapshot shows a change that the pod's status does not report yet, whichever of several changes it is. A change
 * that the status reports restarts nothing any more, whether the pod is available or not: a protector whose selector
 * was edited may never see the pod available.
 */
function isUpdateUnderWay({ reservation, pod, snapshot, isAvailable }: ObservedReservation): boolean {
  const podGeneration = reservation.records.get("UPDATE")?.podGeneration;
  if (podGeneration === undefined) return !isAvailable;
  if (pod === undefined || (snapshot.declinedGeneration(pod) ?? -1) >= pod.generation) return false;
  // Before Kubernetes 1.33 pods had no generation. The first change makes it 1, which new pods have from the start.
  if (podGeneration < 1 && pod.generation === 1) return true;
  return (snapshot.settledGeneration(pod) ?? -1) < pod.generation;
}

/**
 * Nothing in the status will ever tell that the change is done: runtimes report images under other names. After this
 * time it is taken for done while the pod is Ready, whether or not its protector still counts it.
 */
function isUpdateOverdue(
  { pod, snapshot, evidence, settleMs, isAvailable }: ObservedReservation,
  span: SeenSpan,
): boolean {
  if (pod === undefined || (readySinceMs(pod) === undefined && !isAvailable)) return false;
  if (pod.generation !== 1 && (snapshot.unconfirmedGeneration(pod) ?? -1) < pod.generation) return false;
  return reaches(evidence.reachedSentMs, span.lastMs + UNCONFIRMED_SETTLE_PERIODS * settleMs);
}

/** Monotonic time from which on a quorum read settles the record by R3. */
export function settledAtMs(settleMs: number, lastSeenMs: number): number {
  return lastSeenMs + settleMs;
}

export function reaches(sentMs: number | undefined, dueMs: number): boolean {
  return sentMs !== undefined && sentMs >= dueMs;
}
