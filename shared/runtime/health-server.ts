import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { CheckResult } from "./lifecycle.ts";
import type { BindAddress } from "./options/option-types.ts";

/** A metrics page as Prometheus reads it. */
interface MetricsPage {
  readonly contentType: string;
  readonly body: string;
}

export interface HealthServerOptions {
  /** Null: not served. The same address for both is one server. Port 0 picks a free one. */
  readonly healthAddress: BindAddress | null;
  readonly metricsAddress: BindAddress | null;
  readonly readiness: () => readonly CheckResult[];
  readonly liveness: () => readonly CheckResult[];
  readonly metrics: () => Promise<MetricsPage>;
}

/** An address that can't be listened on; the message says what to do. */
class BindError extends Error {
  override readonly name = "BindError";
  readonly code: string;
  /** The configuration can't be used. */
  readonly exitCode = 2;

  constructor(address: BindAddress, option: string, cause: NodeJS.ErrnoException) {
    const shown = `${address.host?.includes(":") ? `[${address.host}]` : (address.host ?? "")}:${address.port}`;
    super(`cannot listen on ${shown}: ${explain(cause)}; choose another ${option}`, { cause });
    this.code = cause.code ?? "UNKNOWN";
  }
}

type Route = (url: URL) => Answer | Promise<Answer>;
interface Answer {
  readonly status: number;
  readonly contentType?: string;
  readonly body: string;
}

/** Probes and scrapes are tiny; whoever takes longer or comes in crowds holds no resources here. */
const REQUEST_TIMEOUT_MS = 10_000;
/** Beyond it the connection that asked for something the longest ago is ended. */
export const MAX_CONNECTIONS = 256;

/**
 * The plain HTTP server of `/healthz`, `/livez`, `/readyz` (`?verbose`, `?exclude=CHECK`) and `/metrics`, as kube-apiserver
 * answers them. That `/livez` is answered at all is the test for a stuck event loop: it is served by the very loop that
 * does the work, so a loop that hangs lets the kubelet's probe run into its timeout. Beyond that, parts report what only a
 * restart mends.
 */
export class HealthServer {
  readonly #options: HealthServerOptions;
  #health: Server | undefined;
  #metrics: Server | undefined;

  constructor(options: HealthServerOptions) {
    this.#options = options;
  }

  /** The port in use; 0 when nothing is served. */
  get healthPort(): number {
    return portOf(this.#health);
  }

  get metricsPort(): number {
    return portOf(this.#metrics);
  }

  /** Rejects with a {@link BindError} when an address can't be had. */
  async start(): Promise<void> {
    const { healthAddress, metricsAddress } = this.#options;
    const metrics: Record<string, Route> = { "/metrics": () => this.#metricsPage() };
    const health: Record<string, Route> = {
      "/healthz": (url) => checked("healthz", this.#options.liveness(), url),
      "/livez": (url) => checked("livez", this.#options.liveness(), url),
      "/readyz": (url) => checked("readyz", this.#options.readiness(), url),
    };
    const shared = isSameAddress(healthAddress, metricsAddress);
    if (healthAddress !== null) {
      this.#health = await listen(
        healthAddress,
        "--health-probe-bind-address",
        shared ? { ...health, ...metrics } : health,
      );
    }
    if (shared) this.#metrics = this.#health;
    else if (metricsAddress !== null) this.#metrics = await listen(metricsAddress, "--metrics-bind-address", metrics);
  }

  async stop(): Promise<void> {
    const servers = new Set([this.#health, this.#metrics]);
    await Promise.all([...servers].map((server) => server !== undefined && close(server)));
  }

  async #metricsPage(): Promise<Answer> {
    const page = await this.#options.metrics();
    return { status: 200, ...page };
  }
}

function checked(name: string, results: readonly CheckResult[], { searchParams }: URL): Answer {
  const excluded = new Set(searchParams.getAll("exclude"));
  const counted = results.filter((result) => !excluded.has(result.name));
  const failed = counted.some(({ problem }) => problem !== undefined);
  if (!failed && !searchParams.has("verbose")) return { status: 200, body: "ok" };
  const lines = results.map((result) => {
    if (excluded.has(result.name)) return `[+]${result.name} excluded: ok`;
    return result.problem === undefined
      ? `[+]${result.name} ok`
      : `[-]${result.name} failed: ${oneLine(result.problem)}`;
  });
  return { status: failed ? 500 : 200, body: `${lines.join("\n")}\n${name} check ${failed ? "failed" : "passed"}\n` };
}

async function listen(address: BindAddress, option: string, routes: Readonly<Record<string, Route>>): Promise<Server> {
  const server = createServer(
    { requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
    (request, response) => {
      void respond(routes, request, response);
    },
  );
  boundConnections(server);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(new BindError(address, option, error)));
    server.listen({ port: address.port, ...(address.host === undefined ? {} : { host: address.host }) }, resolve);
  });
  return server;
}

/**
 * Not by `maxConnections`, which turns the next one away: with idle connections alone anybody who reaches the port could keep the
 * kubelet's probes out, and get a process restarted that is well.
 */
function boundConnections(server: Server): void {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    for (const oldest of sockets) {
      if (sockets.size <= MAX_CONNECTIONS) break;
      sockets.delete(oldest);
      oldest.destroy();
    }
  });
  server.on("request", ({ socket }: IncomingMessage) => {
    // Behind all others; one that was ended meanwhile stays out.
    if (sockets.delete(socket)) sockets.add(socket);
  });
}

async function respond(
  routes: Readonly<Record<string, Route>>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const answer = await answerTo(routes, request);
  request.resume();
  response.writeHead(answer.status, {
    "content-type": answer.contentType ?? "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(answer.body),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  response.end(request.method === "HEAD" ? undefined : answer.body);
}

async function answerTo(
  routes: Readonly<Record<string, Route>>,
  { url = "/", method }: IncomingMessage,
): Promise<Answer> {
  const parsed = URL.parse(url, "http://health");
  const route = parsed !== null && Object.hasOwn(routes, parsed.pathname) ? routes[parsed.pathname] : undefined;
  if (parsed === null || route === undefined)
    return { status: 404, body: `not found; served here: ${Object.keys(routes).join(" ")}\n` };
  if (method !== "GET" && method !== "HEAD") return { status: 405, body: "only GET and HEAD\n" };
  try {
    return await route(parsed);
  } catch (error) {
    return { status: 500, body: `${oneLine(error instanceof Error ? error.message : String(error))}\n` };
  }
}

async function close(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
}

function isSameAddress(a: BindAddress | null, b: BindAddress | null): boolean {
  return a !== null && b !== null && a.port === b.port && a.port !== 0 && a.host === b.host;
}

function portOf(server: Server | undefined): number {
  const address = server?.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ");
}

function explain(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case "EADDRINUSE":
      return "the address is in use by another process";
    case "EACCES":
      return "ports below 1024 need a privilege";
    case "EADDRNOTAVAIL":
      return "this machine has no such address";
    default:
      return error.message;
  }
}
