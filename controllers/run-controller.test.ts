/** Controllers against local servers whose answers hang; the aggregator as a process. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, expect, test } from "vitest";
import { root } from "../scripts/root.ts";
import { systemPorts } from "../shared/runtime/system-ports.ts";
import { GET, startServer } from "../test/support/kube/https-server.ts";
import { LeaseServer } from "../test/support/kube/lease-server.ts";
import { LeaderRunner } from "./run-controller.ts";

const PROTECTORS = 80;
const CONCURRENCY = 64;

/** Protectors without pods, whose status nobody has written yet; a PUT of a status is never answered. */
class HangingServer {
  readonly #http: Server;
  readonly #leases = new LeaseServer(systemPorts).connect("test");
  readonly #written = new Set<Socket>();
  readonly #enough = Promise.withResolvers<void>();
  /** Resolves when as many writes are under way as the option allows. */
  readonly full = this.#enough.promise;
  /** Called at each renewal of the Lease. */
  onRenewal = (): void => {};
  writes = 0;

  constructor() {
    this.#http = createServer((request, response) => void this.#answer(request, response));
  }

  async start(): Promise<string> {
    this.#http.listen(0, "127.0.0.1");
    await once(this.#http, "listening");
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#http.closeAllConnections();
    this.#http.close();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "", url: path = "" } = request;
    const body = await text(request);
    if (path.includes("/leases")) {
      const call = { method: method as "GET", path, ...(body === "" ? {} : { body }), timeoutMs: 60_000 };
      const answer = await this.#leases.request(call);
      response.writeHead(answer.status).end(answer.body);
      if (method === "PUT") this.onRenewal();
    } else if (method === "PUT" && path.includes("/status?")) {
      this.#written.add(request.socket);
      if (++this.writes === CONCURRENCY) this.#enough.resolve();
    } else if (path.includes("watch=1")) {
      response.writeHead(200).flushHeaders();
    } else if (method === "GET" && /\/(pods|podprotectors|configmaps)(\?|$)/.test(path)) {
      response.end(JSON.stringify({ metadata: { resourceVersion: "10" }, items: itemsOf(path) }));
    } else {
      response.writeHead(404).end(JSON.stringify({ kind: "Status", code: 404, reason: "NotFound" }));
    }
  }
}

function itemsOf(path: string): readonly object[] {
  if (!path.includes("/podprotectors")) return [];
  return Array.from({ length: PROTECTORS }, (_, index) => ({
    metadata: { namespace: "default", name: `p${index}`, uid: `u${index}`, resourceVersion: "5", generation: 1 },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: `p${index}` } } },
  }));
}

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const clean of cleanups.splice(0)) clean();
});

function kubeconfig(server: string): string {
  const directory = mkdtempSync(join(tmpdir(), "run-controller-"));
  cleanups.push(() => rmSync(directory, { recursive: true }));
  const path = join(directory, "config");
  const contexts = [{ name: "here", context: { cluster: "c" } }];
  writeFileSync(
    path,
    JSON.stringify({ "current-context": "here", contexts, clusters: [{ name: "c", cluster: { server } }] }),
  );
  return path;
}

test("writes that hang: as many as the option says, the Lease is renewed, and SIGTERM ends the process", async () => {
  const server = new HangingServer();
  cleanups.push(() => server.stop());
  const config = kubeconfig(await server.start());
  const flags = [`--kubeconfig=${config}`, "--cell-id=cell", `--core=core=${config}`, "--core-timeout=60s"];
  const election = ["--retry-period=200ms", "--keep-registration=false"];
  const addresses = ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"];
  const more = [`--core-write-concurrency=${CONCURRENCY}`];
  const main = join(root, "controllers/aggregator/main.ts");
  const child = spawn(process.execPath, [main, ...flags, ...election, ...addresses, ...more]);
  cleanups.push(() => void child.kill("SIGKILL"));
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  const exit = once(child, "exit");
  await Promise.race([server.full, exit.then(async () => Promise.reject(new Error((await output).join("\n"))))]);
  // Two renewals after the last write began: the Lease does not wait for writes.
  for (let renewals = 0; renewals < 2; renewals++)
    await new Promise<void>((resolve) => {
      server.onRenewal = resolve;
    });
  expect(server.writes).toBe(CONCURRENCY);
  child.kill("SIGTERM");
  expect(await exit).toEqual([0, null]);
  expect((await output).join("\n")).not.toContain("grace-exceeded");
});

test("the end of a leadership ends the calls that wait for a connection", async () => {
  const asked = Promise.withResolvers<void>();
  const frozen = await startServer(() => asked.resolve(), { maxRequestSockets: 1 });
  const call = { ...GET, timeoutMs: 3_600_000 };
  // Of another part of the process, which stops later.
  frozen.transport.request(call).catch(() => {});
  await asked.promise;
  const runner = new LeaderRunner(undefined, async (signal) => {
    await Promise.allSettled([1, 2].map(() => frozen.transport.request({ ...call, signal })));
  });
  runner.start();
  await runner.stop();
  expect(frozen.seen.length).toBe(1);
});
