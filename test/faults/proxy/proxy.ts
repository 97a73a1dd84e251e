import { once } from "node:events";
import { type AddressInfo, connect as connectTcp, createServer, type Server, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { connect as connectTls, createSecureContext, type SecureContext, TLSSocket } from "node:tls";
import { type RawAnswer, requestHead, serialize } from "../http-wire.ts";
import { Pipe } from "./pipe.ts";

/** A hostile network between a client and one server on loopback. */

export interface ProxyOptions {
  readonly target: { readonly host: string; readonly port: number };
  /**
   * Ends the TLS of both sides, so that the proxy sees requests and can change answers. Without it bytes pass as they
   * are: client certificates work, requests are not seen, and `garbage`, `cutLine` and `answer` have no effect.
   */
  readonly tls?: { readonly certificatePem: string; readonly privateKeyPem: string; readonly targetCaPem: string };
}

/** What happens to the bytes that pass. */
export interface Weather {
  /** Each piece arrives this much later. */
  readonly delayMs?: number;
  /** Both directions together carry no more than this, in pieces of a few bytes. */
  readonly bytesPerMs?: number;
}

/** A request that the proxy has seen (only with `tls`). */
export interface SeenRequest {
  /** Monotonic. */
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
}

export type LineFault =
  /** A whole line that is no JSON follows the next event. */
  | "garbage"
  /** The next event is cut in the middle and its connection is reset. */
  | "cutLine"
  /** The same, in the middle of a UTF-8 character; waits for an event that has one. */
  | "cutCharacter";

interface Connection {
  readonly client: Socket;
  readonly close: (how: "reset" | "end") => void;
  readonly pipes: readonly Pipe[];
}

/** A TCP proxy whose network can be broken and mended while connections are open. */
export class FaultProxy implements AsyncDisposable {
  readonly #options: ProxyOptions;
  readonly #context: SecureContext | undefined;
  readonly #open = new Set<Connection>();
  #server: Server | undefined;
  #port = 0;
  #halfOpen = false;
  #weather: Weather = {};
  #lineFault: LineFault | undefined;
  #lineFaultDone: (() => void) | undefined;
  #answer: { readonly answer: RawAnswer; times: number; readonly only: (path: string) => boolean } | undefined;
  #holding:
    | { readonly only: (request: SeenRequest) => boolean; readonly seen: () => void; readonly go: Promise<void> }
    | undefined;
  readonly requests: SeenRequest[] = [];
  /** The status codes of the server's answers (only with `tls`). */
  readonly statuses: number[] = [];
  /** Monotonic times at which connections came in. */
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

  /** Connections that are open now. */
  get openConnections(): number {
    return this.#open.size;
  }

  /** Ends all open connections by a TCP reset. */
  reset(): void {
    for (const connection of this.#open) connection.close("reset");
  }

  /**
   * Connections stay and are accepted, and nothing passes any more: a router that lost its state, a machine that hangs.
   */
  halfOpen(on: boolean): void {
    this.#halfOpen = on;
    for (const { pipes } of this.#open) for (const pipe of pipes) pipe.hold(on);
    // What was held while the server went on is worthless to it: as in a real network, its end has timed out meanwhile.
    if (!on) this.reset();
  }

  /** Connections are refused, and those that are open are reset. */
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

  weather(weather: Weather): void {
    this.#weather = weather;
    for (const { pipes } of this.#open) for (const pipe of pipes) pipe.weather = weather;
  }

  /** Breaks the next line of a watch that passes; resolves when that has happened. */
  breakNextLine(fault: LineFault): Promise<void> {
    this.#lineFault = fault;
    return new Promise((resolve) => {
      this.#lineFaultDone = resolve;
    });
  }

  /** Answers the next `times` requests itself, instead of the server; 0: no more of them. */
  answerNext(times: number, answer: RawAnswer, only: (path: string) => boolean = () => true): void {
    this.#answer = times > 0 ? { answer, times, only } : undefined;
  }

  /** Keeps the next such request from the server until it is released; `seen` resolves when there is one. */
  holdNext(only: (request: SeenRequest) => boolean): { readonly seen: Promise<void>; readonly release: () => void } {
    const seen = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    this.#holding = { only, seen: seen.resolve, go: go.promise };
    return { seen: seen.promise, release: go.resolve };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.refuse(true);
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
    };
    const toServer = new Pipe(client, server, (bytes) => this.#fromClient(bytes, client));
    const toClient = new Pipe(server, client, (bytes) => this.#fromServer(bytes, connection));
    const connection: Connection = { client, close, pipes: [toServer, toClient] };
    this.#open.add(connection);
    for (const pipe of connection.pipes) {
      pipe.weather = this.#weather;
      pipe.hold(this.#halfOpen);
    }
    for (const socket of [raw, client, server]) {
      socket.on("error", () => close("end"));
      socket.on("close", () => close("end"));
    }
  }

  /** What goes on to the server of `bytes`; nothing when the proxy answers. */
  #fromClient(bytes: Buffer, client: Socket): Buffer | undefined | Promise<Buffer> {
    const head = this.#context && requestHead(bytes);
    if (!head) return bytes;
    const request = { atMs: performance.now(), ...head };
    this.requests.push(request);
    if (this.#holding?.only(request) === true) {
      const { seen, go } = this.#holding;
      this.#holding = undefined;
      seen();
      return go.then(() => bytes);
    }
    const answering = this.#answer;
    if (answering === undefined || !answering.only(head.path)) return bytes;
    if (--answering.times === 0) this.#answer = undefined;
    client.write(serialize(answering.answer));
    return undefined;
  }

  #fromServer(bytes: Buffer, connection: Connection): Buffer {
    const [, status] = /^HTTP\/1\.1 (\d{3}) /.exec(bytes.subarray(0, 13).toString("latin1")) ?? [];
    if (status !== undefined) this.statuses.push(Number(status));
    const fault = this.#lineFault;
    // A watch is sent as one HTTP chunk for each event, and a chunk as one TLS record.
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
    // After the part has been written.
    setImmediate(() => connection.close("end"));
    return bytes.subarray(0, cut);
  }

  #lineFaultHappened(): void {
    this.#lineFault = undefined;
    this.#lineFaultDone?.();
  }
}
