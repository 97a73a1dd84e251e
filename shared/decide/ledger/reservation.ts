/**
 * A pod's reservation (docs/design.md#state), its records, and the time ranges that upstream leaves. The weight belongs
 * to the UID instead of a record: however many admissions a pod has had, it can be lost only once (S6). All values are
 * immutable; a change creates a new reservation.
 */
import { hash } from "node:crypto";
import { MAX_NAME_LENGTH } from "../../schema/lengths.ts";
import { type Bucket, OPERATIONS, type Operation } from "../../schema/podprotector.ts";
import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";
import { parseMicros } from "../../schema/time.ts";

export type Weight = 0 | 1;

/** One operation's admissions of one pod: the unit that R1 to R3 settle. */
export interface ReservationRecord {
  /** The largest version that was reviewed; undefined when an upstream component wrote the record. */
  readonly podResourceVersion: string | undefined;
  /** `metadata.generation` that was reviewed, for UPDATE. */
  readonly podGeneration: number | undefined;
  /** The admissions that share the record, oldest first. A leading {@link EARLIER} stands for unlisted ones. */
  readonly nonces: readonly string[];
  /** The record has used quota. False for a pin. */
  readonly paid: boolean;
  /** Unix microseconds of the latest admission, as in upstream's `startTime`, which upstream's clock rule needs. */
  readonly startMicros: number;
  /** Unix microseconds of the first admission. Bounds how long a reservation can be refreshed. */
  readonly firstMicros: number;
}

export interface Reservation {
  /** Undefined for a reservation from the packed form, which has `uidHash` instead. */
  readonly uid: string | undefined;
  /** From {@link hashUid}; computed only where it is needed. */
  readonly uidHash: string | undefined;
  readonly podName: string | undefined;
  readonly weight: Weight;
  readonly records: ReadonlyMap<Operation, ReservationRecord>;
}

/** Represents unlisted admissions in `nonces`: upstream's, and those beyond {@link NONCES_KEPT}. */
export const EARLIER = "+";
/** Newest nonces that a record keeps, so that its size is bounded. */
export const NONCES_KEPT = 8;

/** One admission, with the pod's reviewed version. */
export interface Admission {
  readonly operation: Operation;
  readonly nonce: string;
  readonly podResourceVersion: string | undefined;
  readonly podGeneration: number | undefined;
  readonly paid: boolean;
  readonly atMicros: number;
}

/**
 * `before`, refreshed by `admission`: adds the nonce, and keeps the larger version; a paid record stays paid. The same
 * admission a second time can only change the version.
 */
export function refreshRecord(before: ReservationRecord | undefined, admission: Admission): ReservationRecord {
  const { nonce, podResourceVersion, podGeneration, paid, atMicros } = admission;
  if (before === undefined) {
    return { podResourceVersion, podGeneration, nonces: [nonce], paid, startMicros: atMicros, firstMicros: atMicros };
  }
  return {
    podResourceVersion: laterVersion(before.podResourceVersion, podResourceVersion),
    podGeneration: laterGeneration(before.podGeneration, podGeneration),
    nonces: before.nonces.includes(nonce) ? before.nonces : boundNonces([...before.nonces, nonce]),
    paid: before.paid || paid,
    startMicros: Math.max(before.startMicros, atMicros),
    firstMicros: Math.min(before.firstMicros, atMicros),
  };
}

/**
 * Merges two records of one UID and operation, as concurrent writers may leave them: every nonce, the later version,
 * the wider times.
 */
export function mergeRecords(a: ReservationRecord, b: ReservationRecord): ReservationRecord {
  const [older, newer] = a.startMicros <= b.startMicros ? [a, b] : [b, a];
  return {
    podResourceVersion: laterVersion(older.podResourceVersion, newer.podResourceVersion),
    podGeneration: laterGeneration(older.podGeneration, newer.podGeneration),
    nonces: boundNonces([...new Set([...older.nonces, ...newer.nonces])]),
    paid: a.paid || b.paid,
    startMicros: newer.startMicros,
    firstMicros: Math.min(a.firstMicros, b.firstMicros),
  };
}

/**
 * `record` without `nonce`, and unpaid if the nonce has paid (`hasPaid`); undefined when it was the last nonce. {@link
 * EARLIER} keeps a record.
 */
export function withoutNonce(record: ReservationRecord, nonce: string, hasPaid = false): ReservationRecord | undefined {
  if (!record.nonces.includes(nonce)) return record;
  const nonces = record.nonces.filter((other) => other !== nonce);
  return nonces.length === 0 ? undefined : { ...record, nonces, paid: record.paid && !hasPaid };
}

/** The newest {@link NONCES_KEPT} nonces, after {@link EARLIER} when any is dropped. */
export function boundNonces(nonces: readonly string[]): readonly string[] {
  const named = nonces.filter((nonce) => nonce !== EARLIER);
  const isCut = named.length < nonces.length || named.length > NONCES_KEPT;
  const kept = named.slice(-NONCES_KEPT);
  return isCut ? [EARLIER, ...kept] : kept;
}

/**
 * The larger version. A missing version (upstream wrote the record) makes the result missing: the unknown version may
 * be newer, and R2 must not settle the record. An incomparable version counts as missing.
 */
function laterVersion(older: string | undefined, newer: string | undefined): string | undefined {
  if (older === undefined || newer === undefined) return undefined;
  if (!isComparableVersion(older) || !isComparableVersion(newer)) return undefined;
  return compareVersions(older, newer) > 0 ? older : newer;
}

function laterGeneration(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.max(a, b);
}

/** The records in a fixed order of operations, so that output does not depend on the order of writing. */
export function orderedRecords(reservation: Reservation): readonly (readonly [Operation, ReservationRecord])[] {
  const entries: [Operation, ReservationRecord][] = [];
  for (const operation of OPERATIONS) {
    const record = reservation.records.get(operation);
    if (record !== undefined) entries.push([operation, record]);
  }
  return entries;
}

/**
 * Admissions without identity: upstream's compacted bucket, or an unreadable packed one. Its weight is its counter,
 * until its newest member is settled.
 */
export interface RangeBucket {
  /** The bucket that was read; written back unchanged. */
  readonly bucket: Bucket;
  readonly weight: number;
  /** Unix microseconds. */
  readonly startMicros: number;
  readonly endMicros: number;
}

/** A counter in upstream's sense: 1 when absent. A negative counter would add pods, so it counts as 1. */
export function counterOf(bucket: Bucket): number {
  const counter = bucket.counter ?? 1;
  return counter < 0 ? 1 : counter;
}

export function rangeOf(bucket: Bucket): RangeBucket {
  const startMicros = parseMicros(bucket.startTime);
  const endMicros = Math.max(startMicros, parseMicros(bucket.endTime));
  return { bucket, weight: counterOf(bucket), startMicros, endMicros };
}

/** Changes when the bucket grows, so that growth restarts its settle timer. */
export function rangeKey({ bucket, weight }: RangeBucket): string {
  return `range/${bucket.startTime}/${bucket.endTime ?? ""}/${weight}`;
}

/** Remembered hashes, because an aggregator hashes the same UIDs at each reconcile. */
const MEMO_LIMIT = 16_384;
const memo = new Map<string, string>();

/**
 * 64 bits of a hash of a pod's UID, as 8 Latin-1 characters, for the packed form. Together with the pod's name, the
 * hash identifies the pod. The apiserver creates the UIDs, so no client can choose two that collide.
 */
export function hashUid(uid: string): string {
  const known = memo.get(uid);
  if (known !== undefined) return known;
  const text = hash("sha256", uid, "buffer").toString("latin1", 0, 8);
  // Does not cache a forged UID in a status, which may have a megabyte.
  if (uid.length > MAX_NAME_LENGTH) return text;
  if (memo.size >= MEMO_LIMIT) memo.clear();
  memo.set(uid, text);
  return text;
}

/** True when the pod is subtracted, and an admission that covers the operation has used quota. */
export function isPaidFor({ weight, records }: Reservation, operation: Operation): boolean {
  if (weight !== 1) return false;
  if (records.get(operation)?.paid === true) return true;
  return operation !== "UPDATE" && (records.get("DELETE")?.paid === true || records.get("EVICT")?.paid === true);
}
