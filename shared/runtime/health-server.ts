import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { CheckResult, Lifecycle } from "./lifecycle.ts";

/** Where to listen. Undefined `host` means every address; for port 0, the system chooses a port. */
export interface BindAddress {
  readonly host: string | undefined;
  readonly port: number;
}

/** Renders the metrics page in the format of Prometheus. */
interface MetricsRenderer {
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
}

/** Null for not served. The same address for both makes one server. Port 0 picks a free port. */
interface HealthAddresses {
  readonly healthProbeBindAddress: BindAddress | null;
  readonly metricsBindAddress: BindAddress | null;
}

/** The open connections of a server, also those without a handshake, which Node does not close with the server. */
const connections = new WeakMap<Server, Set<Socket>>();

/** Creates a server whose connections and requests are bounded by the options. */
export type ServerFactory = (options: ServerOptions, listener: RequestListener) => Server;

type Checks = Pick<Lifecycle, "readiness" | "liveness">;

type Route = (url: URL) => Reply | Promise<Reply>;
interface Reply {
  readonly status: number;
  readonly contentType?: string;
  readonly body: string;
}

/** The exit code for any wrong configuration. */
const EXIT_CONFIGURATION = 2;
/** Probes and scrapes are short. */
const REQUEST_TIMEOUT_MS = 10_000;
/** Beyond this, the connection with the oldest last request is closed. */
export const MAX_CONNECTIONS = 256;

/**
 * The plain HTTP server of `/healthz`, `/livez`, `/readyz` (`?verbose`, `?exclude=CHECK`) and `/metrics`, with the
 * responses of kube-apiserver. `/livez` runs on the same event loop as the work: when the loop hangs, the kubelet's
 * probe times out. Besides, `/livez` reports problems of parts that only a restart solves.
 */
export class HealthServer {
  readonly #addresses: HealthAddresses;
  readonly #checks: Checks;
  readonly #renderer: MetricsRenderer;
  /** The page of the requests that have arrived since the event loop last turned. */
  #page: ReturnType<MetricsRenderer["render"]> | undefined;
  readonly #guarded: ServerFactory | undefined;
  #health: Server | undefined;
  #metrics: Server | undefined;

  /** With `guarded`, which creates it, /metrics has its own server. */
  constructor(addresses: HealthAddresses, checks: Checks, renderer: MetricsRenderer, guarded?: ServerFactory) {
    this.#addresses = addresses;
    this.#checks = checks;
    this.#renderer = renderer;
    this.#guarded = guarded;
  }

  /** The port in use; 0 when nothing is served. */
  get healthPort(): number {
    return portOf(this.#health);
  }

  get metricsPort(): number {
    return portOf(this.#metrics);
  }

  /** Rejects when an address is not available; the message has the remedy. */
  async start(): Promise<void> {
    const { healthProbeBindAddress: healthAddress, metricsBindAddress: metricsAddress } = this.#addresses;
    const checks = this.#checks;
    const metricsRoutes: Record<string, Route> = {
      "/metrics": async () => ({ status: 200, ...(await this.#rendered()) }),
    };
    const healthRoutes: Record<string, Route> = {
      "/healthz": (url) => checked("healthz", checks.liveness(), url),
      "/livez": (url) => checked("livez", checks.liveness(), url),
      "/readyz": (url) => checked("readyz", checks.readiness(), url),
    };
    const shared = this.#guarded === undefined && isSameAddress(healthAddress, metricsAddress);
    if (healthAddress !== null) {
      const routes = shared ? { ...healthRoutes, ...metricsRoutes } : healthRoutes;
      this.#health = await listen(healthAddress, "--health-probe-bind-address", routes);
    }
    if (shared) this.#metrics = this.#health;
    else if (metricsAddress !== null)
      this.#metrics = await listen(metricsAddress, "--metrics-bind-address", metricsRoutes, this.#guarded);
  }

  /** Requests that arrive together get one page: it takes milliseconds, and the work runs on the same event loop. */
  #rendered(): ReturnType<MetricsRenderer["render"]> {
    this.#page ??= new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      this.#page = undefined;
      return this.#renderer.render();
    });
    return this.#page;
  }

  async stop(): Promise<void> {
    const servers = new Set([this.#health, this.#metrics]);
    await Promise.all([...servers].map((server) => server !== undefined && close(server)));
  }
}

function checked(name: string, results: readonly CheckResult[], { searchParams }: URL): Reply {
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

async function listen(
  address: BindAddress,
  option: string,
  routes: Readonly<Record<string, Route>>,
  create: ServerFactory = createServer,
): Promise<Server> {
  const server = create(
    { requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
    oneAtATime((request, response) => {
      void respond(routes, request, response);
    }),
  );
  boundConnections(server);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => {
      const error = new Error(`${cause.message}; choose another ${option}`, { cause });
      reject(Object.assign(error, { exitCode: EXIT_CONFIGURATION }));
    });
    server.listen({ port: address.port, ...(address.host === undefined ? {} : { host: address.host }) }, resolve);
  });
  return server;
}

/**
 * Closes a connection that sends a request before the last one is answered, as neither a kubelet nor Prometheus does:
 * Node parses thousands of such requests in one piece, and holds all of their responses.
 */
function oneAtATime(listener: RequestListener): RequestListener {
  const busy = new WeakSet<Socket>();
  return (request, response) => {
    const { socket } = request;
    if (busy.has(socket)) {
      socket.destroy();
      return;
    }
    busy.add(socket);
    response.once("close", () => busy.delete(socket));
    listener(request, response);
  };
}

/**
 * Closes the oldest connections beyond the limit. `maxConnections` would reject the newest instead: with idle
 * connections, anybody who reaches the port could block the kubelet's probes, and so get a healthy process restarted.
 */
function boundConnections(server: Server): void {
  const sockets = new Set<Socket>();
  connections.set(server, sockets);
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
    // Moves the connection to the end, unless it was closed meanwhile.
    if (sockets.delete(socket)) sockets.add(socket);
  });
}

async function respond(
  routes: Readonly<Record<string, Route>>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const reply = await replyTo(routes, request);
  request.resume();
  response.writeHead(reply.status, {
    "content-type": reply.contentType ?? "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(reply.body),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  response.end(request.method === "HEAD" ? undefined : reply.body);
}

async function replyTo(
  routes: Readonly<Record<string, Route>>,
  { url = "/", method }: IncomingMessage,
): Promise<Reply> {
  const parsed = URL.parse(url, "http://health");
  const route = parsed !== null && Object.hasOwn(routes, parsed.pathname) ? routes[parsed.pathname] : undefined;
  if (parsed === null || route === undefined)
    return { status: 404, body: `not found; served here: ${Object.keys(routes).join(" ")}\n` };
  if (method !== "GET" && method !== "HEAD") return { status: 405, body: "only GET and HEAD\n" };
  try {
    return await route(parsed);
  } catch (error) {
    return { status: 500, body: `${oneLine(String(error))}\n` };
  }
}

async function close(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  for (const socket of connections.get(server) ?? []) socket.destroy();
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
