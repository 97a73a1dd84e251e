/**
 * Typed calls to one kube-apiserver. Read in this order: `api-client.ts`, `api-result.ts` (the result of a call),
 * `api-path.ts`, `transport.ts` (the port), `https-transport.ts` (its implementation; connections, deadlines and errors
 * have their own files).
 */
import { GROUP, KIND, VERSION } from "../../schema/annotations.ts";
import { recordOrEmpty } from "../../schema/check.ts";
import {
  type ObjectMeta,
  type PodProtector,
  type PodProtectorStatus,
  parsePodProtector,
} from "../../schema/podprotector.ts";
import { isObjectName, podPath, podProtectorPath, withQuery } from "./api-path.ts";
import { type ApiFailure, type ApiResult, failureOf, MalformedResponse, parseJson, unavailable } from "./api-result.ts";
import { type ApiRequest, type ApiResponse, type Transport, TransportError } from "./transport.ts";

/** Every call has a time limit and can be cancelled. */
export interface CallOptions extends Pick<ApiRequest, "timeoutMs" | "signal" | "isList"> {
  /** The caller needs `managedFields`, which are dropped otherwise. */
  readonly managedFields?: boolean;
}

export interface WriteOptions extends CallOptions {
  /** `dryRun=All`. */
  readonly dryRun?: boolean;
  readonly fieldManager?: string;
}

interface DeleteCallOptions extends WriteOptions {
  readonly preconditions?: { readonly uid: string };
}

export type PatchType =
  | "application/merge-patch+json"
  | "application/strategic-merge-patch+json"
  | "application/apply-patch+yaml"
  | "application/json-patch+json";

/** UID and version are the preconditions of a status update: if either has changed, the result is `conflict`. */
type ObjectIdentity = Pick<ObjectMeta, "namespace" | "name" | "uid" | "resourceVersion">;

type Parse<T> = (raw: unknown) => T;

/** Reads are quorum reads. No method throws for an HTTP status or a transport failure. */
export class ApiClient {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Reads without resourceVersion, so never from a stale cache. */
  get<T>(path: string, parse: Parse<T>, options: CallOptions): Promise<ApiResult<T>> {
    return this.#call({ method: "GET", path, ...callOf(options) }, parse);
  }

  create<T>(path: string, body: unknown, parse: Parse<T>, options: WriteOptions): Promise<ApiResult<T>> {
    return this.#write({ method: "POST", path }, body, parse, options);
  }

  update<T>(path: string, body: unknown, parse: Parse<T>, options: WriteOptions): Promise<ApiResult<T>> {
    return this.#write({ method: "PUT", path }, body, parse, options);
  }

  patch<T>(
    path: string,
    contentType: PatchType,
    body: unknown,
    parse: Parse<T>,
    options: WriteOptions,
  ): Promise<ApiResult<T>> {
    return this.#write({ method: "PATCH", path, contentType }, body, parse, options);
  }

  /** The result contains the server's response: the object, or a Status. */
  delete(path: string, options: DeleteCallOptions): Promise<ApiResult<unknown>> {
    const { preconditions, dryRun } = options;
    const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions, ...(dryRun ? { dryRun: ["All"] } : {}) };
    return this.#call({ method: "DELETE", path, body: JSON.stringify(body), ...callOf(options) }, (raw) => raw);
  }

  getPodProtector(namespace: string, name: string, options: CallOptions): Promise<ApiResult<PodProtector>> {
    return this.#read(podProtectorPath(namespace, name), namespace, name, parsePodProtector, options);
  }

  /** PUT of `/status` with the preconditions uid and resourceVersion. The body has only these and the status. */
  async putPodProtectorStatus(
    identity: ObjectIdentity,
    status: PodProtectorStatus,
    options: WriteOptions,
  ): Promise<ApiResult<PodProtector>> {
    const { namespace = "", name, uid, resourceVersion } = identity;
    const body = {
      apiVersion: `${GROUP}/${VERSION}`,
      kind: KIND,
      metadata: { namespace, name, uid, resourceVersion },
      status,
    };
    const path = podProtectorPath(namespace, name, "status");
    const written = await this.update(path, body, about(namespace, name, parsePodProtector), options);
    return written.kind === "gone" ? await this.#whyNoStatus(identity, options) : written;
  }

  /**
   * Where the CRD has lost its status subresource, kube-apiserver answers 404 for every object. Without this read, the
   * caller would take an existing protector for deleted.
   */
  async #whyNoStatus({ namespace = "", name, uid }: ObjectIdentity, options: CallOptions): Promise<ApiFailure> {
    const read = await this.getPodProtector(namespace, name, options);
    if (read.kind !== "ok") return read;
    if (read.object.metadata.uid !== uid) return { kind: "conflict", message: "the protector was created again" };
    const message = "the core does not serve the status of PodProtectors: apply its CRD again (kubectl apply -k crds)";
    return { kind: "rejected", status: 404, message };
  }

  /**
   * `parse` is the pod parser of `shared/schema`, which not every caller of this client loads. A name may come from a
   * forged admission request: a name that ends the path early would list all pods of the namespace.
   */
  async getPod<T>(namespace: string, name: string, parse: Parse<T>, options: CallOptions): Promise<ApiResult<T>> {
    if (!isObjectName(namespace) || !isObjectName(name)) return { kind: "gone" };
    return await this.#read(podPath(namespace, name), namespace, name, parse, options);
  }

  #read<T>(path: string, namespace: string, name: string, parse: Parse<T>, options: CallOptions) {
    return this.#call({ method: "GET", path, ...callOf(options) }, about(namespace, name, parse), name.toWellFormed());
  }

  #write<T>(
    target: Pick<ApiRequest, "method" | "path" | "contentType">,
    body: unknown,
    parse: Parse<T>,
    options: WriteOptions,
  ): Promise<ApiResult<T>> {
    const { dryRun, fieldManager } = options;
    const path = withQuery(target.path, { dryRun: dryRun ? "All" : undefined, fieldManager });
    return this.#call({ ...target, path, body: JSON.stringify(body), ...callOf(options) }, parse);
  }

  async #call<T>(request: ApiRequest, parse: Parse<T>, name?: string): Promise<ApiResult<T>> {
    let response: ApiResponse;
    try {
      response = await this.#transport.request(request);
    } catch (error) {
      return unavailable(error, error instanceof TransportError ? error.sent : true);
    }
    if (response.status < 200 || response.status > 299) {
      return failureOf(response, `${request.method} ${request.path.split("?")[0]}`, name);
    }
    try {
      return { kind: "ok", object: parse(parseJson(response.body, "the answer")) };
    } catch (error) {
      // The write succeeded, but the response can't be read.
      return unavailable(error, true, response.status);
    }
  }
}

/** A proxy may mix up responses. A response about another object says nothing about this one. */
export function about<T>(namespace: string, name: string, parse: Parse<T>): Parse<T> {
  return (raw) => {
    const metadata = metadataOf(raw);
    if (metadata.name !== name || metadata.namespace !== namespace) throw new MalformedResponse(ANOTHER);
    return parse(raw);
  };
}

/** {@link about} where not every server says of which object a response is, as in a scale. */
export function aboutIfNamed<T>(namespace: string, name: string, parse: Parse<T>): Parse<T> {
  return (raw) => {
    const metadata = metadataOf(raw);
    if ((metadata.name ?? name) !== name || (metadata.namespace ?? namespace) !== namespace)
      throw new MalformedResponse(ANOTHER);
    return parse(raw);
  };
}

const ANOTHER = "the answer is about another object";

function metadataOf(raw: unknown): Readonly<Record<string, unknown>> {
  return recordOrEmpty(recordOrEmpty(raw).metadata);
}

type RequestOptions = Pick<ApiRequest, "timeoutMs" | "signal" | "ignoresManagedFields" | "isList">;

function callOf({ timeoutMs, signal, managedFields, isList = false }: CallOptions): RequestOptions {
  // A write without managedFields does not change the stored ones.
  const call = { timeoutMs, ignoresManagedFields: managedFields !== true, isList };
  return signal === undefined ? call : { ...call, signal };
}
