/**
 * Rules R1 to R3 (docs/design.md#settling): when a reservation is settled, because its disruption has happened or can
 * no longer happen. Each rule is one function. No rule reads a wall clock, and no rule settles a reservation because
 * its pod became unready: the pod may become ready again before the disruption is committed.
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
   * In the format of the status: one version, or one for each shard, comma-separated. Undefined where versions are not
   * comparable.
   */
  readonly position: string | undefined;
  /** The position of the pod's shard; for an unknown UID, the oldest position. */
  positionOf(uid: string | undefined): string | undefined;
  podByUID(uid: string): Pod | undefined;
  /** The wanted pod of this name. Where a shard lags, an earlier pod of the same name may still be present. */
  podByName(name: string, isWanted: (pod: Pod) => boolean): Pod | undefined;
  /**
   * The generation that the pod's status reports (images of the spec, `observedGeneration` caught up). Called only for
   * pods with an UPDATE record.
   */
  settledGeneration(pod: Pod): number | undefined;
  /** The generation that the kubelet has seen, where the reported images do not show whether the pod runs it. */
  unconfirmedGeneration(pod: Pod): number | undefined;
  /** The generation whose change the kubelet has declined for good: an infeasible resize. */
  declinedGeneration(pod: Pod): number | undefined;
}

/** Quorum reads, by the monotonic time at which they were sent. */
export interface Evidence {
  /** Send time of the newest quorum LIST that the snapshot has reached; undefined before the first one. */
  readonly reachedSentMs: number | undefined;
  /**
   * Monotonic time of the last message in the pod's stream; for an unknown UID, in the stream that has been silent for
   * the longest; infinite where unknown. While a stream is silent, the server may have been restored, and the snapshot
   * may belong to another history than the reviewed pod.
   */
  heardMs(uid: string | undefined): number;
  /**
   * Send time of the newest quorum GET that found this UID alive, that is not `isDead`; undefined without such a GET.
   */
  aliveSentMs(uid: string): number | undefined;
}

/** Settle periods for which an UPDATE keeps its quota while its pod is Ready and nothing confirms the change. */
const UNCONFIRMED_SETTLE_PERIODS = 5;

/** One reservation, and the state of its pod in the snapshot. */
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
 * Precondition of R1 and R2: since the admission was seen, the stream has delivered something, or has reached a LIST.
 * Only then was the pod reviewed in the same history as the snapshot's (docs/design.md#lost-history).
 */
export function isHeardSince(
  { evidence, uid }: Pick<ObservedReservation, "evidence" | "uid">,
  seenMs: number,
): boolean {
  const { reachedSentMs } = evidence;
  return evidence.heardMs(uid) > seenMs || (reachedSentMs !== undefined && reachedSentMs > seenMs);
}

/**
 * R1, dead: the pod is terminating or finished, or absent from a snapshot that has reached each reviewed version (a
 * forged review may state one from before the pod). Versions may be useless (upstream's buckets, versions that are no
 * integers, a cell that was restored to older ones). In this case, the pod is dead if it is absent from a snapshot that
 * has reached a LIST sent after first sight: the pod existed at its review, so the LIST would contain it. A LIST of the
 * same moment does not count, because the pod may be that young.
 */
export function isSettledByR1(
  { reservation, pod, uid, snapshot, evidence }: ObservedReservation,
  firstSeenMs: number,
): boolean {
  if (pod !== undefined) return isDead(pod);
  const versions = [...reservation.records.values()].map((record) => record.podResourceVersion);
  const known = versions.filter(isComparableVersion);
  const position = snapshot.positionOf(uid);
  if (known.length > 0 && known.every((version) => hasReached(position, version))) return true;
  return evidence.reachedSentMs !== undefined && evidence.reachedSentMs > firstSeenMs;
}

/**
 * R2, superseded: the pod is alive at a newer version than the reviewed one, so the reviewed DELETE can no longer be
 * committed. Not for an eviction, whose commit does not depend on the version, and not for an UPDATE, which creates
 * such a newer version.
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
 * pod alive. The read is either a GET of the pod, or a LIST that the snapshot has reached while the pod is alive in it.
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
 * True when the pod's status does not report its last change yet, whichever of several changes it is. A reported change
 * restarts nothing any more, whether the pod is available or not: a protector whose selector was edited may never see
 * the pod available.
 */
function isUpdateUnderWay({ reservation, pod, snapshot, isAvailable }: ObservedReservation): boolean {
  const podGeneration = reservation.records.get("UPDATE")?.podGeneration;
  if (podGeneration === undefined) return !isAvailable;
  if (pod === undefined || (snapshot.declinedGeneration(pod) ?? -1) >= pod.generation) return false;
  // Before Kubernetes 1.33, pods had no generation. The first change makes it 1, the value of new pods.
  if (podGeneration < 1 && pod.generation === 1) return true;
  return (snapshot.settledGeneration(pod) ?? -1) < pod.generation;
}

/**
 * True for a change that the status will never report as done, because the runtime reports images under other names.
 * After this time, the change counts as done while the pod is Ready, even if its protector no longer counts the pod.
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
