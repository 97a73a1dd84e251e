import type { Bucket } from "../../schema/podprotector.ts";
import { parseMicros } from "../time.ts";

/**
 * Admissions without identity: upstream's compacted bucket, or a packed one that can't be read. It weighs what its counter says
 * until its newest member is settled (design 5.5).
 */
export interface RangeBucket {
  /** As it was read; written back unchanged. */
  readonly bucket: Bucket;
  readonly weight: number;
  /** Unix microseconds. */
  readonly startMicros: number;
  readonly endMicros: number;
}

/** A counter as upstream means it: absent is 1. A negative one would add pods that are not there, so it is 1 too. */
export function counterOf(bucket: Bucket): number {
  const counter = bucket.counter ?? 1;
  return counter < 0 ? 1 : counter;
}

export function rangeOf(bucket: Bucket): RangeBucket {
  const startMicros = parseMicros(bucket.startTime);
  const endMicros = Math.max(startMicros, parseMicros(bucket.endTime));
  return { bucket, weight: counterOf(bucket), startMicros, endMicros };
}

/** Changes whenever the bucket grows, so that growth restarts its settle timer (design 5.2 R3, 5.5). */
export function rangeKey({ bucket, weight }: RangeBucket): string {
  return `range/${bucket.startTime}/${bucket.endTime ?? ""}/${weight}`;
}
