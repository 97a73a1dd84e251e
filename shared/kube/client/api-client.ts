import { GROUP, KIND, PLURAL, VERSION } from "../../schema/annotations.ts";
import type { PodProtector, PodProtectorStatus } from "../../schema/podprotector.ts";
import { parsePodProtector } from "../../schema/podprotector.ts";
import { collectionPath } from "../stream/collection.ts";
import { parseListPage, parseOrCorrupt } from "../stream/raw-object.ts";
import { type ApiResult, failureOf, unavailable } from "./api-result.ts";
import { type ApiRequest, type ApiResponse, type Transport, TransportError } from "./transport.ts";

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

export interface PatchOptions extends WriteOptions {
  /** Apply patches take over fields that others own. */
  readonly force?: boolean;
}

export interface DeleteCallOptions extends WriteOptions {
  readonly preconditions?: Preconditions;
  readonly gracePeriodSeconds?: number;
}

export type PatchType =
  | "application/merge-patch+json"
  | "application/strategic-merge-patch+json"
  | "application/json-patch+json"
  | "application/apply-patch+yaml";

export interface Preconditions {
  readonly uid?: string;
  readonly resourceVersion?: string;
}

/** A collection's version as a quorum read shows it. */
export interface ListPosition {
  readonly version: string;
  /** The first object, when there is one. */
  readonly items: readonly unknown[];
}

/** What a status update is bound to: it is refused (`conflict`) when either has changed. */
export interface ObjectIdentity {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
}

type Parse<T> = (raw: unknown) => T;

export const PODPROTECTORS_PATH = `/apis/${GROUP}/${VERSION}/${PLURAL}`;

/** Path of one PodProtector, or of its subresource. */
export function podProtectorPath(namespace: string, name: string, subresource?: "status"): string {
  const path = `/apis/${GROUP}/${VERSION}/namespaces/${encodeURIComponent(namespace.toWellFormed())}/${PLURAL}/${encodeURIComponent(name.toWellFormed())}`;
  return subresource === undefined ? path : `${path}/${subresource}`;
}

/** Typed calls to one apiserver. Reads are quorum reads. No method throws for an HTTP status or a transport failure. */
export class ApiClient {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A read without resourceVersion: never from a stale cache. */
  get<T>(path: string, parse: Parse<T>, options: CallOptions): Promise<ApiResult<T>> {
    return this.#call({ method: "GET", path, ...callOf(options) }, jsonOf(parse));
  }

  create<T>(path: string, body: unknown, parse: Parse<T>, options: WriteOptions): Promise<ApiResult<T>> {
    return this.#write("POST", path, body, parse, options);
  }

  update<T>(path: string, body: unknown, parse: Parse<T>, options: WriteOptions): Promise<ApiResult<T>> {
    return this.#write("PUT", path, body, parse, options);
  }

  patch<T>(
    path: string,
    contentType: PatchType,
    body: unknown,
    parse: Parse<T>,
    options: PatchOptions,
  ): Promise<ApiResult<T>> {
    const request: ApiRequest = {
      method: "PATCH",
      path: writePath(path, options),
      body: JSON.stringify(body),
      contentType,
      ...callOf(options),
    };
    return this.#call(request, jsonOf(parse));
  }

  /** The result holds what the server answered: the object, or a Status. */
  delete(path: string, options: DeleteCallOptions): Promise<ApiResult<unknown>> {
    const { preconditions, gracePeriodSeconds, dryRun } = options;
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      preconditions,
      gracePeriodSeconds,
      ...(dryRun ? { dryRun: ["All"] } : {}),
    };
    const request: ApiRequest = { method: "DELETE", path, body: JSON.stringify(body), ...callOf(options) };
    return this.#call(
      request,
      jsonOf((raw) => raw),
    );
  }

  /** `limit=1` LIST without resourceVersion: the collection's version now (design 5.2 R3). */
  listPosition(path: string, options: CallOptions): Promise<ApiResult<ListPosition>> {
    const request: ApiRequest = {
      method: "GET",
      path: collectionPath({ path, query: {} }, { limit: 1 }),
      ...callOf(options),
    };
    return this.#call(request, (body) => {
      const page = parseListPage(body);
      return { version: page.resourceVersion, items: page.items };
    });
  }

  getPodProtector(namespace: string, name: string, options: CallOptions): Promise<ApiResult<PodProtector>> {
    return this.get(podProtectorPath(namespace, name), parsePodProtector, options);
  }

  /** PUT of `/status` bound to uid and resourceVersion; the body holds nothing but that and the status. */
  putPodProtectorStatus(
    identity: ObjectIdentity,
    status: PodProtectorStatus,
    options: WriteOptions,
  ): Promise<ApiResult<PodProtector>> {
    const { namespace, name, uid, resourceVersion } = identity;
    const body = {
      apiVersion: `${GROUP}/${VERSION}`,
      kind: KIND,
      metadata: { namespace, name, uid, resourceVersion },
      status,
    };
    return this.update(podProtectorPath(namespace, name, "status"), body, parsePodProtector, options);
  }

  /**
   * Live, never from a cache (design 6). `parse` is the pod parser of `shared/schema`. A name out of a review can have half a character in
   * it, which no path can; no pod is called like what is asked for then.
   */
  getPod<T>(namespace: string, name: string, parse: Parse<T>, options: CallOptions): Promise<ApiResult<T>> {
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace.toWellFormed())}/pods/${encodeURIComponent(name.toWellFormed())}`;
    return this.get(path, parse, options);
  }

  #write<T>(
    method: "POST" | "PUT",
    path: string,
    body: unknown,
    parse: Parse<T>,
    options: WriteOptions,
  ): Promise<ApiResult<T>> {
    const request: ApiRequest = {
      method,
      path: writePath(path, options),
      body: JSON.stringify(body),
      ...callOf(options),
    };
    return this.#call(request, jsonOf(parse));
  }

  async #call<T>(request: ApiRequest, read: (body: string) => T): Promise<ApiResult<T>> {
    let response: ApiResponse;
    try {
      // What is written without them leaves those that are stored as they are.
      response = await this.#transport.request({ ...request, ignoresManagedFields: true });
    } catch (error) {
      return unavailable(error, error instanceof TransportError ? error.sent : true);
    }
    if (response.status < 200 || response.status > 299) {
      return failureOf(response, `${request.method} ${request.path.split("?")[0]}`);
    }
    try {
      return { kind: "ok", object: read(response.body) };
    } catch (error) {
      // The write was made; what came back can't be read.
      return unavailable(error, true, response.status);
    }
  }
}

function jsonOf<T>(parse: Parse<T>): (body: string) => T {
  return (body) => parse(parseOrCorrupt(body, "the answer"));
}

function callOf({ timeoutMs, signal }: CallOptions): Pick<ApiRequest, "timeoutMs" | "signal"> {
  return signal === undefined ? { timeoutMs } : { timeoutMs, signal };
}

function writePath(path: string, { dryRun, fieldManager, force }: PatchOptions): string {
  return collectionPath(
    { path, query: {} },
    { dryRun: dryRun ? "All" : undefined, fieldManager, force: force || undefined },
  );
}
