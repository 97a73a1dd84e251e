import { once } from "node:events";
import { type AddressInfo, connect as connectTcp, createServer, type Server, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { connect as connectTls, createSecureContext, type SecureContext, TLSSocket } from "node:tls";
import { Pipe } from "./pipe.ts";
import { Exchange, writeScorecard } from "./scorecard.ts";

/** A hostile network between a client and one server on this machine. */

interface ProxyOptions {
  readonly target: { readonly host: string; readonly port: number };
  /**
   * Terminates TLS on both sides, so that the proxy sees requests and can change responses. Without it bytes pass
   * unchanged: client certificates work, requests are not seen, and line faults and scripted responses have no effect.
   */
  readonly tls?: { readonly certificatePem: string; readonly privateKeyPem: string; readonly targetCaPem: string };
  /** Whether the storage of the server was put back to an older state before. */
  readonly isRestored?: () => boolean;
}

/** The condition of the network. */
export interface NetworkConditions {
  /** Delay of each chunk. */
  readonly delayMs?: number;
  /** Bandwidth of both directions together, in chunks of a few bytes. */
  readonly bytesPerMs?: number;
}

/** A request that the proxy has seen (only with `tls`). */
interface SeenRequest {
  /** Monotonic. */
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
}

type LineFault =
  /** A line that is no JSON follows the next event. */
  | "garbage"
  /** The next event is cut in the middle, and its connection is reset. */
  | "cutLine"
  /** The same in the middle of a UTF-8 character, at the next event that has one. */
  | "cutCharacter";

interface Connection {
  readonly client: Socket;
  readonly close: (how: "reset" | "end") => void;
  readonly pipes: readonly Pipe[];
  /** The request that is under way, or the last one. */
  exchange: Exchange | undefined;
}

interface Loss {
  readonly what: "request" | "response";
  readonly only: (request: SeenRequest) => boolean;
  readonly happened: () => void;
}

/** A TCP proxy whose network can be broken and repaired while connections are open. */
export class FaultProxy implements AsyncDisposable {
  readonly #options: ProxyOptions;
  readonly #context: SecureContext | undefined;
  readonly #open = new Set<Connection>();
  #server: Server | undefined;
  #port = 0;
  #halfOpen = false;
  #hangsOneIn = 0;
  #idleMs = 0;
  #conditions: NetworkConditions = {};
  #lineFault: LineFault | undefined;
  #lineFaultDone: (() => void) | undefined;
  #losingEvent: { readonly parts: readonly string[]; readonly happened: () => void } | undefined;
  #scripted: { readonly response: RawResponse; times: number; readonly only: (path: string) => boolean } | undefined;
  #holding:
    | { readonly only: (request: SeenRequest) => boolean; readonly seen: () => void; readonly go: Promise<void> }
    | undefined;
  #loss: Loss | undefined;
  /** The connection whose next response is lost. */
  #losing: Connection | undefined;
  #lossHappened: (() => void) | undefined;
  readonly requests: SeenRequest[] = [];
  /** Status codes of the server's responses (only with `tls`). */
  readonly statuses: number[] = [];
  /** Monotonic times of new connections. */
  readonly connections: number[] = [];

  static async start(options: ProxyOptions): Promise<FaultProxy> {
    const proxy = new FaultProxy(options);
    await proxy.#listen();
    return proxy;
  }

  private constructor(options: ProxyOptions) {
    this.#options = options;
    const { tls } = options;
    this.#context = tls && createSecureContext({ cert: tls.certificatePem, key: tls.privateKeyPem });
  }

  get port(): number {
    return this.#port;
  }

  /** `https://127.0.0.1:PORT` */
  get url(): string {
    return `https://127.0.0.1:${this.#port}`;
  }

  /** The open connections. */
  get openConnections(): number {
    return this.#open.size;
  }

  /** Resets all open connections. */
  reset(): void {
    for (const connection of this.#open) connection.close("reset");
  }

  /** Connections stay open and are accepted, and nothing passes: a router that lost its state, or a hanging machine. */
  halfOpen(on: boolean): void {
    this.#halfOpen = on;
    for (const { pipes } of this.#open) for (const pipe of pipes) pipe.hold(on);
    // Held bytes are worthless after the server has moved on: in a real network its end of the connection has timed
    // out.
    if (!on) this.reset();
  }

  /** Refuses connections, and resets the open ones. */
  async refuse(on: boolean): Promise<void> {
    if (on) {
      const server = this.#server;
      this.#server = undefined;
      this.reset();
      if (server !== undefined) {
        server.close();
        await once(server, "close");
      }
    } else if (this.#server === undefined) {
      await this.#listen();
    }
  }

  /** One in so many new connections is accepted, and nothing passes on it: 0 for none. */
  hangOneIn(connections: number): void {
    this.#hangsOneIn = connections;
    if (connections === 0) this.reset();
  }

  /** Resets connections on which nothing was sent for so long, as load balancers do: 0 for none. */
  resetIdle(ms: number): void {
    this.#idleMs = ms;
    if (ms === 0) this.reset();
    else for (const { client } of this.#open) client.setTimeout(ms);
  }

  setConditions(conditions: NetworkConditions): void {
    this.#conditions = conditions;
    for (const { pipes } of this.#open) for (const pipe of pipes) pipe.conditions = conditions;
  }

  /** Breaks the next line of a watch; resolves when that has happened. */
  breakNextLine(fault: LineFault): Promise<void> {
    this.#lineFault = fault;
    return new Promise((resolve) => {
      this.#lineFaultDone = resolve;
    });
  }

  /** The next event of a watch that has all `parts` never arrives; resolves when that has happened. */
  loseNextEvent(...parts: readonly string[]): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#losingEvent = { parts, happened: resolve };
    return promise;
  }

  /**
   * Responds to the next `times` requests in place of the server, also where no server listens; 0: to no more requests.
   */
  respondNext(times: number, response: RawResponse, only: (path: string) => boolean = () => true): void {
    this.#scripted = times > 0 ? { response, times, only } : undefined;
  }

  /** Holds the next matching request until it is released; `seen` resolves when there is one. */
  holdNext(only: (request: SeenRequest) => boolean): { readonly seen: Promise<void>; readonly release: () => void } {
    const seen = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    this.#holding = { only, seen: seen.resolve, go: go.promise };
    return { seen: seen.promise, release: go.resolve };
  }

  /** Resets the connection of the next matching request: before the server has it, or when its response has come. */
  loseNext(what: Loss["what"], only: Loss["only"]): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#loss = { what, only, happened: resolve };
    return promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.refuse(true);
    writeScorecard();
  }

  async #listen(): Promise<void> {
    const server = createServer((socket) => this.#accept(socket));
    server.listen(this.#port, "127.0.0.1");
    await once(server, "listening");
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  #accept(raw: Socket): void {
    this.connections.push(performance.now());
    const { target, tls } = this.#options;
    const client = this.#context ? new TLSSocket(raw, { isServer: true, secureContext: this.#context }) : raw;
    const server = tls
      ? connectTls({ ...target, ca: tls.targetCaPem, ALPNProtocols: ["http/1.1"] })
      : connectTcp(target);
    raw.setNoDelay(true);
    const close = (how: "reset" | "end"): void => {
      if (!this.#open.delete(connection)) return;
      if (how === "reset") raw.resetAndDestroy();
      client.destroy();
      server.destroy();
      for (const pipe of connection.pipes) pipe.close();
      connection.exchange?.closed();
    };
    const toServer = new Pipe(
      client,
      server,
      (bytes) => {
        const passed = this.#fromClient(bytes, connection);
        if (passed !== undefined && server.destroyed) close("reset");
        return passed;
      },
      (bytes) => this.#begin(bytes, connection)?.exchange.closed(),
    );
    const toClient = new Pipe(
      server,
      client,
      (bytes) => this.#fromServer(bytes, connection),
      (bytes) => this.#lost(bytes, connection),
    );
    const connection: Connection = { client, close, pipes: [toServer, toClient], exchange: undefined };
    this.#open.add(connection);
    client.setTimeout(this.#idleMs);
    client.on("timeout", () => close("reset"));
    for (const pipe of connection.pipes) {
      pipe.conditions = this.#conditions;
      pipe.hold(this.#halfOpen || (this.#hangsOneIn > 0 && this.connections.length % this.#hangsOneIn === 0));
    }
    let wasServerThere = false;
    server.once(tls ? "secureConnect" : "connect", () => {
      wasServerThere = true;
    });
    for (const socket of [raw, client, server]) {
      const gone = (): void => {
        // A scripted response needs no server.
        if (socket !== server || wasServerThere || this.#scripted === undefined) close("end");
      };
      socket.on("error", gone);
      socket.on("close", gone);
    }
  }

  /** The part of `bytes` that goes on to the server; nothing when the proxy responds. */
  #fromClient(bytes: Buffer, connection: Connection): Buffer | undefined | Promise<Buffer> {
    const { client } = connection;
    const begun = this.#begin(bytes, connection);
    if (begun === undefined) return bytes;
    const { request, exchange } = begun;
    this.requests.push(request);
    const loss = this.#loss;
    if (loss?.only(request) === true) {
      this.#loss = undefined;
      if (loss.what === "request") {
        connection.close("reset");
        loss.happened();
        return undefined;
      }
      this.#losing = connection;
      this.#lossHappened = loss.happened;
    }
    if (this.#holding?.only(request) === true) {
      const { seen, go } = this.#holding;
      this.#holding = undefined;
      seen();
      return go.then(() => {
        exchange.sent();
        return bytes;
      });
    }
    const scripted = this.#scripted;
    if (scripted === undefined || !scripted.only(request.path)) {
      exchange.sent();
      return bytes;
    }
    exchange.scripted();
    if (--scripted.times === 0) this.#scripted = undefined;
    client.write(serialize(scripted.response));
    return undefined;
  }

  /** A request that begins in these bytes. */
  #begin(bytes: Buffer, connection: Connection): { request: SeenRequest; exchange: Exchange } | undefined {
    const head = this.#context && requestHead(bytes);
    if (!head) return undefined;
    const exchange = new Exchange(head.method, head.path, this.#options.isRestored?.() ?? false);
    connection.exchange = exchange;
    return { request: { atMs: performance.now(), ...head }, exchange };
  }

  /** A response that will not reach its client. */
  #lost(bytes: Buffer, connection: Connection): void {
    const status = statusIn(bytes);
    if (status !== undefined) connection.exchange?.lost(status);
  }

  #fromServer(bytes: Buffer, connection: Connection): Buffer | undefined {
    if (this.#losing === connection) {
      this.#losing = undefined;
      this.#lost(bytes, connection);
      connection.close("reset");
      this.#lossHappened?.();
      return undefined;
    }
    const status = statusIn(bytes);
    if (status !== undefined) {
      this.statuses.push(status);
      connection.exchange?.answered(status);
    }
    const text = bytes.toString("latin1");
    const losing = this.#losingEvent;
    if (losing?.parts.every((part) => text.includes(part)) && isOneChunk(text)) {
      this.#losingEvent = undefined;
      losing.happened();
      return undefined;
    }
    connection.exchange?.streamed(text);
    const fault = this.#lineFault;
    // The server sends a watch event as one HTTP chunk, and a chunk as one TLS record.
    if (fault === undefined || !/^[0-9a-f]+\r\n\{"type"/.test(bytes.subarray(0, 40).toString("latin1"))) return bytes;
    if (fault === "garbage") {
      if (!bytes.subarray(-2).equals(Buffer.from("\r\n"))) return bytes;
      this.#lineFaultHappened();
      return Buffer.concat([bytes, Buffer.from("4\r\n%%%\n\r\n")]);
    }
    const continuation = bytes.findIndex((byte) => (byte & 0xc0) === 0x80);
    if (fault === "cutCharacter" && continuation < 0) return bytes;
    const cut = fault === "cutCharacter" ? continuation : Math.floor(bytes.length / 2);
    this.#lineFaultHappened();
    // After the partial event is written.
    setImmediate(() => connection.close("end"));
    return bytes.subarray(0, cut);
  }

  #lineFaultHappened(): void {
    this.#lineFault = undefined;
    this.#lineFaultDone?.();
  }
}

/** True for one whole HTTP chunk of one line. */
function isOneChunk(text: string): boolean {
  const size = /^([0-9a-f]+)\r\n/.exec(text);
  return size !== null && text.length === size[0].length + Number.parseInt(size[1] ?? "", 16) + 2;
}

/** A scripted response. */
export interface RawResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

const HEAD = /^(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP\/1\.1\r\n/;
/** No request line in these tests is longer. */
const MAX_HEAD_BYTES = 8192;

/** Method and path when `bytes` begins a request. Clients here do not pipeline, so a request begins a chunk. */
function requestHead(bytes: Buffer): { readonly method: string; readonly path: string } | undefined {
  const found = HEAD.exec(bytes.subarray(0, MAX_HEAD_BYTES).toString("latin1"));
  return found?.[1] !== undefined && found[2] !== undefined ? { method: found[1], path: found[2] } : undefined;
}

/** The status of a response that begins in these bytes. */
function statusIn(bytes: Buffer): number | undefined {
  const [, status] = /^HTTP\/1\.1 (\d{3}) /.exec(bytes.subarray(0, 13).toString("latin1")) ?? [];
  return status === undefined ? undefined : Number(status);
}

function serialize({ status, headers = {}, body = "" }: RawResponse): string {
  const lines = Object.entries({
    "content-type": "application/json",
    ...headers,
    "content-length": `${Buffer.byteLength(body)}`,
  });
  return `HTTP/1.1 ${status} Scripted\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n${body}`;
}
