/** Which recorded review left which records: a nonce names its request, and no review tells it. */
import type { Moment, RecordedReview } from "../checker/history.ts";
import { text } from "../checker/json.ts";
import { isDead, nameOfUid } from "../checker/pods.ts";
import { isWithin, type StoredStep } from "../checker/protector-history.ts";
import { NotSpecified, type ReplayableWorld, type ReplayedPod, type WorldProtector } from "./replayable-world.ts";

/** An admission that a version of `protector` records and the one before does not. */
interface NewRecord {
  readonly protector: WorldProtector;
  readonly step: StoredStep;
}

interface Admission {
  readonly nonce: string;
  readonly pod: string;
  readonly operation: string;
  readonly records: NewRecord[];
}

export interface PodRequest {
  readonly name: string;
  readonly review: RecordedReview;
  readonly pod: ReplayedPod;
  readonly operation: "DELETE" | "EVICT";
  /** The revision at which the pod of a DELETE was reviewed. */
  readonly reviewedAt: number | undefined;
  readonly records: readonly NewRecord[];
}

export interface Requests {
  readonly requests: readonly PodRequest[];
  /** The name of the request of each nonce; a nonce without one names itself. */
  readonly nameOf: (nonce: string) => string;
}

/** The requests for pods of this world that the protocol decides. */
export function requestsOf(world: ReplayableWorld, reviews: readonly RecordedReview[]): Requests {
  const left = [...admissionsOf(world)];
  const names = new Map<string, string>();
  const found = new Map<RecordedReview, PodRequest>();
  for (const review of inOrderOfClaim(reviews)) {
    const pod = podOf(world, review);
    const { operation } = review;
    if (pod === undefined || review.isDryRun || (operation !== "DELETE" && operation !== "EVICT")) continue;
    // Allowed without a record, which another request for the pod may have left at the same time.
    if (review.pod !== undefined && isDead(review.pod)) continue;
    const index = left.findIndex(
      (one) =>
        one.pod === pod.name &&
        one.operation === operation &&
        one.records.every(({ step }) => isWithin(step.moment, review.from, lastOf(review) ?? step.moment)),
    );
    const [admission] = index < 0 ? [] : left.splice(index, 1);
    const name = `${operation.toLowerCase()}-${reviews.indexOf(review) + 1}`;
    if (admission !== undefined) names.set(admission.nonce, name);
    const version = text(review.pod, "metadata", "resourceVersion");
    const reviewedAt = version === "" ? undefined : Number(version);
    const request = { name, review, pod, operation, reviewedAt, records: admission?.records ?? [] } as const;
    if (isDecided(request)) found.set(review, request);
  }
  const requests = reviews.flatMap((review) => found.get(review) ?? []);
  for (const { pod, operation } of left)
    if (operation === "EVICT" && requests.some((one) => one.pod.name === pod && isPinned(one)))
      throw new NotSpecified(`an eviction of ${pod} was pinned, and recorded again`);
  return { requests, nameOf: (nonce) => names.get(nonce) ?? nonce };
}

function isPinned({ operation, pod, records }: PodRequest): boolean {
  return (
    operation === "EVICT" &&
    records.some(({ step }) => {
      const record = step.after?.cells.get(pod.cell)?.reservations.get(pod.uid)?.records.get("EVICT");
      return record?.paid === false;
    })
  );
}

/** The last moment at which the webhook may have written for the review: no answer came where the caller went away. */
function lastOf({ answer, to }: RecordedReview): Moment | undefined {
  return answer === "none" ? undefined : to;
}

/**
 * Whoever was allowed has a record; of those, whose answer came first chooses first. Of a review without an answer may
 * be any later record, so it chooses last.
 */
function inOrderOfClaim(reviews: readonly RecordedReview[]): readonly RecordedReview[] {
  const rank = ({ answer }: RecordedReview): number => (answer === "allowed" ? 0 : answer === "none" ? 2 : 1);
  return [...reviews].sort((a, b) => rank(a) - rank(b) || a.toMs - b.toMs);
}

/** An eviction need not name a UID. */
function podOf({ pods }: ReplayableWorld, { cell, key, podUid, fromMs }: RecordedReview): ReplayedPod | undefined {
  const named = pods.filter((pod) => pod.cell === cell && pod.key === key);
  if (podUid !== "") return named.find(({ uid }) => uid === nameOfUid(podUid));
  return named.findLast(({ first, versions }) => first !== "Absent" || (versions[0]?.atMs ?? 0) <= fromMs);
}

/**
 * Everybody may delete a pod that ends, or that was never Ready. An eviction that is allowed without a record has found
 * no pod, or one that ends; the recorder sees that a little later.
 */
function isDecided({ review, pod, reviewedAt, records }: PodRequest): boolean {
  const [begin] = pod.versions;
  const isBorn = pod.first !== "Absent" || (begin !== undefined && begin.atMs <= review.fromMs);
  const born = pod.first === "Absent" ? (begin?.revision ?? 0) : 0;
  const end = pod.versions.find(({ phase }) => phase === "Terminating" || phase === "Absent");
  if (reviewedAt !== undefined) return reviewedAt >= born && !isDead(review.pod);
  if (!isBorn || (end !== undefined && end.atMs <= review.fromMs)) return false;
  const isGone = end !== undefined && end.atMs <= review.toMs + SEEN_WITHIN_MS;
  return !(review.answer === "allowed" && records.length === 0 && isGone);
}

const SEEN_WITHIN_MS = 1_000;

function admissionsOf(world: ReplayableWorld): readonly Admission[] {
  const found = new Map<string, Admission>();
  for (const protector of world.protectors) {
    for (const step of protector.steps) {
      for (const { cell, uid, operation, nonce } of newNonces(step)) {
        const pod = world.pods.find((one) => one.cell === cell && one.uid === uid)?.name ?? "";
        const known = found.get(nonce) ?? { nonce, pod, operation, records: [] };
        found.set(nonce, known);
        known.records.push({ protector, step });
      }
    }
  }
  return [...found.values()];
}

interface StoredNonce {
  readonly cell: string;
  readonly uid: string;
  readonly operation: string;
  readonly nonce: string;
  readonly admittedMs: number;
}

/** Every nonce that a state has. */
export function noncesIn(state: StoredStep["after"], cell?: string): readonly StoredNonce[] {
  return [...(state?.cells ?? [])].flatMap(([id, { reservations }]) =>
    cell !== undefined && cell !== id
      ? []
      : [...reservations].flatMap(([uid, { records }]) =>
          [...records].flatMap(([operation, { nonces, admittedMs }]) =>
            nonces.map((nonce) => ({ cell: id, uid, operation, nonce, admittedMs })),
          ),
        ),
  );
}

/**
 * Those that the version adds, in the order of their admissions: what reservations take from a cell that counts fewer
 * pods than they are depends on it.
 */
export function newNonces({ before, after }: StoredStep): readonly StoredNonce[] {
  const known = new Set(noncesIn(before).map(({ nonce }) => nonce));
  const added = noncesIn(after).filter(({ nonce }) => !known.has(nonce));
  return added.sort((a, b) => a.admittedMs - b.admittedMs);
}
