import type { PodProtector, PodProtectorStatus } from "../schema/podprotector.ts";
import type { ApiResult } from "./api-result.ts";
import type { Transport } from "./transport.ts";

/** Every call says how long it may take, and may be given up by a signal. */
export interface CallOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface WriteOptions extends CallOptions {
  /** `dryRun=All`. */
  readonly dryRun?: boolean;
  readonly fieldManager?: string;
}

export type PatchType = "application/merge-patch+json" | "application/json-patch+json" | "application/apply-patch+yaml";

/** The position of a collection as a quorum read shows it, with the monotonic time at which it was asked for. */
export interface ListPosition {
  readonly version: string;
  /** The first object, when there is one. */
  readonly items: readonly unknown[];
}

export interface Preconditions {
  readonly uid?: string;
  readonly resourceVersion?: string;
}

/** Typed calls to one apiserver. Reads are quorum reads. No method throws for an HTTP status or a transport failure. */
export declare class ApiClient {
  constructor(transport: Transport);
  get<T>(path: string, parse: (raw: unknown) => T, options: CallOptions): Promise<ApiResult<T>>;
  create<T>(path: string, body: unknown, parse: (raw: unknown) => T, options: WriteOptions): Promise<ApiResult<T>>;
  update<T>(path: string, body: unknown, parse: (raw: unknown) => T, options: WriteOptions): Promise<ApiResult<T>>;
  patch<T>(
    path: string,
    type: PatchType,
    body: unknown,
    parse: (raw: unknown) => T,
    options: WriteOptions & { readonly force?: boolean },
  ): Promise<ApiResult<T>>;
  delete(
    path: string,
    options: WriteOptions & { readonly preconditions?: Preconditions; readonly gracePeriodSeconds?: number },
  ): Promise<ApiResult<unknown>>;
  /** `limit=1` LIST without resourceVersion: the collection's version now. */
  listPosition(path: string, options: CallOptions): Promise<ApiResult<ListPosition>>;
  getPodProtector(namespace: string, name: string, options: CallOptions): Promise<ApiResult<PodProtector>>;
  /** PUT of `/status` bound to uid and resourceVersion of `metadata`; the body holds nothing but metadata and status. */
  putPodProtectorStatus(
    identity: {
      readonly namespace: string;
      readonly name: string;
      readonly uid: string;
      readonly resourceVersion: string;
    },
    status: PodProtectorStatus,
    options: WriteOptions,
  ): Promise<ApiResult<PodProtector>>;
  /** Live, never from a cache (design 6). `parse` is the pod parser of `shared/schema`. */
  getPod<T>(namespace: string, name: string, parse: (raw: unknown) => T, options: CallOptions): Promise<ApiResult<T>>;
}
