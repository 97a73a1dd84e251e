import { isUtf8 } from "node:buffer";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Ports } from "../../runtime/clock.ts";
import { hasTooManyValues } from "../../runtime/json-values.ts";
import { AccessError, type ClusterAccess, type Credentials } from "../credentials/cluster-access.ts";
import { type ConnectionKind, ConnectionPool } from "./connection-pool.ts";
import { Deadline } from "./deadline.ts";
import { failed, transportError } from "./https-errors.ts";
import { withoutManagedFields } from "./managed-fields.ts";
import { hopOf, proxyAuthorization } from "./proxy-hop.ts";
import {
  type ApiRequest,
  type ApiResponse,
  type ApiStream,
  PART_BYTES,
  type Transport,
  TransportError,
} from "./transport.ts";

const DEFAULT_REQUEST_SOCKETS = 16;
const DEFAULT_LIST_SOCKETS = 16;
const DEFAULT_STREAM_SOCKETS = 64;
/** Bytes at the start of a body that `onBodyBegins` gets. */
const HEAD_BYTES = 4096;
const DEFAULT_BODY_BYTES = 64 * 1024 * 1024;
/** Largest bodies that may arrive at once: a server that is taken over could send one on each connection. */
const BODIES_AT_ONCE = 2;
/** As in client-go: a frozen server whose kernel takes connections holds no call for longer than this. */
const HANDSHAKE_MS = 10_000;

export interface HttpsTransportOptions {
  readonly ports: Ports;
  /** `User-Agent`, such as `podseidon-webhook/0.1.0`. */
  readonly userAgent: string;
  /** Connections for reads, and as many for writes; lists and streams have their own connections. Default 16. */
  readonly maxRequestSockets?: number;
  /** Connections for pages of lists. Default 16. */
  readonly maxListSockets?: number;
  /** Connections for streams. Default 64. */
  readonly maxStreamSockets?: number;
  /** Largest response body of `request`. Default 64 MiB. */
  readonly maxBodyBytes?: number;
}

/**
 * Makes a transport to one apiserver: HTTP/1.1 with keep-alive. Each call is bounded as a whole, from the credentials
 * to the last byte. After a 401 or a TLS failure the transport reads the credentials again and, when they changed,
 * repeats the call once.
 */
export function createHttpsTransport(access: ClusterAccess, options: HttpsTransportOptions): Transport {
  return new HttpsTransport(access, options);
}

interface Exchange {
  readonly response: IncomingMessage;
  readonly end: () => void;
}

class HttpsTransport implements Transport {
  readonly #access: ClusterAccess;
  readonly #options: HttpsTransportOptions;
  readonly #base: URL;
  readonly #connections: ConnectionPool;
  readonly #closing = new AbortController();
  /** Of the bodies that are arriving. */
  #heldBytes = 0;

  constructor(access: ClusterAccess, options: HttpsTransportOptions) {
    this.#access = access;
    this.#options = options;
    this.#base = new URL(access.server);
    this.#connections = new ConnectionPool({
      base: this.#base,
      maxRequestSockets: options.maxRequestSockets ?? DEFAULT_REQUEST_SOCKETS,
      maxListSockets: options.maxListSockets ?? DEFAULT_LIST_SOCKETS,
      maxStreamSockets: options.maxStreamSockets ?? DEFAULT_STREAM_SOCKETS,
    });
  }

  async request(request: ApiRequest): Promise<ApiResponse> {
    const deadline = this.#deadline(request);
    try {
      const exchange = await this.#exchange(request, kindOf(request), deadline);
      const body = await this.#body(exchange.response, deadline, request);
      return { status: exchange.response.statusCode ?? 0, headers: headersOf(exchange.response), body };
    } finally {
      deadline.cancel();
    }
  }

  async stream(request: ApiRequest): Promise<ApiStream> {
    const deadline = this.#deadline(request);
    try {
      const { response, end } = await this.#exchange(request, "streams", deadline);
      deadline.pause();
      const close = (): void => {
        deadline.cancel();
        end();
      };
      return {
        status: response.statusCode ?? 0,
        headers: headersOf(response),
        chunks: this.#chunks(response, deadline, close),
        close,
      };
    } catch (error) {
      deadline.cancel();
      throw error;
    }
  }

  close(): void {
    this.#closing.abort();
    this.#connections.close();
  }

  #deadline(request: ApiRequest): Deadline {
    return new Deadline(this.#options.ports.timers, request.timeoutMs, [request.signal, this.#closing.signal]);
  }

  /**
   * Resolves with the headers. Tries again after a 401 or a TLS failure if the credentials have changed, and after a
   * connection that was closed while idle.
   */
  async #exchange(request: ApiRequest, kind: ConnectionKind, deadline: Deadline): Promise<Exchange> {
    const credentials = await this.#credentials(deadline);
    const first = await this.#attempt(request, kind, credentials, deadline, true).catch(tlsFailure);
    if (!(first instanceof TransportError) && first.response.statusCode !== 401) return first;
    this.#access.credentials.rejected(credentials);
    const fresh = await this.#credentials(deadline);
    if (first instanceof TransportError) {
      // Without a handshake, the call was not sent. A new token does not repair TLS.
      if (fresh.tls === credentials.tls) throw first;
      return await this.#attempt(request, kind, fresh, deadline, true);
    }
    if (fresh.authorization === credentials.authorization && fresh.tls === credentials.tls) return first;
    // Drains the body so that the connection can be used again, unless the server withholds the body.
    if (first.response.complete) first.response.resume();
    else first.end();
    return await this.#attempt(request, kind, fresh, deadline, true);
  }

  async #credentials(deadline: Deadline): Promise<Credentials> {
    const where = this.#base.host;
    try {
      const { credentials } = this.#access;
      const current = await deadline.race(credentials.current(this.#options.ports.clock.monotonicMs()));
      if (current.tls.proxy !== undefined) await this.#connections.loadTunnels();
      return current;
    } catch (error) {
      if (error instanceof AccessError) {
        throw failed("credentials", false, where, { cause: error, detail: error.message });
      }
      throw deadline.reason(where, "waiting for credentials") ?? transportError(error, false, where);
    }
  }

  async #attempt(
    request: ApiRequest,
    kind: ConnectionKind,
    credentials: Credentials,
    deadline: Deadline,
    mayRepeat: boolean,
  ): Promise<Exchange> {
    const where = this.#base.host;
    const outcome = Promise.withResolvers<IncomingMessage>();
    const state = { sent: false };
    let sending: ClientRequest;
    try {
      sending = this.#create(request, kind, credentials);
    } catch (error) {
      // For example a certificate that OpenSSL rejects.
      throw transportError(error, false, where);
    }
    sending.on("socket", (socket) => {
      const connected = (): void => {
        state.sent = true;
      };
      if (isConnected(socket)) return connected();
      const late = this.#options.ports.timers.after(HANDSHAKE_MS, () => {
        const failure = failed("timeout", false, where, { detail: "connecting" });
        outcome.reject(failure);
        sending.destroy(failure);
      });
      socket.once("close", () => late.cancel());
      socket.once(socket instanceof TLSSocket ? "secureConnect" : "connect", () => {
        late.cancel();
        connected();
      });
    });
    sending.on("response", outcome.resolve);
    sending.on("error", outcome.reject);
    deadline.onExpiry((tag) => {
      const failure = failed(tag, state.sent, where);
      // Otherwise a call that waits for a connection would end only when it gets one.
      outcome.reject(failure);
      sending.destroy(failure);
    });
    sending.end(request.body);
    try {
      const response = await outcome.promise;
      // The reader of the body gets errors after the headers.
      sending.on("error", () => {});
      return { response, end: () => sending.destroy() };
    } catch (error) {
      const failure = transportError(error, state.sent, where);
      const isDead = sending.reusedSocket && (failure.tag === "timeout" || failure.tag === "reset");
      if (isDead) this.#connections.closeIdle();
      const stale = isDead && failure.tag === "reset" && request.method === "GET";
      if (!stale || !mayRepeat || deadline.expired) throw failure;
      return await this.#attempt(request, kind, credentials, deadline, false);
    }
  }

  #create(request: ApiRequest, kind: ConnectionKind, credentials: Credentials): ClientRequest {
    const { authorization, tls, impersonation } = credentials;
    const base = this.#base;
    const hop = hopOf(base, tls);
    const isForwarded = hop !== base;
    const account = isForwarded ? proxyAuthorization(hop) : undefined;
    const secure = hop.protocol === "https:";
    if (request.isMoved) this.#connections.closeIdle();
    const prefix = (isForwarded ? base.origin : "") + base.pathname.replace(/\/$/, "");
    return (secure ? httpsRequest : httpRequest)({
      protocol: hop.protocol,
      host: hop.hostname.replace(/^\[|\]$/g, ""),
      port: hop.port === "" ? (secure ? 443 : 80) : Number(hop.port),
      method: request.method,
      path: prefix + request.path,
      agent: this.#connections.agent(tls, kind),
      headers: {
        // Like client-go: the keys of the token issuer have another media type.
        accept: "application/json, */*",
        // Without it, whatever is in between may compress an answer.
        "accept-encoding": "identity",
        "user-agent": this.#options.userAgent,
        ...(isForwarded ? { host: base.host } : {}),
        ...(account === undefined ? {} : { "proxy-authorization": account }),
        ...(authorization === undefined ? {} : { authorization }),
        ...impersonation,
        ...(request.body === undefined
          ? {}
          : {
              "content-type": request.contentType ?? "application/json",
              "content-length": Buffer.byteLength(request.body),
            }),
      },
    });
  }

  /** Reads by events, because the iterator of `for await` costs a tenth of a whole call. */
  #body(
    response: IncomingMessage,
    deadline: Deadline,
    { ignoresManagedFields, onBodyBegins }: ApiRequest,
  ): Promise<string> {
    const where = this.#base.host;
    const limit = this.#options.maxBodyBytes ?? DEFAULT_BODY_BYTES;
    const parts: Buffer[] = [];
    let bytes = 0;
    let heldBytes = 0;
    deadline.onExpiry((tag) => response.destroy(failed(tag, true, where)));
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        reject(transportError(error, true, where));
        response.destroy();
      };
      response.on("data", (part: Buffer) => {
        bytes += part.length;
        heldBytes += part.length + PART_BYTES;
        this.#heldBytes += part.length + PART_BYTES;
        // Readers of the head only search for ASCII.
        if (parts.length === 0) onBodyBegins?.(part.toString("latin1", 0, HEAD_BYTES));
        if (bytes + parts.length * PART_BYTES > limit || this.#heldBytes > BODIES_AT_ONCE * limit)
          fail(failed("oversized", true, where, { detail: `limit ${limit} bytes` }));
        else parts.push(part);
      });
      response.on("end", () => {
        const all = parts[0] !== undefined && parts.length === 1 ? parts[0] : Buffer.concat(parts, bytes);
        // A connection holds on to its first request, with the response and these listeners.
        parts.length = 0;
        if (hasTooManyValues(all)) return fail(failed("oversized", true, where, { detail: "too many JSON values" }));
        const whole = ignoresManagedFields === true ? withoutManagedFields(all) : all;
        if (isUtf8(whole)) resolve(whole.toString("utf8"));
        else reject(failed("protocol", true, where, { detail: "not UTF-8" }));
      });
      response.on("error", fail);
      // Fires after every body. The promise of a complete body is settled before.
      response.on("close", () => {
        this.#heldBytes -= heldBytes;
        if (!response.readableEnded) fail(new Error("the connection was closed before the end of the answer"));
      });
    });
  }

  async *#chunks(response: IncomingMessage, idle: Deadline, close: () => void): AsyncGenerator<Uint8Array> {
    const where = this.#base.host;
    const chunks: AsyncIterator<unknown> = response[Symbol.asyncIterator]();
    idle.onExpiry((tag) => response.destroy(failed(tag, true, where)));
    try {
      for (;;) {
        // Only the server's silence counts, not the consumer's time.
        idle.restart();
        const next = await chunks.next();
        idle.pause();
        if (next.done === true) return;
        if (next.value instanceof Uint8Array) yield next.value;
      }
    } catch (error) {
      throw transportError(error, true, where);
    } finally {
      // After the end of the body, the connection is back in its pool, and must stay open.
      if (!response.complete || !response.readableEnded) close();
      idle.cancel();
    }
  }
}

function kindOf({ method, isList }: ApiRequest): ConnectionKind {
  if (isList === true) return "lists";
  return method === "GET" ? "reads" : "writes";
}

/** Returns the failure of a handshake. Throws any other error, because TLS can also fail after the request was sent. */
function tlsFailure(error: unknown): TransportError {
  if (error instanceof TransportError && error.tag === "tls" && !error.sent) return error;
  throw error;
}

/** Behind a proxy, a socket counts as connected and has a protocol before the handshake. */
function isShakingHands(socket: TLSSocket): boolean {
  return !socket.getProtocol()?.startsWith("TLS") || ("secureConnecting" in socket && socket.secureConnecting === true);
}

/** True when the connection is established, including TLS. From then on, bytes of the request can be sent. */
function isConnected(socket: Socket): boolean {
  return !socket.connecting && !(socket instanceof TLSSocket && isShakingHands(socket));
}

function headersOf(response: IncomingMessage): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {};
  for (const name in response.headers) {
    const value = response.headers[name];
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(", ") : value;
  }
  return headers;
}
