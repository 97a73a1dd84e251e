import type { Clock } from "../../runtime/clock.ts";
import { ApiClient, type CallOptions } from "../client/api-client.ts";
import type { ApiResult } from "../client/api-result.ts";
import type { Transport } from "../client/transport.ts";
import { heldLease, type Lease, newLease, parseLease, releasedLease } from "./lease.ts";

export interface LeaseClientOptions {
  readonly transport: Transport;
  readonly clock: Pick<Clock, "nowMs">;
  readonly namespace: string;
  readonly name: string;
  readonly identity: string;
  readonly leaseDurationMs: number;
}

/** The calls for one Lease by one candidate; every write is a compare-and-swap. */
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

  create(call: CallOptions): Promise<ApiResult<Lease>> {
    const body = newLease(this.#options.namespace, this.#options.name, this.#holding());
    return this.#api.create(this.#collection, body, parseLease, call);
  }

  /** Takes or renews it, unless it has changed since `lease`. */
  hold(lease: Lease, call: CallOptions): Promise<ApiResult<Lease>> {
    return this.#api.update(this.#path, heldLease(lease, this.#holding()), parseLease, call);
  }

  /** Gives it up, unless it has changed since `lease`. */
  release(lease: Lease, call: CallOptions): Promise<ApiResult<Lease>> {
    return this.#api.update(this.#path, releasedLease(lease, this.#options.clock.nowMs()), parseLease, call);
  }

  #holding() {
    const { identity, leaseDurationMs, clock } = this.#options;
    return { identity, leaseDurationMs, nowMs: clock.nowMs() };
  }
}
