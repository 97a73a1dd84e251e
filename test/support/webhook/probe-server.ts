/**
 * The server that a workload's owner runs for `spec.probe`: x-pdb's gRPC service, the same by HTTP POST, and faults of
 * both. Shares no code with the clients.
 */
import { createServer as createHttpServer, type Server as HttpServer } from "node:http";
import {
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";

const SERVICE_PATH = "/disruptionprobe.v1.DisruptionProbeService/IsDisruptionAllowed";

export interface ReceivedProbe {
  readonly pod_name: string;
  readonly pod_namespace: string;
  readonly xpdb_name: string;
  readonly xpdb_namespace: string;
}

export type Said =
  | { readonly is_allowed: boolean; readonly error?: string }
  /** No response. */
  | "silence"
  /** A gRPC status that is not OK, or HTTP 500, beside a yes. */
  | "failure"
  /** Malformed bytes. */
  | "garbage"
  /** A response without end. */
  | "flood"
  /** The connection ends without a response. */
  | "hang-up"
  /** HTTP 101, which nobody asked for; gRPC has no such thing, and the connection ends. */
  | "switch";

export type ProbeOpinion = (request: ReceivedProbe) => Said | Promise<Said>;

const FIELDS = ["pod_name", "pod_namespace", "xpdb_name", "xpdb_namespace"] as const;

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export class ProbeServer implements AsyncDisposable {
  opinion: ProbeOpinion;
  readonly requests: ReceivedProbe[] = [];
  /** Calls without a response yet, now and at most. */
  active = 0;
  mostActive = 0;
  readonly #grpc: Http2Server | Http2SecureServer;
  readonly #http: HttpServer;
  readonly #sessions = new Set<ServerHttp2Session>();

  private constructor(opinion: ProbeOpinion, certificate: Certificate | undefined) {
    this.opinion = opinion;
    this.#grpc = certificate === undefined ? createServer() : createSecureServer(certificate);
    this.#grpc.on("session", (session: ServerHttp2Session) => {
      this.#sessions.add(session);
      session.on("error", () => undefined);
      session.on("close", () => this.#sessions.delete(session));
    });
    this.#grpc.on("stream", (stream: ServerHttp2Stream, headers) => this.#serve(stream, String(headers[":path"])));
    this.#http = createHttpServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", async () => {
        const said = await this.#hear(JSON.parse(Buffer.concat(chunks).toString()));
        if (said === "silence") return;
        if (said === "hang-up") response.destroy();
        else if (said === "switch") response.writeHead(101, { connection: "upgrade", upgrade: "other" }).end();
        else if (said === "failure") response.writeHead(500).end('{"is_allowed":true}');
        else if (said === "garbage") response.end("yes");
        else if (said === "flood") pour((chunk) => response.write(chunk));
        else response.end(JSON.stringify(said));
      });
    });
  }

  /** Listens on loopback, gRPC with TLS where a certificate is given. */
  static async start(opinion: ProbeOpinion, certificate?: Certificate): Promise<ProbeServer> {
    const server = new ProbeServer(opinion, certificate);
    for (const one of [server.#grpc, server.#http]) {
      await new Promise<void>((resolve) => one.listen(0, "127.0.0.1", resolve));
    }
    return server;
  }

  /** As `spec.probe.endpoint`: for GRPC. */
  get grpcEndpoint(): string {
    return `127.0.0.1:${portOf(this.#grpc)}`;
  }

  /** For HTTP. */
  get httpEndpoint(): string {
    return `http://127.0.0.1:${portOf(this.#http)}/probe`;
  }

  /** Serves HTTP at this port, too: the server that was down is up. */
  async listenHttpAt(port: number): Promise<void> {
    await new Promise<void>((resolve) => this.#http.close(() => resolve()));
    await new Promise<void>((resolve) => this.#http.listen(port, "127.0.0.1", resolve));
  }

  get connections(): number {
    return this.#sessions.size;
  }

  /** Ends every connection, as a restart does. */
  disconnect(): void {
    for (const session of this.#sessions) session.destroy();
    this.#http.closeAllConnections();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect();
    await Promise.all([this.#grpc, this.#http].map((one) => new Promise((resolve) => one.close(resolve))));
  }

  async #hear(request: ReceivedProbe): Promise<Said> {
    this.requests.push(request);
    this.active++;
    this.mostActive = Math.max(this.mostActive, this.active);
    try {
      return await this.opinion(request);
    } finally {
      this.active--;
    }
  }

  #serve(stream: ServerHttp2Stream, path: string): void {
    const chunks: Buffer[] = [];
    stream.on("error", () => undefined);
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", async () => {
      if (path !== SERVICE_PATH) {
        stream.respond({ "content-type": "application/grpc", "grpc-status": "12" }, { endStream: true });
        return;
      }
      answer(stream, await this.#hear(readRequest(Buffer.concat(chunks))));
    });
  }
}

function portOf(server: { address(): unknown }): number {
  const address = server.address();
  return typeof address === "object" && address !== null && "port" in address ? Number(address.port) : 0;
}

function answer(stream: ServerHttp2Stream, said: Said): void {
  if (said === "silence" || stream.destroyed) return;
  if (said === "hang-up" || said === "switch") {
    stream.session?.destroy();
    return;
  }
  const status = said === "failure" ? "14" : "0";
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": status, "grpc-message": "not%20today" }));
  if (said === "flood") pour((chunk) => stream.write(chunk));
  else if (said === "garbage") stream.end(Buffer.from([0, 0, 0, 0, 3, 0xff, 0xff, 0xff]));
  else stream.end(writeReply(said === "failure" ? { is_allowed: true } : said));
}

/** More than anybody would take for an answer; stops when nobody listens. */
function pour(write: (chunk: Buffer) => boolean): void {
  const chunk = Buffer.alloc(16 * 1024, 1);
  for (let sent = 0; sent < 256; sent++) write(chunk);
}

/** All fields are strings of fewer than 16,384 bytes. */
function readRequest(body: Buffer): ReceivedProbe {
  const request = { pod_name: "", pod_namespace: "", xpdb_name: "", xpdb_namespace: "" };
  let at = 5;
  while (at < body.length) {
    const field = FIELDS[((body[at++] ?? 0) >> 3) - 1];
    let length = body[at++] ?? 0;
    if (length > 127) length = (length & 127) + (body[at++] ?? 0) * 128;
    if (field !== undefined) request[field] = body.toString("utf8", at, at + length);
    at += length;
  }
  return request;
}

function writeReply({ is_allowed, error = "" }: { is_allowed: boolean; error?: string }): Buffer {
  const text = Buffer.from(error);
  const length = text.length < 128 ? [text.length] : [(text.length & 127) | 128, text.length >> 7];
  const message = Buffer.concat([
    Buffer.from(is_allowed ? [0x08, 1] : []),
    text.length === 0 ? Buffer.alloc(0) : Buffer.from([0x12, ...length]),
    text,
  ]);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}
