/**
 * The port to one kube-apiserver: requests and streams over HTTP, without Kubernetes' JSON. `https-transport.ts`
 * implements it for real servers, and the simulation for its model of one.
 */

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface ApiRequest {
  readonly method: Method;
  /** Absolute path with query, for example `/api/v1/pods?limit=500`. */
  readonly path: string;
  /** Serialized JSON; the content type defaults to `application/json`. */
  readonly body?: string;
  /** For PATCH: `application/merge-patch+json` and so on. */
  readonly contentType?: string;
  /** For `request`: limit of the whole exchange. For `stream`: of the time to the headers, then of each silence. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  /** For `request`: the caller does not read `managedFields`, and the transport may leave them out. */
  readonly ignoresManagedFields?: boolean;
  /** For `request`: one page of a list, which has connections of its own, so that other requests don't wait for it. */
  readonly isList?: boolean;
  /** Takes a new connection, and closes idle ones: the server behind them lags, and a balancer may choose another. */
  readonly isMoved?: boolean;
  /** For `request`: the transport may call it with the first characters of the body before the rest arrives. */
  readonly onBodyBegins?: (head: string) => void;
}

/** Counted for each part of a body beside its own bytes: a part of a single byte takes half a kilobyte of memory. */
export const PART_BYTES = 512;

export interface ApiResponse {
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface ApiStream {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /**
   * The body as it arrives. The consumer pulls it: a slow consumer slows the server (TCP flow control), and nothing is
   * buffered without bound. Throws `TransportError` when the connection fails; ends normally when the server ends the
   * body.
   */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Ends the stream from this side; idempotent. */
  close(): void;
}

export interface Transport {
  /** Resolves with any HTTP status; rejects with {@link TransportError} only without a complete response. */
  request(request: ApiRequest): Promise<ApiResponse>;
  /** Resolves with the headers of the response; rejects like `request`. */
  stream(request: ApiRequest): Promise<ApiStream>;
  /** Closes idle connections and fails the calls in flight. */
  close(): void;
}

/** The same transport, which shows each response to `look`. */
export function observed(transport: Transport, look: (response: ApiResponse) => void): Transport {
  return {
    async request(request) {
      const response = await transport.request(request);
      look(response);
      return response;
    },
    stream: (request) => transport.stream(request),
    close: () => transport.close(),
  };
}

/** Why there was no response; each is a metric label. */
export const TRANSPORT_ERROR_TAGS = [
  "timeout",
  "aborted",
  "refused",
  "reset",
  "dns",
  "tls",
  "credentials",
  "protocol",
  "oversized",
] as const;
export type TransportErrorTag = (typeof TRANSPORT_ERROR_TAGS)[number];

/**
 * There was no complete response. `sent` tells whether the request may have reached the server: the outcome of a write
 * is then unknown. With `sent` false the write was not made.
 */
export class TransportError extends Error {
  override readonly name = "TransportError";
  readonly tag: TransportErrorTag;
  readonly sent: boolean;
  constructor(tag: TransportErrorTag, sent: boolean, message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = tag;
    this.sent = sent;
  }
}

/** The response has more bytes than the client takes: fewer objects may fit into one. */
export function isOversized(error: unknown): boolean {
  return error instanceof TransportError && error.tag === "oversized";
}

/** The response did not come, or not to its end, within the time of the call. */
export function isTimeout(error: unknown): boolean {
  return error instanceof TransportError && error.tag === "timeout";
}
