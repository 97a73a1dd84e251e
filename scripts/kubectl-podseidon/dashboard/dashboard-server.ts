/** Serves page, updates and details on the loopback address, to clients that know the secret in the path. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Ports, Timer } from "../../../shared/runtime/clock.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { version } from "../../../shared/runtime/version.ts";
import { CommandError } from "../invocation/errors.ts";
import { escapeControls } from "../invocation/output.ts";
import type { Board } from "./board.ts";
import { EventStreams, MAX_PAGES, message } from "./event-streams.ts";
import { admit, SECURITY_HEADERS } from "./guard.ts";
import { SLOT_MS } from "./history.ts";
import type { PageFiles } from "./page-files.ts";
import type { DashboardUpdate, Hello, WatchRow } from "./page-messages.ts";

const LOOPBACK = "127.0.0.1";
const UPDATE_EVERY_MS = 500;
/** Longest time without a message: after it, the page knows that the plugin is gone or stopped. */
const SAY_SOMETHING_EVERY_MS = 5_000;
const MAX_CONNECTIONS = 64;
/** Number of parts in the secret, of 48 random bits each. */
const SECRET_PARTS = 4;

export interface DashboardOptions {
  readonly board: Board;
  readonly watches: () => readonly WatchRow[];
  readonly page: PageFiles;
  readonly cores: readonly string[];
  readonly namespace: string | undefined;
  /** 0 for any free port. */
  readonly port: number;
  readonly startedMs: number;
  readonly ports: Ports;
}

export class DashboardServer {
  readonly #options: DashboardOptions;
  readonly #secret: string;
  readonly #streams = new EventStreams();
  readonly #server: Server;
  #timer: Timer | undefined;
  #saidMs = 0;

  private constructor(options: DashboardOptions) {
    const { random } = options.ports;
    this.#options = options;
    this.#secret = Array.from({ length: SECRET_PARTS }, () => random.token()).join("");
    this.#server = createServer((request, response) => this.#answer(request, response));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  static async start(options: DashboardOptions): Promise<DashboardServer> {
    const started = new DashboardServer(options);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    started.#server.once("error", reject).listen(options.port, LOOPBACK, resolve);
    try {
      await promise;
    } catch (error) {
      throw new CommandError(`the dashboard can't listen on ${LOOPBACK}:${options.port}: ${messageOf(error)}`);
    }
    started.#tick();
    return started;
  }

  /** A secret: with the URL, anybody can read the same protectors as the user of the plugin. */
  get url(): string {
    const address: AddressInfo | string | null = this.#server.address();
    const port = typeof address === "object" ? address?.port : undefined;
    return `http://${LOOPBACK}:${port}/${this.#secret}/`;
  }

  get openPages(): number {
    return this.#streams.size;
  }

  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#streams.close();
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  #tick(): void {
    const { board, watches, ports } = this.#options;
    const nowMs = ports.clock.nowMs();
    const update = board.update(nowMs, watches());
    const hasNews = Object.keys(update).length > 1;
    if (hasNews || nowMs - this.#saidMs >= SAY_SOMETHING_EVERY_MS || nowMs < this.#saidMs) {
      this.#saidMs = nowMs;
      if (this.#streams.size > 0) this.#streams.send(message("update", encode(update)));
    }
    this.#timer = ports.timers.after(UPDATE_EVERY_MS, () => this.#tick());
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value);
    const admission = admit(request, this.#secret);
    if (admission.kind === "granted") this.#show(admission.path, response);
    else plain(response, admission.status, admission.why);
  }

  #show(path: string, response: ServerResponse): void {
    const { page } = this.#options;
    // Inherited properties of an object, such as `constructor`, are not files.
    const file = Object.hasOwn(page, path) ? page[path] : undefined;
    if (file !== undefined) response.writeHead(200, { "content-type": file.type }).end(file.text);
    else if (path === "updates") this.#stream(response);
    else if (path.startsWith("protector/")) this.#detail(path.slice("protector/".length), response);
    else plain(response, 404, "there is no such page");
  }

  #stream(response: ServerResponse): void {
    const { board, watches, cores, namespace = "", startedMs, ports } = this.#options;
    const hello: Hello = {
      ...{ version, cores: [...cores], namespace, startedMs, slotMs: SLOT_MS },
      history: [...board.history],
    };
    const begin = function* (): Iterable<string> {
      yield message("hello", encode(hello));
      for (const part of board.parts(ports.clock.nowMs(), watches())) yield message("update", encode(part));
    };
    if (!this.#streams.add(response, begin())) plain(response, 503, `${MAX_PAGES} pages are open already`);
  }

  #detail(path: string, response: ServerResponse): void {
    const { board, ports } = this.#options;
    const detail = board.detail(decoded(path), ports.clock.nowMs());
    if (detail === undefined) plain(response, 404, "there is no such protector any more");
    else response.writeHead(200, { "content-type": "application/json" }).end(encode(detail));
  }
}

function decoded(path: string): string {
  try {
    return path.split("/").map(decodeURIComponent).join("/");
  } catch {
    return "";
  }
}

function plain(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8" }).end(`${text}\n`);
}

/**
 * Tenants write much of the content, so control characters, and characters that reorder a line, are escaped like on a
 * terminal.
 */
function encode(value: Hello | DashboardUpdate | object): string {
  return JSON.stringify(value, (_, field: unknown) => (typeof field === "string" ? escapeControls(field) : field));
}
