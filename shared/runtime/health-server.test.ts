import { once } from "node:events";
import { createServer } from "node:https";
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { type BindAddress, HealthServer, MAX_CONNECTIONS, type ServerFactory } from "./health-server.ts";
import type { CheckResult } from "./lifecycle.ts";

const ANY_PORT = { host: "127.0.0.1", port: 0 };
const servers: HealthServer[] = [];

afterEach(() => Promise.all(servers.splice(0).map((server) => server.stop())));

interface Served {
  readonly healthProbeBindAddress?: BindAddress | null;
  readonly metricsBindAddress?: BindAddress | null;
  readonly readiness?: () => readonly CheckResult[];
  readonly liveness?: () => readonly CheckResult[];
  readonly render?: () => Promise<{ contentType: string; body: string }>;
}

function renderUp(): Promise<{ contentType: string; body: string }> {
  return Promise.resolve({ contentType: "text/plain; version=0.0.4", body: "podseidon_up 1\n" });
}

async function serve(
  { readiness = () => [], liveness = () => [], render = renderUp, ...bound }: Served = {},
  guarded?: ServerFactory,
) {
  const addresses = { healthProbeBindAddress: ANY_PORT, metricsBindAddress: ANY_PORT, ...bound };
  const server = new HealthServer(addresses, { readiness, liveness }, { render }, guarded);
  servers.push(server);
  await server.start();
  return server;
}

async function get(port: number, path: string, method = "GET"): Promise<{ status: number; body: string }> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method });
  return { status: response.status, body: await response.text() };
}

const ok: CheckResult = { name: "pods", problem: undefined };
const bad: CheckResult = { name: "core-a", problem: "the first list\nis not complete" };

describe("health server", () => {
  it.each([
    { path: "/readyz", checks: [ok], status: 200, body: "ok" },
    { path: "/readyz", checks: [], status: 200, body: "ok" },
    { path: "/readyz?verbose", checks: [ok], status: 200, body: "[+]pods ok\nreadyz check passed\n" },
    {
      path: "/readyz",
      checks: [ok, bad],
      status: 500,
      body: "[+]pods ok\n[-]core-a failed: the first list is not complete\nreadyz check failed\n",
    },
    { path: "/readyz?exclude=core-a", checks: [ok, bad], status: 200, body: "ok" },
    {
      path: "/readyz?exclude=core-a&verbose",
      checks: [ok, bad],
      status: 200,
      body: "[+]pods ok\n[+]core-a excluded: ok\nreadyz check passed\n",
    },
    { path: "/livez", checks: [bad], status: 200, body: "ok" },
    { path: "/healthz", checks: [bad], status: 200, body: "ok" },
  ])("$path with $checks.length checks: $status", async ({ path, checks, status, body }) => {
    const server = await serve({ readiness: () => checks });
    expect(await get(server.healthPort, path)).toEqual({ status, body });
  });

  it("keeps an unready part alive, and fails liveness for a problem that only a restart repairs", async () => {
    const server = await serve({ liveness: () => [bad] });
    expect((await get(server.healthPort, "/readyz")).status).toBe(200);
    expect((await get(server.healthPort, "/livez")).status).toBe(500);
    expect((await get(server.healthPort, "/healthz")).status).toBe(500);
  });

  it.each([
    { name: "unknown path", path: "/debug", method: "GET", status: 404 },
    { name: "member of Object.prototype", path: "/constructor", method: "GET", status: 404 },
    { name: "wrong method", path: "/readyz", method: "POST", status: 405 },
    { name: "HEAD", path: "/readyz", method: "HEAD", status: 200 },
    { name: "metrics on the health port", path: "/metrics", method: "GET", status: 404 },
  ])("answers $status for $name", async ({ path, method, status }) => {
    const server = await serve();
    expect((await get(server.healthPort, path, method)).status).toBe(status);
  });

  it("serves metrics at their own address, and says when they can't be rendered", async () => {
    const server = await serve();
    expect(await get(server.metricsPort, "/metrics")).toEqual({ status: 200, body: "podseidon_up 1\n" });
    expect((await get(server.metricsPort, "/readyz")).status).toBe(404);
    const broken = await serve({ render: () => Promise.reject(new Error("a collector failed")) });
    expect(await get(broken.metricsPort, "/metrics")).toEqual({ status: 500, body: "Error: a collector failed\n" });
  });

  it("is one server where both addresses are the same, and none where both are off", async () => {
    const first = await serve();
    const address = { host: "127.0.0.1", port: first.healthPort };
    await first.stop();
    const both = await serve({ healthProbeBindAddress: address, metricsBindAddress: address });
    expect(both.healthPort).toBe(both.metricsPort);
    expect((await get(both.healthPort, "/metrics")).status).toBe(200);
    expect((await get(both.healthPort, "/readyz")).status).toBe(200);
    const off = await serve({ healthProbeBindAddress: null, metricsBindAddress: null });
    expect([off.healthPort, off.metricsPort]).toEqual([0, 0]);
  });

  it("says which address is taken and which option chooses another", async () => {
    const first = await serve();
    const metricsBindAddress = { host: "127.0.0.1", port: first.healthPort };
    await expect(serve({ healthProbeBindAddress: null, metricsBindAddress })).rejects.toMatchObject({
      exitCode: 2,
      message:
        `listen EADDRINUSE: address already in use 127.0.0.1:${first.healthPort}; ` +
        "choose another --metrics-bind-address",
    });
  });
});

describe("many connections without requests", () => {
  it("let probes in: the oldest connections are closed", async () => {
    const server = await serve();
    const crowd: Socket[] = [];
    for (let count = 0; count < 2 * MAX_CONNECTIONS; count++) {
      const socket = connect(server.healthPort, "127.0.0.1");
      crowd.push(socket.on("error", () => undefined).resume());
      await once(socket, "connect");
    }
    expect(await get(server.healthPort, "/livez")).toEqual({ status: 200, body: "ok" });
    await expect.poll(() => crowd.filter(({ closed }) => !closed).length).toBeLessThan(MAX_CONNECTIONS);
    for (const socket of crowd) socket.destroy();
  });
});

describe("a flood of requests for the metrics", () => {
  const GET = "GET /metrics HTTP/1.1\r\nHost: metrics\r\n\r\n";
  function counted() {
    const counts = { renders: 0 };
    const render = () => {
      counts.renders++;
      return renderUp();
    };
    return { counts, render };
  }

  it("on one connection, before the first is answered, renders one page and is closed", async () => {
    const { counts, render } = counted();
    const server = await serve({ render });
    const socket = connect(server.metricsPort, "127.0.0.1");
    socket.on("error", () => undefined).resume();
    socket.write(GET.repeat(1_000));
    await once(socket, "close");
    expect((await get(server.metricsPort, "/metrics")).status).toBe(200);
    expect(counts.renders).toBeLessThanOrEqual(2);
  });

  it("on many connections renders one page for all that have arrived", async () => {
    const { counts, render } = counted();
    const server = await serve({ render });
    const crowd: Socket[] = [];
    for (let count = 0; count < MAX_CONNECTIONS / 2; count++) {
      const socket = connect(server.metricsPort, "127.0.0.1");
      crowd.push(socket.on("error", () => undefined));
      await once(socket, "connect");
    }
    for (const socket of crowd) socket.write(GET);
    const answers = await Promise.all(crowd.map(async (socket) => String((await once(socket, "data"))[0])));
    expect(answers.every((answer) => answer.includes("podseidon_up 1"))).toBe(true);
    // The kernel may deliver them in a few portions.
    expect(counts.renders).toBeLessThan(crowd.length / 2);
    for (const socket of crowd) socket.destroy();
  });

  it("answers each request of a connection that waits for its answers", async () => {
    const server = await serve();
    const socket = connect(server.metricsPort, "127.0.0.1");
    for (let count = 0; count < 3; count++) {
      socket.write(GET);
      expect(String((await once(socket, "data"))[0])).toContain("podseidon_up 1");
    }
    socket.destroy();
  });
});

describe("the end of a server with TLS", () => {
  // Node itself would close the connection two minutes later.
  it("does not wait for a connection that has made no handshake", { timeout: 60_000 }, async () => {
    const server = await serve({}, createServer);
    const silent = connect(server.metricsPort, "127.0.0.1");
    silent.on("error", () => undefined).resume();
    await once(silent, "connect");
    await server.stop();
    await expect.poll(() => silent.closed).toBe(true);
  });
});
