/**
 * The protector is linearizable as a bounded counter: each answer of a webhook fits at one moment between its request
 * and itself. The stored versions, in the order of the core's etcd, are the witness. So nothing has to be searched for:
 * an allowed disruption takes quota with the version that first records it, and a denied one is right at some version
 * that was stored meanwhile.
 */
import type { History, Moment, RecordedReview } from "./history.ts";
import { at, texts } from "./json.ts";
import type { Judgement } from "./judgement.ts";
import { isDead, isReady, isSelected, nameOfUid, versionsByUid } from "./pods.ts";
import { counted, estimate, isEnforcing, type StoredState } from "./protector.ts";
import { isWithin, type ProtectorHistory, type StoredAdmission } from "./protector-history.ts";

const FORCE = "podseidon.kubewharf.io/force-delete";
/** A replica decides by a cache that was confirmed within this time (docs/design.md#what-a-decision-rests-on). */
const CONFIRMED_MS = 15_000;

interface Reviewed {
  readonly review: RecordedReview;
  readonly uid: string;
  readonly to: Moment;
  /** The versions of the pod that the decision may rest on. */
  readonly pods: readonly unknown[];
}

export function judgeCounter(history: History, protectors: readonly ProtectorHistory[], judgement: Judgement): void {
  const reviewed = reviewedPods(history);
  for (const protector of protectors) {
    judgeAllowed(history, protector, reviewed, judgement);
    judgeQuota(protector, reviewed, judgement);
    for (const one of reviewed) if (one.review.answer === "denied") judgeDenied(protector, one, judgement);
  }
}

function reviewedPods(history: History): readonly Reviewed[] {
  const versions = new Map(
    [...history.pods].map(([cluster, timelines]) => [cluster, timelines.map(({ versions: of }) => versionsByUid(of))]),
  );
  return history.reviews.flatMap((review) => {
    const { podUid, to, pod, isDryRun } = review;
    if (to === undefined || isDryRun || podUid === "") return [];
    const uid = nameOfUid(podUid);
    const known = (versions.get(history.cells.get(review.cell) ?? "") ?? []).flatMap((of) => of.get(uid) ?? []);
    const pods = pod === undefined ? during(known, review) : [pod];
    return [{ review, uid, to, pods }];
  });
}

/** What a live read of an eviction may have seen. The recorder sees a version some time after it was stored. */
function during(
  versions: readonly { readonly atMs: number; readonly object: unknown }[],
  review: RecordedReview,
): unknown[] {
  const before = versions.findLast(({ atMs }) => atMs <= review.fromMs);
  const later = versions.filter(({ atMs }) => atMs > review.fromMs && atMs <= review.toMs + CONFIRMED_MS);
  return [...(before === undefined ? [] : [before]), ...later].map(({ object }) => object);
}

/** Each allowed disruption of an available pod has a version that records it, and that no other answer needs. */
function judgeAllowed(
  history: History,
  protector: ProtectorHistory,
  reviewed: readonly Reviewed[],
  judgement: Judgement,
): void {
  const free = new Map<string, StoredAdmission[]>();
  for (const one of protector.admissions) push(free, nameOf(one.cell, one.uid, one.operation), one);
  // The answer whose time ends first chooses first: what it leaves fits those that have more time. Who may delete the
  // pod without a record chooses last.
  const rank = (one: Reviewed): number => (mayGoUnrecorded(one) ? 1 : 0);
  const inTurn = [...reviewed].sort(
    (a, b) => rank(a) - rank(b) || a.to.history - b.to.history || a.to.revision - b.to.revision,
  );
  for (const one of inTurn) {
    const { review, uid, to } = one;
    if (review.answer !== "allowed") continue;
    const admissions = free.get(nameOf(review.cell, uid, review.operation)) ?? [];
    const index = admissions.findIndex(({ step }) => isWithin(step.moment, review.from, to));
    if (index >= 0) admissions.splice(index, 1);
    else if (needsRecord(history, protector, one))
      judgement.violation(
        "counter",
        `${protector.key}: ${nameOfReview(review)} was allowed, and no version records it`,
      );
    else continue;
    judgement.judged("allowed");
  }
}

/** Whatever its protectors say. */
function mayGoUnrecorded({ pods }: Reviewed): boolean {
  const isFree = (pod: unknown): boolean =>
    isDead(pod) || !isReady(pod) || at(pod, "metadata", "annotations", FORCE) !== undefined;
  return pods.length === 0 || pods.some(isFree);
}

function needsRecord({ knownMs }: History, protector: ProtectorHistory, reviewed: Reviewed): boolean {
  const { review, to, pods } = reviewed;
  const [namespace] = review.key.split("/");
  if (mayGoUnrecorded(reviewed) || !protector.key.startsWith(`${namespace}/`)) return false;
  const known = knownMs.findLast((atMs) => atMs <= review.fromMs) ?? 0;
  const states = protector.since(Math.max(known, review.fromMs - CONFIRMED_MS), review.from, to);
  return states.every((state) => state !== undefined && covers(state, review.operation, pods));
}

function covers(state: StoredState, operation: string, pods: readonly unknown[]): boolean {
  const isMatched = (pod: unknown): boolean => {
    const labels = texts(pod, "metadata", "labels");
    const ignored = at(state.spec, "ignoredPodSelector");
    return isSelected(at(state.spec, "selector"), labels) && (ignored === undefined || !isSelected(ignored, labels));
  };
  return isEnforcing(state, operation) && pods.every(isMatched);
}

/** A version that takes quota keeps the promise: what it leaves is not below the minimum. */
function judgeQuota(protector: ProtectorHistory, reviewed: readonly Reviewed[], judgement: Judgement): void {
  const forced = new Set(
    reviewed.flatMap(({ uid, pods }) =>
      pods.some((pod) => at(pod, "metadata", "annotations", FORCE) !== undefined) ? [uid] : [],
    ),
  );
  for (const { step, cell, uid, operation } of protector.admissions) {
    const { before, after } = step;
    const entry = after?.cells.get(cell);
    const reservation = entry?.reservations.get(uid);
    // Lost reservations are written again with a hold, whatever there is left.
    if (after === undefined || entry === undefined || entry.isOnHold || forced.has(uid)) continue;
    const isNew = (before?.cells.get(cell)?.reservations.get(uid)?.weight ?? 0) === 0;
    if (reservation?.weight !== 1 || !isNew || reservation.records.get(operation)?.paid !== true) continue;
    if (!isEnforcing(after, operation)) continue;
    judgement.judged("quota");
    const left = estimate(after);
    if (left < after.minAvailable)
      judgement.violation(
        "counter",
        `${protector.key}: revision ${step.moment.revision} leaves ${left} of ${after.minAvailable}`,
      );
  }
}

/** A denial that names its reason is right at some version that was stored during the request. */
function judgeDenied(protector: ProtectorHistory, { review, uid, to }: Reviewed, judgement: Judgement): void {
  const reason = review.reasons.get(protector.key);
  if (reason === undefined) return;
  const states = protector.between(review.from, to);
  const fits = states.some((state) => state === undefined || isReason(reason, state, review.cell, uid));
  judgement.judged(isReasonJudged(reason) ? "denied" : "other denials");
  if (!fits)
    judgement.violation(
      "counter",
      `${protector.key}: ${nameOfReview(review)} was denied as ${reason}, which no version is`,
    );
}

const REASONS = ["AtMinimum", "Reserved", "NotCounted", "OnHold"];
const isReasonJudged = (reason: string): boolean => REASONS.includes(reason);

function isReason(reason: string, state: StoredState, cell: string, uid: string): boolean {
  const entry = state.cells.get(cell);
  const needs = entry?.reservations.get(uid)?.weight === 1 ? 0 : 1;
  // Counts under an older spec do not count (`specHash`), which is not judged here.
  const isCertain = (id: string): boolean => isOfSpec(state, id);
  switch (reason) {
    case "AtMinimum":
      return counted(state) <= state.minAvailable || ![...state.cells.keys()].every(isCertain);
    case "Reserved":
      return estimate(state, isCertain) - needs < state.minAvailable;
    case "NotCounted":
      return entry?.isCounted !== true || !isCertain(cell);
    case "OnHold":
      return entry?.isOnHold === true;
    default:
      return true;
  }
}

/** All cells were counted by the same spec, so that nobody waits for a count. */
function isOfSpec(state: StoredState, cell: string): boolean {
  const hashes = [...state.cells.values()].map(({ specHash }) => specHash).filter((hash) => hash !== "");
  return new Set(hashes).size <= 1 || state.cells.get(cell)?.specHash === "";
}

function nameOf(cell: string, uid: string, operation: string): string {
  return `${cell} ${uid} ${operation}`;
}

function nameOfReview({ operation, key, cell, id }: RecordedReview): string {
  return `${operation} of ${key} in ${cell} (${id})`;
}

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const known = map.get(key);
  if (known === undefined) map.set(key, [value]);
  else known.push(value);
}
