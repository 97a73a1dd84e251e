/**
 * When a reservation is settled (design 5.2): R1 dead, R2 superseded, R3 not executed, each a function of its own. Nothing here
 * looks at a wall clock, and a pod that became unready settles nothing.
 */
import type { Pod } from "../../schema/pod.ts";
import type { Operation } from "../../schema/podprotector.ts";
import { compareVersions, hasReached, isComparableVersion } from "../../schema/resource-version.ts";
import { isDead } from "../availability/availability.ts";
import { EARLIER, type Reservation, type ReservationRecord } from "../ledger/reservation.ts";
import type { SeenTimes } from "./first-seen.ts";

/** One complete, unfiltered snapshot of the cell's pods, in the protector's namespace. */
export interface CellSnapshot {
  /** On the wire: one version, or one for each shard, comma-separated. Undefined where versions can't be compared. */
  readonly position: string | undefined;
  /** The component of the pod's shard; for an unknown UID the oldest one. */
  positionOf(uid: string | undefined): string | undefined;
  podByUID(uid: string): Pod | undefined;
  /** The pod of this name that is wanted; where a shard is behind, the one that had the name before may still be there. */
  podByName(name: string, isWanted: (pod: Pod) => boolean): Pod | undefined;
  /**
   * The generation up to which the pod's status reports its spec (images as specified, `observedGeneration` caught up), for UPDATE
   * (design 10). Asked only for pods with an UPDATE record.
   */
  settledGeneration(pod: Pod): number | undefined;
  /** The generation whose change the kubelet has declined for good: an infeasible resize. */
  declinedGeneration(pod: Pod): number | undefined;
}

/** Quorum reads, by the monotonic time at which they were sent (design 5.2 R3). */
export interface Evidence {
  /** Send time of the newest quorum LIST whose collection version the snapshot has reached; undefined before the first. */
  readonly reachedSentMs: number | undefined;
  /**
   * When the stream that this pod would come by last brought something, for an unknown UID the one that was silent for longest; infinite where
   * that is not known. While it is silent the server may have been restored, and what
   * the snapshot says of a pod is of another history than a review of that pod.
   */
  heardMs(uid: string | undefined): number;
  /** Send time of the newest quorum GET that found this UID without deletionTimestamp; undefined when there is none. */
  aliveSentMs(uid: string): number | undefined;
}

/** One reservation beside what the snapshot knows of its pod. */
export interface SettleInput {
  readonly reservation: Reservation;
  /** The pod in the snapshot; undefined when it is absent. */
  readonly pod: Pod | undefined;
  readonly uid: string | undefined;
  readonly snapshot: CellSnapshot;
  readonly evidence: Evidence;
  /** The pod is in `AV`. */
  readonly isAvailable: boolean;
  readonly settleMs: number;
}

/** When the admissions of one record were first seen, monotonic milliseconds. */
export interface FirstSeen {
  readonly firstMs: number;
  readonly lastMs: number;
}

/**
 * What R1 and R2 rest on: the stream has brought something, or has reached a LIST, since the admission was seen, so that the pod was reviewed in the
 * history that the snapshot is of (design 5.4).
 */
export function isHeardSince({ evidence, uid }: Pick<SettleInput, "evidence" | "uid">, seenMs: number): boolean {
  const { reachedSentMs } = evidence;
  return evidence.heardMs(uid) > seenMs || (reachedSentMs !== undefined && reachedSentMs > seenMs);
}

/**
 * R1: the pod is terminating or finished, or absent from a snapshot that is as new as a version that was reviewed. Where versions
 * say nothing (upstream's buckets, versions that are no integers, a cell restored to older ones), absent from a snapshot that has
 * reached a LIST sent after first sight (not in the same moment: the pod may be that young): the pod existed when it was
 * reviewed, so it would be there.
 */
export function isSettledByR1(
  { reservation, pod, uid, snapshot, evidence }: SettleInput,
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
 * R2: the reviewed DELETE can't be committed any more, because the pod is alive at a newer version. Not for an eviction, whose
 * commit is not bound to the version, and not for an update, which is one of those newer versions.
 */
export function isSettledByR2({ pod }: SettleInput, operation: Operation, record: ReservationRecord): boolean {
  if (operation !== "DELETE") return false;
  const reviewed = record.podResourceVersion;
  if (pod === undefined || isDead(pod)) return false;
  if (!isComparableVersion(reviewed) || !isComparableVersion(pod.resourceVersion)) return false;
  return compareVersions(pod.resourceVersion, reviewed) > 0;
}

/**
 * R3: the pod is proven alive by a quorum read that was sent a settle period after the newest admission was first seen: by a GET of
 * the pod, or by a LIST that the snapshot, in which the pod is alive, has reached.
 */
export function isSettledByR3(subject: SettleInput, operation: Operation, sight: FirstSeen): boolean {
  const { pod, uid, evidence } = subject;
  const dueMs = settledAtMs(subject, sight.lastMs);
  const listed = pod !== undefined && !isDead(pod) && reaches(evidence.reachedSentMs, dueMs);
  if (operation === "UPDATE") return listed && !isUpdateUnderWay(subject);
  return listed || (uid !== undefined && reaches(evidence.aliveSentMs(uid), dueMs));
}

/** The UPDATE was committed, its restart is over and the pod is available again (design 10). */
export function isUpdateDone(subject: SettleInput, operation: Operation, record: ReservationRecord): boolean {
  const { pod, snapshot, isAvailable } = subject;
  if (operation !== "UPDATE" || pod === undefined || record.podGeneration === undefined) return false;
  if (pod.generation <= record.podGeneration || !isAvailable) return false;
  return (snapshot.settledGeneration(pod) ?? -1) >= pod.generation;
}

/** Monotonic time from which on evidence settles the record by R3. */
export function settledAtMs({ settleMs }: Pick<SettleInput, "settleMs">, lastSeenMs: number): number {
  return lastSeenMs + settleMs;
}

/** First sights of a record's admissions; `touched` receives the keys that are still in use. */
export function sightOf(
  seen: SeenTimes,
  touched: Set<string>,
  monotonicMs: number,
  identity: string,
  operation: Operation,
  record: ReservationRecord,
): FirstSeen {
  let firstMs = Number.POSITIVE_INFINITY;
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const key of sightKeys(identity, operation, record)) {
    touched.add(key);
    const ms = seen.observe(key, monotonicMs);
    firstMs = Math.min(firstMs, ms);
    lastMs = Math.max(lastMs, ms);
  }
  return { firstMs, lastMs };
}

/** Admissions that are no longer listed are older than the listed ones; where none is listed, the time tells a refresh. */
function sightKeys(identity: string, operation: Operation, record: ReservationRecord): readonly string[] {
  const listed = record.nonces.filter((nonce) => nonce !== EARLIER);
  if (listed.length > 0) return listed.map((nonce) => `nonce/${nonce}`);
  return [`record/${identity}/${operation}/${record.startMicros}`];
}

/**
 * A change is in the snapshot and not over: the status has not caught up with it, whichever of several it is. One that is over restarts
 * nothing any more, whether its pod is available or not: a protector that does not count the pod (its selector was edited) never sees
 * it available.
 */
function isUpdateUnderWay({ reservation, pod, snapshot, isAvailable }: SettleInput): boolean {
  if (reservation.records.get("UPDATE")?.podGeneration === undefined) return !isAvailable;
  if (pod === undefined || (snapshot.declinedGeneration(pod) ?? -1) >= pod.generation) return false;
  return (snapshot.settledGeneration(pod) ?? -1) < pod.generation;
}

export function reaches(sentMs: number | undefined, dueMs: number): boolean {
  return sentMs !== undefined && sentMs >= dueMs;
}
