/**
 * A unary gRPC call over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md), which is all that the probe needs: one message of a few bytes each way,
 * no compression, no streams.
 */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { BadReply, decodeReply, encodeRequest, type ProbeReply } from "./message.ts";
import type { OwnerQuestion } from "./owner.ts";
import { describeError, IDLE_MS, MAX_REPLY_BYTES, ProbeFailure, type Wire, type WireOptions } from "./probe-client.ts";

export const METHOD_PATH = "/disruptionprobe.v1.DisruptionProbeService/IsDisruptionAllowed";

const { HTTP2_HEADER_METHOD, HTTP2_HEADER_PATH, HTTP2_HEADER_STATUS, NGHTTP2_CANCEL } = constants;
/** Compressed flag and length, before each message. */
const PREFIX_BYTES = 5;
const OK = "0";
const UNIMPLEMENTED = "12";
/** Node's own bound of what one connection may hold, in megabytes. */
const MAX_SESSION_MEMORY_MB = 1;
const MAX_HEADER_PAIRS = 64;

/** `host:port`, perhaps behind gRPC's own scheme. */
function authorityOf(endpoint: string): string {
  return endpoint.replace(/^(dns:\/\/\/|dns:|passthrough:\/\/\/)/, "");
}

function frame(message: Buffer): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** The one message of a body. Throws {@link BadReply}. */
function unframe(body: Buffer): Buffer {
  if (body.length < PREFIX_BYTES) throw new BadReply("the answer holds no message");
  if (body[0] !== 0) throw new BadReply("the answer is compressed, though nobody asked for that");
  if (body.readUInt32BE(1) !== body.length - PREFIX_BYTES) throw new BadReply("the answer holds not just one message");
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
  if (status === undefined) throw new BadReply("the answer ended without a gRPC status");
  if (status === UNIMPLEMENTED) throw new BadReply(`the server does not know ${methodPath} (gRPC status 12)`);
  const detail = textOf(headers, "grpc-message");
  throw new BadReply(`gRPC status ${status}${detail === undefined ? "" : ` (${decodeText(detail)})`}`);
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
  if (Number(status) !== 200) throw new BadReply(`HTTP status ${String(status)}`);
  if (!(textOf(headers, "content-type") ?? "").startsWith("application/grpc")) {
    throw new BadReply("the answer is not gRPC; is something else listening there?");
  }
  // A call that failed at once has no body, and its status among the headers.
  if (headers["grpc-status"] !== undefined) checkStatus(headers, methodPath);
}

/** One call under way on one stream. */
class Call {
  readonly reply: Promise<ProbeReply>;
  /** The server has begun to answer. */
  hasResponse = false;
  readonly #stream: ClientHttp2Stream;
  readonly #methodPath: string;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** Those of the response where the call failed at once. */
  #trailers: IncomingHttpHeaders = {};
  readonly #outcome = Promise.withResolvers<ProbeReply>();

  constructor(session: ClientHttp2Session, methodPath: string, message: Buffer) {
    this.#methodPath = methodPath;
    this.reply = this.#outcome.promise;
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
    this.#outcome.reject(error instanceof BadReply ? error : new ProbeFailure(describeError(error), { cause: error }));
    this.#stream.close(NGHTTP2_CANCEL);
  }

  #responded(headers: IncomingHttpHeaders): void {
    this.hasResponse = true;
    checkResponse(headers, this.#methodPath);
    if (headers["grpc-status"] !== undefined) this.#trailers = headers;
  }

  #received(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_REPLY_BYTES) throw new BadReply(`the answer is larger than ${MAX_REPLY_BYTES} bytes`);
    this.#chunks.push(chunk);
  }

  #ended(): void {
    checkStatus(this.#trailers, this.#methodPath);
    this.#outcome.resolve(decodeReply(unframe(Buffer.concat(this.#chunks, this.#bytes))));
  }

  #attempt(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.fail(error);
    }
  }
}

/** One endpoint; a connection is made when it is first asked, and anew when that one is lost. */
export class GrpcWire implements Wire {
  readonly #options: WireOptions;
  readonly #methodPath: string;
  #session: ClientHttp2Session | undefined;

  /** `methodPath`: another method, whose messages are alike. */
  constructor(options: WireOptions, methodPath = METHOD_PATH) {
    this.#options = options;
    this.#methodPath = methodPath;
  }

  async ask(question: OwnerQuestion, signal: AbortSignal): Promise<ProbeReply> {
    const message = frame(encodeRequest(question));
    const kept = this.#kept();
    if (kept !== undefined) {
      const call = new Call(kept, this.#methodPath, message);
      try {
        return await this.#finish(call, kept, signal);
      } catch (error) {
        // A kept connection may have been lost unnoticed. The question changes nothing, so it can be asked again.
        if (signal.aborted || call.hasResponse) throw error;
        this.#retire(kept);
      }
    }
    const session = this.#connect();
    return await this.#finish(new Call(session, this.#methodPath, message), session, signal);
  }

  close(): void {
    this.#session?.destroy();
    this.#session = undefined;
  }

  async #finish(call: Call, session: ClientHttp2Session, signal: AbortSignal): Promise<ProbeReply> {
    const giveUp = (): void => {
      // Half-open or stalled: the next question gets a connection of its own.
      this.#retire(session);
      call.fail(new ProbeFailure("no answer in time"));
    };
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return await call.reply;
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  #retire(session: ClientHttp2Session): void {
    if (this.#session === session) this.#session = undefined;
    session.close();
  }

  #kept(): ClientHttp2Session | undefined {
    const session = this.#session;
    return session === undefined || session.closed || session.destroyed ? undefined : session;
  }

  #connect(): ClientHttp2Session {
    const { endpoint, caBundle, insecure } = this.#options;
    const session = connect(`${insecure ? "http" : "https"}://${authorityOf(endpoint)}`, {
      maxSessionMemory: MAX_SESSION_MEMORY_MB,
      maxHeaderListPairs: MAX_HEADER_PAIRS,
      ...(caBundle === undefined ? {} : { ca: caBundle }),
    });
    const drop = (): void => {
      if (this.#session === session) this.#session = undefined;
    };
    // Each stream tells its own caller; without a listener it would end the process.
    session.on("error", drop);
    session.on("goaway", drop);
    session.on("close", drop);
    session.setTimeout(IDLE_MS, () => this.#retire(session));
    session.unref();
    this.#session = session;
    return session;
  }
}
