/** A server of Leases with compare-and-swap, behind the transport port. The link of each client can be faulty. */
import {
  type ApiRequest,
  type ApiResponse,
  type Transport,
  TransportError,
} from "../../../shared/kube/client/transport.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import { isRecord } from "../../../shared/schema/check.ts";

/** What happens to one request. */
export type LinkFault =
  | { readonly kind: "none" }
  /** The request and the response arrive late. */
  | { readonly kind: "slow"; readonly requestMs: number; readonly responseMs: number }
  /** The request succeeds, and its response never arrives. */
  | { readonly kind: "responseLost" }
  /** The request never arrives, and is never refused: a half-open connection. */
  | { readonly kind: "hangs" }
  | { readonly kind: "refused" }
  /** Nothing is written, and the answer is 200 with what is stored. */
  | { readonly kind: "unwritten" }
  | { readonly kind: "status"; readonly status: number; readonly retryAfterSeconds?: number };

const LATENCY_MS = 2;

interface Stored {
  version: number;
  object: Record<string, unknown>;
}

export class LeaseServer {
  readonly #ports: Ports;
  readonly #leases = new Map<string, Stored>();
  #version = 100;
  /** False: the namespace of the Leases does not exist. */
  hasNamespace = true;
  /** Sent requests, by client. */
  readonly requests: { readonly client: string; readonly method: string; readonly atMs: number }[] = [];

  constructor(ports: Ports) {
    this.#ports = ports;
  }

  /** `spec` of a lease by name; undefined without such a lease. */
  spec(name: string): Record<string, unknown> | undefined {
    const spec = this.#leases.get(name)?.object.spec;
    return isRecord(spec) ? spec : undefined;
  }

  /** Writes a lease as `kubectl` does. */
  put(name: string, object: Record<string, unknown>): void {
    this.#version += 1;
    this.#leases.set(name, { version: this.#version, object });
  }

  /** Annotates a lease, as a user does: a new version with the same record. */
  touch(name: string): void {
    const stored = this.#leases.get(name);
    if (stored !== undefined) this.put(name, stored.object);
  }

  remove(name: string): void {
    this.#leases.delete(name);
  }

  /** Returns the connection of a client; `fault` decides for each request. */
  connect(client: string, fault: (request: ApiRequest) => LinkFault = () => ({ kind: "none" })): Transport {
    return {
      request: (request) => {
        this.requests.push({ client, method: request.method, atMs: this.#ports.clock.monotonicMs() });
        return this.#carry(request, fault(request));
      },
      stream: () => Promise.reject(new TransportError("protocol", false, "leases are not watched")),
      close: () => {},
    };
  }

  #carry(request: ApiRequest, fault: LinkFault): Promise<ApiResponse> {
    return new Promise((resolve, reject) => {
      const timer = this.#ports.timers.after(request.timeoutMs, () =>
        reject(new TransportError("timeout", true, "no answer in time")),
      );
      request.signal?.addEventListener("abort", () => reject(new TransportError("aborted", true, "given up")));
      const finish = (response: ApiResponse): void => {
        timer.cancel();
        resolve(response);
      };
      void this.#deliver(request, fault, finish, reject);
    });
  }

  async #deliver(
    request: ApiRequest,
    fault: LinkFault,
    finish: (response: ApiResponse) => void,
    reject: (error: Error) => void,
  ): Promise<void> {
    switch (fault.kind) {
      case "hangs":
        return;
      case "refused":
        return reject(new TransportError("refused", false, "connection refused"));
      case "status":
        await sleep(this.#ports, LATENCY_MS);
        return finish(statusOf(fault.status, "", fault.retryAfterSeconds));
      case "responseLost":
        await sleep(this.#ports, LATENCY_MS);
        this.#handle(request);
        return reject(new TransportError("reset", true, "connection reset"));
      default: {
        const { requestMs, responseMs } =
          fault.kind === "slow" ? fault : { requestMs: LATENCY_MS, responseMs: LATENCY_MS };
        await sleep(this.#ports, requestMs);
        const response = this.#handle(fault.kind === "unwritten" ? { ...request, method: "GET" } : request);
        await sleep(this.#ports, responseMs);
        finish(response);
      }
    }
  }

  #handle({ method, path, body }: ApiRequest): ApiResponse {
    const given: unknown = body === undefined ? undefined : JSON.parse(body);
    const name = path.split("/leases/")[1] ?? "";
    if (method === "POST") return this.#create(given, path.split("/")[5] ?? "");
    const stored = this.#leases.get(name);
    if (stored === undefined) return statusOf(404, name);
    if (method === "GET") return respond(200, stored);
    if (!isRecord(given) || !isRecord(given.metadata)) return statusOf(400, name);
    if (given.metadata.resourceVersion !== String(stored.version)) return statusOf(409, name);
    this.put(name, given);
    return respond(200, this.#leases.get(name) ?? stored);
  }

  #create(given: unknown, namespace: string): ApiResponse {
    if (!this.hasNamespace) return statusOf(404, namespace);
    if (!isRecord(given) || !isRecord(given.metadata) || typeof given.metadata.name !== "string")
      return statusOf(400, "");
    const { name } = given.metadata;
    const present = this.#leases.get(name);
    if (present !== undefined) return statusOf(409, name);
    this.put(name, given);
    const stored = this.#leases.get(name);
    return stored === undefined ? statusOf(500, name) : respond(201, stored);
  }
}

function respond(status: number, { object, version }: Stored): ApiResponse {
  const metadata = isRecord(object.metadata) ? object.metadata : {};
  const body = JSON.stringify({ ...object, metadata: { ...metadata, resourceVersion: String(version) } });
  return { status, headers: { "content-type": "application/json" }, body };
}

const REASONS: Readonly<Record<number, string>> = {
  400: "BadRequest",
  404: "NotFound",
  409: "Conflict",
  429: "TooManyRequests",
  500: "InternalError",
};

function statusOf(status: number, name: string, retryAfterSeconds?: number): ApiResponse {
  const details = { name, kind: "leases", retryAfterSeconds };
  const body = JSON.stringify({
    kind: "Status",
    apiVersion: "v1",
    status: "Failure",
    reason: REASONS[status],
    code: status,
    message: REASONS[status],
    details,
  });
  return {
    status,
    headers: {
      "content-type": "application/json",
      ...(retryAfterSeconds === undefined ? {} : { "retry-after": String(retryAfterSeconds) }),
    },
    body,
  };
}
