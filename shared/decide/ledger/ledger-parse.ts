/** Reads buckets: this project's, upstream's, and buckets that one has changed after the other wrote them. */
import { type Bucket, OPERATIONS, type Operation } from "../../schema/podprotector.ts";
import { parseMicros } from "../../schema/time.ts";
import { unpack } from "./pack.ts";
import {
  boundNonces,
  counterOf,
  EARLIER,
  type RangeBucket,
  type Reservation,
  type ReservationRecord,
  rangeOf,
} from "./reservation.ts";

/** Receives the contents of the buckets. */
interface BucketSink {
  /** One reservation, or a part of one. False where a packed reservation can't be kept. */
  add(reservation: Reservation): boolean;
  addRange(range: RangeBucket): void;
  /** A packed text could not be read, or contradicts its counter. */
  unreadable(): void;
}

export function readBuckets(buckets: readonly Bucket[], sink: BucketSink): void {
  for (const bucket of buckets) {
    if (bucket.packed !== undefined) readPacked(bucket, bucket.packed, sink);
    else if (bucket.podUID === undefined || bucket.podUID === "") sink.addRange(rangeOf(bucket));
    else sink.add(reservationOf(bucket, bucket.podUID));
  }
}

/**
 * An unreadable text counts by its counter, as a range. Where a text weighs less than its counter, because another
 * component may have increased the counter, the difference stays as a range: no weight is lost (S7).
 */
function readPacked(bucket: Bucket, packed: string, sink: BucketSink): void {
  const reservations = unpack(packed);
  if (reservations === undefined) {
    sink.unreadable();
    sink.addRange(rangeOf(bucket));
    return;
  }
  let weight = 0;
  for (const reservation of reservations) if (sink.add(reservation)) weight += reservation.weight;
  const missing = counterOf(bucket) - weight;
  if (missing === 0) return;
  sink.unreadable();
  if (missing > 0) {
    // With a UID, the bucket would be read again as a single pod.
    const { packed: _, podUID: __, ...rest } = bucket;
    sink.addRange(rangeOf({ ...rest, counter: missing }));
  }
}

/**
 * A plain bucket. A bucket that upstream wrote or rewrote has no operation, so it counts as an eviction, which R2 does
 * not settle. A bucket of upstream without `paid` was paid for; only this project's pins have a counter and no `paid`.
 */
function reservationOf(bucket: Bucket, uid: string): Reservation {
  const startMicros = parseMicros(bucket.startTime);
  const isForeign = bucket.operation === undefined && bucket.nonce === undefined;
  const record: ReservationRecord = {
    podResourceVersion: bucket.podResourceVersion,
    podGeneration: bucket.podGeneration,
    nonces: noncesOf(bucket.nonce),
    paid: bucket.paid ?? (isForeign && (bucket.counter ?? undefined) === undefined),
    startMicros,
    firstMicros: bucket.firstTime === undefined ? startMicros : Math.min(startMicros, parseMicros(bucket.firstTime)),
  };
  return {
    uid,
    uidHash: undefined,
    podName: bucket.podName === "" ? undefined : bucket.podName,
    weight: counterOf(bucket) === 0 ? 0 : 1,
    records: new Map([[operationOf(bucket.operation), record]]),
  };
}

function noncesOf(text: string | undefined): readonly string[] {
  const nonces = text === undefined ? [] : boundNonces(text.split(",").filter((nonce) => nonce !== ""));
  return nonces.length === 0 ? [EARLIER] : nonces;
}

function operationOf(text: string | undefined): Operation {
  return OPERATIONS.find((operation) => operation === text) ?? "EVICT";
}
