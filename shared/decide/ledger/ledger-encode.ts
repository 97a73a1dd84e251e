/** Writes a ledger as buckets (docs/design.md#history-size), and bounds their size. */
import type { Bucket, Operation } from "../../schema/podprotector.ts";
import { formatMicros } from "../../schema/time.ts";
import { pack } from "./pack.ts";
import { orderedRecords, type RangeBucket, type Reservation, type ReservationRecord } from "./reservation.ts";

/**
 * Most plain buckets in an object, even where `compactThreshold` is larger. Each adds 230 bytes and 33 us to every
 * write; the packed form loses nothing.
 */
export const MAX_PLAIN_BUCKETS = 100;

/** The contents of a ledger, in any order. */
interface LedgerContents {
  readonly reservations: readonly Reservation[];
  readonly ranges: readonly RangeBucket[];
}

/**
 * The buckets, oldest first: ranges, the packed bucket, plain ones. The newest reservations stay plain, because these
 * are repeated, rolled back and inspected. Upstream, too, treats the first bucket as the compacted one. There are at
 * most `compactThreshold` buckets where possible: an upstream component compacts a longer list, and loses counts.
 * Reservations that were read packed stay packed, because their UIDs are unknown. The result does not depend on the
 * order of the contents.
 */
export function encodeBuckets(contents: LedgerContents, compactThreshold: number): Bucket[] {
  const { reservations, ranges } = contents;
  const sorted = reservations.map(sortable).sort(byAge);
  const limit = Math.max(0, Math.min(compactThreshold, MAX_PLAIN_BUCKETS) - ranges.length);
  const plainCount = sorted.reduce((count, { reservation }) => count + reservation.records.size, 0);
  const mustPack = plainCount > limit || reservations.some(({ uid }) => uid === undefined);
  let room = mustPack ? limit - 1 : limit;
  const plain: Bucket[][] = [];
  const packed: Reservation[] = [];
  for (const { reservation } of sorted.reverse()) {
    const { uid, records } = reservation;
    if (uid !== undefined && records.size <= room) {
      room -= records.size;
      plain.push(plainBuckets(reservation, uid));
    } else {
      // Reservations older than a packed one are packed, too: the packed bucket is the oldest.
      if (uid !== undefined) room = 0;
      packed.push(reservation);
    }
  }
  const rangeBuckets = [...ranges].sort(byRange).map(({ bucket }) => bucket);
  return [...rangeBuckets, ...packedBucket(packed.reverse()), ...plain.reverse().flat()];
}

/** One bucket. A component that drops `packed` still has the weight in its counter and times. */
function packedBucket(reservations: readonly Reservation[]): Bucket[] {
  if (reservations.length === 0) return [];
  let start = Number.POSITIVE_INFINITY;
  let end = 0;
  let counter = 0;
  for (const { weight, records } of reservations) {
    counter += weight;
    for (const { startMicros } of records.values()) {
      start = Math.min(start, startMicros);
      end = Math.max(end, startMicros);
    }
  }
  return [{ startTime: formatMicros(start), endTime: formatMicros(end), counter, packed: pack(reservations) }];
}

/** A bucket for each record. The first one has the weight of the UID, the others have 0. */
function plainBuckets(reservation: Reservation, uid: string): Bucket[] {
  return orderedRecords(reservation).map(([operation, record], index) =>
    plainBucket(uid, reservation.podName, operation, record, index === 0 ? reservation.weight : 0),
  );
}

/**
 * `counter` is absent where upstream leaves it out (a paid weight of 1), so that a bucket that upstream has stripped
 * still counts as paid.
 */
function plainBucket(
  podUID: string,
  podName: string | undefined,
  operation: Operation,
  record: ReservationRecord,
  counter: number,
): Bucket {
  const { podResourceVersion, podGeneration, nonces, paid, startMicros, firstMicros } = record;
  return {
    startTime: formatMicros(startMicros),
    podUID,
    ...(podName === undefined ? {} : { podName }),
    ...(counter === 1 && paid ? {} : { counter }),
    ...(podResourceVersion === undefined ? {} : { podResourceVersion }),
    ...(podGeneration === undefined ? {} : { podGeneration }),
    operation,
    nonce: nonces.join(","),
    ...(paid ? { paid } : {}),
    ...(firstMicros === startMicros ? {} : { firstTime: formatMicros(firstMicros) }),
  };
}

interface Sortable {
  readonly reservation: Reservation;
  readonly startMicros: number;
}

function sortable(reservation: Reservation): Sortable {
  let startMicros = 0;
  for (const record of reservation.records.values()) startMicros = Math.max(startMicros, record.startMicros);
  return { reservation, startMicros };
}

/** Reservations of one batch have the same time, so identity decides next. */
function byAge(a: Sortable, b: Sortable): number {
  if (a.startMicros !== b.startMicros) return a.startMicros - b.startMicros;
  const { uid, uidHash, podName } = a.reservation;
  const other = b.reservation;
  return compareText(podName, other.podName) || compareText(uid, other.uid) || compareText(uidHash, other.uidHash);
}

function byRange(a: RangeBucket, b: RangeBucket): number {
  return a.startMicros - b.startMicros || a.endMicros - b.endMicros || a.weight - b.weight;
}

function compareText(a = "", b = ""): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Bytes of a plain bucket without its texts, and of the largest bucket that a pod can have. */
const PLAIN_BYTES = 250;
const MOST_PLAIN_BYTES = 680;
const PACKED_RECORD_BYTES = 36;
const NONCE_BYTES = 12;

/** Upper bound of the bytes of one reservation in packed form. The plain form adds {@link plainBytesAtMost}. */
export function packedBytesAtMost(reservation: Reservation): number {
  let bytes = 24 + Math.ceil((Buffer.byteLength(reservation.podName ?? reservation.uid ?? "") + 4) * 1.34);
  for (const { nonces, podResourceVersion } of reservation.records.values()) {
    bytes += PACKED_RECORD_BYTES + Math.ceil(Buffer.byteLength(podResourceVersion ?? "") * 1.34);
    for (const nonce of nonces) bytes += NONCE_BYTES + Math.ceil(nonce.length * 1.34);
  }
  return bytes;
}

/** Upper bound of the bytes of one reservation in plain form: a bucket for each record, with all names. */
export function plainBytes({ uid, podName, records }: Reservation): number {
  if (uid === undefined) return 0;
  let bytes = records.size * (PLAIN_BYTES + uid.length + (podName?.length ?? 0));
  for (const { nonces, podResourceVersion } of records.values()) {
    bytes += podResourceVersion?.length ?? 0;
    for (const nonce of nonces) bytes += nonce.length + 1;
  }
  return bytes;
}

/** Upper bound of the bytes of the plain buckets, among reservations that would take `bytes` if all were plain. */
export function plainBytesAtMost(bytes: number): number {
  return Math.min(bytes, MAX_PLAIN_BUCKETS * MOST_PLAIN_BYTES);
}
