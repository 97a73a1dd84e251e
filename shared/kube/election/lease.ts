/** One Lease (`coordination.k8s.io/v1`): its record, and the calls that take, renew and release it. */
import * as v from "valibot";
import type { Clock } from "../../runtime/clock.ts";
import { ApiClient, type CallOptions } from "../client/api-client.ts";
import type { ApiResult } from "../client/api-result.ts";
import type { Transport } from "../client/transport.ts";

const text = v.nullish(v.string());

/** The fields that an election reads; all others stay unchanged. */
const LeaseSchema = v.looseObject({
  metadata: v.looseObject({ resourceVersion: v.string() }),
  spec: v.nullish(
    v.looseObject({
      holderIdentity: text,
      leaseDurationSeconds: v.nullish(v.number()),
      acquireTime: text,
      renewTime: text,
      leaseTransitions: v.nullish(v.number()),
    }),
  ),
});
export type Lease = v.InferOutput<typeof LeaseSchema>;

/** An int32 in the API: the apiserver would reject a higher number, and no candidate could lead. */
const MAX_TRANSITIONS = 2 ** 31 - 1;

export interface LeaseClientOptions {
  readonly transport: Transport;
  readonly clock: Pick<Clock, "nowMs">;
  readonly namespace: string;
  /** Name of the Lease (docs/design.md#upstream-conventions). */
  readonly name: string;
  /** Unique among all past and present candidates: `POD_RANDOM`. */
  readonly identity: string;
  readonly leaseDurationMs: number;
}

/** The calls of one candidate for one Lease; every write is a compare-and-swap. */
export class LeaseClient {
  readonly #options: LeaseClientOptions;
  readonly #api: ApiClient;
  readonly #collection: string;
  readonly #path: string;

  constructor(options: LeaseClientOptions) {
    this.#options = options;
    this.#api = new ApiClient(options.transport);
    this.#collection = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(options.namespace)}/leases`;
    this.#path = `${this.#collection}/${encodeURIComponent(options.name)}`;
  }

  read(call: CallOptions): Promise<ApiResult<Lease>> {
    return this.#api.get(this.#path, parseLease, call);
  }

  /** Creates the Lease, held by this candidate. */
  create(call: CallOptions): Promise<ApiResult<Lease>> {
    const { namespace, name } = this.#options;
    const time = microTime(this.#options.clock.nowMs());
    const spec = { ...this.#holding(time), acquireTime: time, leaseTransitions: 0 };
    const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { namespace, name }, spec };
    return this.#api.create(this.#collection, body, parseLease, call);
  }

  /** Takes or renews the Lease, unless it has changed since `lease`. */
  hold(lease: Lease, call: CallOptions): Promise<ApiResult<Lease>> {
    const renewTime = differentFrom(lease.spec?.renewTime, this.#options.clock.nowMs());
    const renewed = { ...lease.spec, ...this.#holding(renewTime) };
    const isRenewal = holderOf(lease) === this.#options.identity;
    const leaseTransitions = Math.min((lease.spec?.leaseTransitions ?? 0) + 1, MAX_TRANSITIONS);
    const spec = isRenewal ? renewed : { ...renewed, acquireTime: renewTime, leaseTransitions };
    return this.#api.update(this.#path, { ...lease, spec }, parseLease, call);
  }

  /** Releases the Lease, so that another candidate can take it at once, unless it has changed since `lease`. */
  release(lease: Lease, call: CallOptions): Promise<ApiResult<Lease>> {
    const time = microTime(this.#options.clock.nowMs());
    // The API rejects a duration of 0; client-go releases with 1 as well.
    const released = { holderIdentity: "", leaseDurationSeconds: 1, acquireTime: time, renewTime: time };
    return this.#api.update(this.#path, { ...lease, spec: { ...lease.spec, ...released } }, parseLease, call);
  }

  #holding(renewTime: string) {
    const { identity, leaseDurationMs } = this.#options;
    return { holderIdentity: identity, leaseDurationSeconds: wholeSeconds(leaseDurationMs), renewTime };
  }
}

function parseLease(raw: unknown): Lease {
  return v.parse(LeaseSchema, raw);
}

/** Empty when nobody holds the lease. */
export function holderOf(lease: Lease): string {
  return lease.spec?.holderIdentity ?? "";
}

/** Milliseconds that the holder may be silent, by its own record. */
export function durationMsOf(lease: Lease, fallbackMs: number): number {
  const seconds = lease.spec?.leaseDurationSeconds;
  return seconds == null || seconds <= 0 ? fallbackMs : seconds * 1000;
}

/** Changes only when a holder takes, renews or releases the lease. */
export function recordOf({ spec }: Lease): string {
  return JSON.stringify([
    spec?.holderIdentity,
    spec?.leaseDurationSeconds,
    spec?.acquireTime,
    spec?.renewTime,
    spec?.leaseTransitions,
  ]);
}

function wholeSeconds(durationMs: number): number {
  return Math.max(1, Math.ceil(durationMs / 1000));
}

/** The last three digits and the Z of a `metav1.MicroTime`. */
const MICROS_DIGITS = 4;

/** `metav1.MicroTime` of the wall clock. People read it; no candidate compares it with its own clock. */
function microTime(nowMs: number, micros = 0): string {
  return new Date(nowMs).toISOString().replace("Z", `${String(micros).padStart(3, "0")}Z`);
}

/**
 * Returns a time other than `previous`: candidates time the changes of the record, so a renewal must change it even
 * where the wall clock stands still. Renewals within one millisecond are counted, because a candidate may have missed
 * some of them.
 */
function differentFrom(previous: string | null | undefined, nowMs: number): string {
  const time = microTime(nowMs);
  const withoutMicros = time.slice(0, -MICROS_DIGITS);
  if (previous == null || !previous.startsWith(withoutMicros)) return time;
  const micros = Number(previous.slice(withoutMicros.length, -1));
  return microTime(nowMs, Number.isInteger(micros) ? (micros + 1) % 1000 : 0);
}
