/** Asks an owner by a unary gRPC call over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md), without compression. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { isIP, connect as plainConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import { lookupOnce } from "../../shared/runtime/name-lookup.ts";
import { BadProbeResponse, decodeResponse, encodeRequest, type ProbeResponse } from "./message.ts";
import { authorityOf } from "./probe-address.ts";
import {
  describeError,
  IDLE_MS,
  MAX_RESPONSE_BYTES,
  type ProbeClient,
  type ProbeClientOptions,
  ProbeFailure,
} from "./probe-client.ts";
import type { ProbeRequest } from "./probe-request.ts";

const METHOD_PATH = "/disruptionprobe.v1.DisruptionProbeService/IsDisruptionAllowed";

const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH, HTTP2_HEADER_STATUS, NGHTTP2_CANCEL } = constants;
/** The compressed flag and the length, which precede each message. */
const PREFIX_BYTES = 5;
const OK = "0";
const UNIMPLEMENTED = "12";
/** Node's bound of the memory of one connection. */
const MAX_SESSION_MEMORY_MB = 1;
const MAX_HEADER_PAIRS = 64;

function frame(message: Buffer): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** The one message of a body. Throws {@link BadProbeResponse}. */
function unframe(body: Buffer): Buffer {
  if (body.length < PREFIX_BYTES) throw new BadProbeResponse("the answer holds no message");
  if (body[0] !== 0) throw new BadProbeResponse("the answer is compressed without having been asked for");
  if (body.readUInt32BE(1) !== body.length - PREFIX_BYTES)
    throw new BadProbeResponse("the answer does not hold exactly one message");
  return body.subarray(PREFIX_BYTES);
}

function textOf(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** Throws unless the headers, or the trailers, say OK. */
function checkStatus(headers: IncomingHttpHeaders, methodPath: string): void {
  const status = textOf(headers, "grpc-status");
  if (status === OK) return;
  if (status === undefined) throw new BadProbeResponse("the answer ended without a gRPC status");
  if (status === UNIMPLEMENTED) throw new BadProbeResponse(`the server does not know ${methodPath} (gRPC status 12)`);
  const detail = textOf(headers, "grpc-message");
  throw new BadProbeResponse(`gRPC status ${status}${detail === undefined ? "" : ` (${decodeText(detail)})`}`);
}

function decodeText(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function checkResponse(headers: IncomingHttpHeaders, methodPath: string): void {
  const status = headers[HTTP2_HEADER_STATUS];
  if (Number(status) !== 200) throw new BadProbeResponse(`HTTP status ${String(status)}`);
  if (!(textOf(headers, "content-type") ?? "").startsWith("application/grpc")) {
    throw new BadProbeResponse("the answer is not gRPC; is something else listening there?");
  }
  // A call that failed at once has no body; its gRPC status is in the headers.
  if (headers["grpc-status"] !== undefined) checkStatus(headers, methodPath);
}

class Call {
  readonly response: Promise<ProbeResponse>;
  hasResponse = false;
  readonly #stream: ClientHttp2Stream;
  readonly #methodPath: string;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** The trailers of the response, or its headers where the call failed at once. */
  #trailers: IncomingHttpHeaders = {};
  readonly #outcome = Promise.withResolvers<ProbeResponse>();

  constructor(session: ClientHttp2Session, methodPath: string, message: Buffer) {
    this.#methodPath = methodPath;
    this.response = this.#outcome.promise;
    this.#stream = session.request({
      [HTTP2_HEADER_METHOD]: "POST",
      [HTTP2_HEADER_PATH]: methodPath,
      "content-type": "application/grpc",
      te: "trailers",
    });
    this.#stream.on("response", (headers) => this.#attempt(() => this.#responded(headers)));
    this.#stream.on("trailers", (headers) => {
      this.#trailers = headers;
    });
    this.#stream.on("data", (chunk: Buffer) => this.#attempt(() => this.#received(chunk)));
    this.#stream.on("end", () => this.#attempt(() => this.#ended()));
    this.#stream.on("error", (error) => this.fail(error));
    this.#stream.on("close", () => this.fail(new ProbeFailure("the connection was closed before the answer")));
    this.#stream.end(message);
  }

  /** Does nothing once the call has ended. */
  fail(error: unknown): void {
    this.#outcome.reject(
      error instanceof BadProbeResponse ? error : new ProbeFailure(describeError(error), { cause: error }),
    );
    this.#stream.close(NGHTTP2_CANCEL);
  }

  #responded(headers: IncomingHttpHeaders): void {
    this.hasResponse = true;
    checkResponse(headers, this.#methodPath);
    if (headers["grpc-status"] !== undefined) this.#trailers = headers;
  }

  #received(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_RESPONSE_BYTES)
      throw new BadProbeResponse(`the answer is larger than ${MAX_RESPONSE_BYTES} bytes`);
    this.#chunks.push(chunk);
  }

  #ended(): void {
    checkStatus(this.#trailers, this.#methodPath);
    this.#outcome.resolve(decodeResponse(unframe(Buffer.concat(this.#chunks, this.#bytes))));
  }

  #attempt(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.fail(error);
    }
  }
}

/** A session that has ended waits for the other side to close the socket, which it may never do. */
class Connection {
  readonly session: ClientHttp2Session;
  readonly #socket: Socket;
  #calls = 0;
  #isRetired = false;

  constructor(session: ClientHttp2Session, socket: Socket) {
    this.session = session;
    this.#socket = socket;
  }

  begin(): void {
    this.#calls++;
  }

  end(): void {
    this.#calls--;
    this.#closeUnused();
  }

  /** Closes the connection once its calls have ended. */
  retire(): void {
    this.#isRetired = true;
    this.#closeUnused();
  }

  #closeUnused(): void {
    if (!this.#isRetired || this.#calls > 0) return;
    this.session.destroy();
    this.#socket.destroy();
  }
}

/** One endpoint, with one connection, which is made when it is needed. */
export class GrpcProbeClient implements ProbeClient {
  readonly #options: ProbeClientOptions;
  readonly #methodPath: string;
  #connection: Connection | undefined;

  /** `methodPath`: another method with the same messages. */
  constructor(options: ProbeClientOptions, methodPath = METHOD_PATH) {
    this.#options = options;
    this.#methodPath = methodPath;
  }

  async ask(request: ProbeRequest, signal: AbortSignal): Promise<ProbeResponse> {
    const message = frame(encodeRequest(request));
    const kept = this.#kept();
    if (kept !== undefined) {
      const call = new Call(kept.session, this.#methodPath, message);
      try {
        return await this.#finish(call, kept, signal);
      } catch (error) {
        // An idle connection may have been lost unnoticed. A probe changes nothing, so the call can be repeated.
        if (signal.aborted || call.hasResponse) throw error;
        this.#retire(kept);
      }
    }
    const connection = this.#connect();
    return await this.#finish(new Call(connection.session, this.#methodPath, message), connection, signal);
  }

  close(): void {
    this.#connection?.session.destroy();
    this.#connection = undefined;
  }

  async #finish(call: Call, connection: Connection, signal: AbortSignal): Promise<ProbeResponse> {
    const giveUp = (): void => {
      // The connection may be half open or stalled, so the next call gets another one.
      this.#retire(connection);
      call.fail(new ProbeFailure("no answer in time"));
    };
    connection.begin();
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return await call.response;
    } finally {
      signal.removeEventListener("abort", giveUp);
      connection.end();
    }
  }

  #retire(connection: Connection): void {
    if (this.#connection === connection) this.#connection = undefined;
    connection.retire();
  }

  #kept(): Connection | undefined {
    const { session } = this.#connection ?? {};
    return session === undefined || session.closed || session.destroyed ? undefined : this.#connection;
  }

  #connect(): Connection {
    const { insecure, endpoint } = this.#options;
    const authority = `${insecure ? "http" : "https"}://${authorityOf(endpoint)}`;
    const socket = this.#open(new URL(authority));
    const session = connect(authority, {
      createConnection: () => socket,
      maxSessionMemory: MAX_SESSION_MEMORY_MB,
      maxHeaderListPairs: MAX_HEADER_PAIRS,
    });
    const connection = new Connection(session, socket);
    const drop = (): void => this.#retire(connection);
    // Each stream reports to its own caller. Without a listener, an error would end the process.
    session.on("error", drop);
    session.on("goaway", drop);
    session.on("close", drop);
    session.setTimeout(IDLE_MS, drop);
    session.unref();
    this.#connection = connection;
    return connection;
  }

  #open({ hostname, port }: URL): Socket {
    const { caBundle, insecure, clientCertificate } = this.#options;
    const host = hostname.replace(/^\[|\]$/g, "");
    const to = { host, lookup: lookupOnce };
    if (insecure) return plainConnect({ ...to, port: Number(port || 80) });
    return tlsConnect({
      ...to,
      port: Number(port || 443),
      ...(isIP(host) === 0 ? { servername: host } : {}),
      ALPNProtocols: ["h2"],
      ...(caBundle === undefined ? {} : { ca: caBundle }),
      ...clientCertificate,
    });
  }
}
