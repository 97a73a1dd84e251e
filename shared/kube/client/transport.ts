/**
 * The port to one kube-apiserver: requests and streams over HTTP, nothing of Kubernetes' JSON. The real one is
 * `https-transport.ts`; the simulation puts its apiserver model behind the same interface.
 */

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export interface ApiRequest {
  readonly method: Method;
  /** Absolute path with query, for example `/api/v1/pods?limit=500`. */
  readonly path: string;
  /** Serialized JSON; the content type defaults to `application/json`. */
  readonly body?: string;
  /** For PATCH: `application/merge-patch+json` and so on. */
  readonly contentType?: string;
  /**
   * For `request`: bound on the whole exchange. For `stream`: bound on the time to the response headers, and from then on
   * the longest silence between two chunks (the client's idle deadline of design 8). Every call has one (design 5.8).
   */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  /** For `request`: nobody reads `managedFields` of the answer, which may come without them; a transport need not heed it. */
  readonly ignoresManagedFields?: boolean;
  /** For `request`: called once with the first characters of the body, while the rest is under way; a transport need not. */
  readonly onBodyBegins?: (head: string) => void;
}

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
   * The body as it arrives. Pulled by the consumer: a slow one slows the sender (TCP flow control) and nothing is buffered
   * without bound. Throws `TransportError` when the connection fails; ends normally when the server ends the body.
   */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Ends the stream from this side; idempotent. */
  close(): void;
}

export interface Transport {
  /** Resolves with any HTTP status; rejects with {@link TransportError} only when there is no complete response. */
  request(request: ApiRequest): Promise<ApiResponse>;
  /** Resolves with the response's headers; rejects like `request`. */
  stream(request: ApiRequest): Promise<ApiStream>;
  /** Closes idle connections and fails the calls that are under way. */
  close(): void;
}

/** Why there was no response; each is a metric label. */
export type TransportErrorTag =
  | "timeout"
  | "aborted"
  | "refused"
  | "reset"
  | "dns"
  | "tls"
  | "credentials"
  | "protocol"
  | "oversized";

/**
 * No (complete) response was had. `sent` tells whether the request may have reached the server: a write with `sent` true
 * has an unknown outcome (design 5.7), one with `sent` false was not made.
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
