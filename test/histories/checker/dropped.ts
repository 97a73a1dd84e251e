/**
 * No record is dropped before its disruption can no longer be committed: where a pod was alive at the position with
 * which its record was dropped, its end needs a review that was answered later.
 */
import type { History, ObjectVersion, RecordedReview } from "./history.ts";
import type { Judgement } from "./judgement.ts";
import { isDead, nameOfUid, versionsByUid } from "./pods.ts";
import type { ProtectorHistory, StoredStep } from "./protector-history.ts";

interface PodPast {
  readonly versions: readonly ObjectVersion[];
  /** When its cluster began this history. */
  readonly startMs: number;
}

export function judgeDropped(history: History, protectors: readonly ProtectorHistory[], judgement: Judgement): void {
  const pasts = new Map(
    [...history.pods].map(([cluster, timelines]) => [
      cluster,
      timelines.map(({ versions, startMs }) => ({ of: versionsByUid(versions), startMs })),
    ]),
  );
  const reviews = new Map<string, RecordedReview[]>();
  for (const review of history.reviews) {
    const uid = nameOfUid(review.podUid);
    reviews.set(uid, [...(reviews.get(uid) ?? []), review]);
  }
  for (const { key, steps } of protectors) {
    for (const step of steps) {
      for (const { cell, uid, operation } of dropsIn(step)) {
        const cluster = history.cells.get(cell) ?? "";
        const known = (pasts.get(cluster) ?? []).map(({ of, startMs }) => ({ versions: of.get(uid) ?? [], startMs }));
        judgement.judged("dropped");
        const wrong = whyTooEarly(step, cell, known, reviews.get(uid) ?? []);
        if (wrong !== undefined)
          judgement.violation(
            "dropped",
            `${key}: revision ${step.moment.revision} drops the ${operation} record of ${wrong}`,
          );
      }
    }
  }
}

interface Drop {
  readonly cell: string;
  readonly uid: string;
  readonly operation: string;
}

/**
 * A deleted protector, and an entry that was removed or begins a new epoch, drop nothing by a rule. While a pod has
 * another record, what ends it may be of that one, and the pod stays subtracted.
 */
function dropsIn({ before, after }: StoredStep): readonly Drop[] {
  const drops: Drop[] = [];
  if (before === undefined || after?.uid !== before.uid) return drops;
  for (const [cell, entry] of before.cells) {
    const next = after.cells.get(cell);
    if (next === undefined || next.epoch !== entry.epoch || next.position === undefined) continue;
    for (const [uid, { records }] of entry.reservations) {
      if ((next.reservations.get(uid)?.records.size ?? 0) > 0) continue;
      for (const operation of records.keys()) drops.push({ cell, uid, operation });
    }
  }
  return drops;
}

/** The pod that ended by a review that was over before its record was dropped. */
function whyTooEarly(
  step: StoredStep,
  cell: string,
  pasts: readonly PodPast[],
  reviews: readonly RecordedReview[],
): string | undefined {
  const position = step.after?.cells.get(cell)?.position ?? 0;
  const versions = pasts.findLast(({ startMs }) => startMs <= step.atMs)?.versions ?? [];
  const then = versions.findLast(({ revision }) => revision <= position);
  // Nothing is known of a pod that is younger than the position, and a dead one has committed.
  if (then === undefined || isDead(then.object)) return undefined;
  const death = versions.find(({ revision, object }) => revision > position && isDead(object));
  if (death === undefined) return undefined;
  const allowed = reviews.filter(({ answer }) => answer === "allowed");
  // Something else than a review ended it, or a review that was not recorded.
  if (allowed.length === 0) return undefined;
  const { history, revision } = step.moment;
  const isLater = ({ to }: RecordedReview): boolean =>
    to === undefined || to.history > history || (to.history === history && to.revision >= revision);
  return allowed.some(isLater) ? undefined : death.key;
}
