import * as v from "valibot";

const optional = v.optional;
const text = v.nullish(v.string());

/** `coordination.k8s.io/v1` Lease, as far as it is read; what else it holds is kept as it is. */
const LeaseSchema = v.looseObject({
  metadata: v.looseObject({ resourceVersion: v.string() }),
  spec: optional(
    v.nullable(
      v.looseObject({
        holderIdentity: text,
        leaseDurationSeconds: v.nullish(v.number()),
        acquireTime: text,
        renewTime: text,
        leaseTransitions: v.nullish(v.number()),
      }),
    ),
  ),
});
export type Lease = v.InferOutput<typeof LeaseSchema>;

/** Throws for what is no Lease. */
export function parseLease(raw: unknown): Lease {
  return v.parse(LeaseSchema, raw);
}

export interface Holding {
  readonly identity: string;
  readonly leaseDurationMs: number;
  /** Wall clock, Unix milliseconds; for people to read, no candidate compares it with its own clock. */
  readonly nowMs: number;
}

/** Empty when nobody holds it. */
export function holderOf(lease: Lease): string {
  return lease.spec?.holderIdentity ?? "";
}

/** How long the holder may be silent, as the holder itself wrote it. */
export function durationMsOf(lease: Lease, fallbackMs: number): number {
  const seconds = lease.spec?.leaseDurationSeconds;
  return seconds == null || seconds <= 0 ? fallbackMs : seconds * 1000;
}

/** Changes whenever a holder takes, renews or releases the lease, and at nothing else. */
export function recordOf({ spec }: Lease): string {
  return JSON.stringify([
    spec?.holderIdentity,
    spec?.leaseDurationSeconds,
    spec?.acquireTime,
    spec?.renewTime,
    spec?.leaseTransitions,
  ]);
}

/** A new Lease, held. */
export function newLease(namespace: string, name: string, { identity, leaseDurationMs, nowMs }: Holding): unknown {
  const time = microTime(nowMs);
  return {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: { namespace, name },
    spec: {
      holderIdentity: identity,
      leaseDurationSeconds: wholeSeconds(leaseDurationMs),
      acquireTime: time,
      renewTime: time,
      leaseTransitions: 0,
    },
  };
}

/** The lease renewed, or taken over when another held it last. */
export function heldLease(lease: Lease, { identity, leaseDurationMs, nowMs }: Holding): Lease {
  const renewTime = differentFrom(lease.spec?.renewTime, nowMs);
  const renewed = {
    ...lease.spec,
    holderIdentity: identity,
    leaseDurationSeconds: wholeSeconds(leaseDurationMs),
    renewTime,
  };
  if (holderOf(lease) === identity) return { ...lease, spec: renewed };
  return {
    ...lease,
    spec: { ...renewed, acquireTime: renewTime, leaseTransitions: (lease.spec?.leaseTransitions ?? 0) + 1 },
  };
}

/** The lease given up: whoever sees it may take it at once. */
export function releasedLease(lease: Lease, nowMs: number): Lease {
  const time = microTime(nowMs);
  // The API refuses a duration of 0; client-go releases with 1 as well.
  return {
    ...lease,
    spec: { ...lease.spec, holderIdentity: "", leaseDurationSeconds: 1, acquireTime: time, renewTime: time },
  };
}

function wholeSeconds(durationMs: number): number {
  return Math.max(1, Math.ceil(durationMs / 1000));
}

/** The last three digits and the Z of a `metav1.MicroTime`. */
const MICROS_DIGITS = 4;

/** `metav1.MicroTime`. */
function microTime(nowMs: number, micros = 0): string {
  return new Date(nowMs).toISOString().replace("Z", `${String(micros).padStart(3, "0")}Z`);
}

/**
 * A renewal must change the record even where the wall clock stands still, because others time the record's changes; and not
 * back to what it was the time before, which they may have seen last. So renewals within one millisecond are counted.
 */
function differentFrom(previous: string | null | undefined, nowMs: number): string {
  const time = microTime(nowMs);
  const withoutMicros = time.slice(0, -MICROS_DIGITS);
  if (previous == null || !previous.startsWith(withoutMicros)) return time;
  const micros = Number(previous.slice(withoutMicros.length, -1));
  return microTime(nowMs, Number.isInteger(micros) ? (micros + 1) % 1000 : 0);
}
