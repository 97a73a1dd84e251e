import { once } from "node:events";
import { createConnection, type Socket } from "node:net";
import { connect } from "node:tls";
import { afterEach, beforeEach, expect, test } from "vitest";
import { authority, certificate } from "../../test/support/webhook/loopback-certificate.ts";
import type { HttpResponse } from "./call.ts";
import { DISMISSAL, WebhookServer } from "./server.ts";

const REQUEST =
  "POST /webhook/east HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
const MAX = 3;

let server: WebhookServer;
let answer: () => HttpResponse | Promise<HttpResponse>;
const sockets: Socket[] = [];

beforeEach(async () => {
  answer = () => ({ status: 200, body: "{}" });
  server = new WebhookServer({
    certificate,
    pathPrefix: "/webhook",
    cells: new Set(["east"]),
    limits: { requests: 10, bytes: 1_000_000, values: 1_000, connections: MAX },
  });
  server.serve({ handle: () => answer(), rejected: () => undefined, crashed: () => undefined });
  await server.listen(0, "127.0.0.1");
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server.close();
});

function followed<S extends Socket>(socket: S): S {
  sockets.push(socket);
  // A connection that the server ends may be reset.
  socket.on("error", () => undefined).resume();
  return socket;
}

/** A TCP connection without a handshake. */
async function stranger(): Promise<Socket> {
  const socket = followed(createConnection(server.port, "127.0.0.1"));
  await once(socket, "connect");
  return socket;
}

async function caller(): Promise<Socket> {
  const socket = followed(connect({ host: "127.0.0.1", port: server.port, ca: authority.certificatePem }));
  await once(socket, "secureConnect");
  return socket;
}

async function request(socket: Socket): Promise<string> {
  socket.write(REQUEST);
  const [said]: unknown[] = await once(socket, "data");
  return String(said);
}

test("a new connection replaces the oldest without a handshake", async () => {
  const crowd: Socket[] = [];
  for (let count = 0; count < 2 * MAX; count++) crowd.push(await stranger());
  for (const socket of crowd.slice(0, MAX)) await expect.poll(() => socket.closed).toBe(true);
  expect(crowd.slice(MAX).map(({ closed }) => closed)).toEqual([false, false, false]);
  expect(await request(await caller())).toMatch(/^HTTP\/1\.1 200 /);
});

test("a connection that has brought a request stays, however many connections without one arrive", async () => {
  const apiserver = await caller();
  expect(await request(apiserver)).toMatch(/^HTTP\/1\.1 200 /);
  const first = await caller();
  for (let count = 0; count < 2 * MAX; count++) await stranger();
  await expect.poll(() => first.closed).toBe(true);
  expect(await request(apiserver)).toMatch(/^HTTP\/1\.1 200 /);
});

test("when all have brought requests, the connection that has been idle for the longest is replaced", async () => {
  const known = [await caller(), await caller(), await caller()];
  for (const socket of [...known, ...known.slice(0, 1)]) await request(socket);
  expect(await request(await caller())).toMatch(/^HTTP\/1\.1 200 /);
  await expect.poll(() => known.map(({ closed }) => closed)).toEqual([false, true, false]);
});

test("a connection with a request in flight stays; when all have one, the new connection is closed", async () => {
  const gate = Promise.withResolvers<void>();
  answer = () => gate.promise.then(() => ({ status: 200, body: "{}" }));
  const known = [await caller(), await caller(), await caller()];
  const responses = known.map(request);
  await expect.poll(() => server.inFlight).toBe(MAX);
  const next = await stranger();
  await expect.poll(() => next.closed).toBe(true);
  gate.resolve();
  for (const one of await Promise.all(responses)) expect(one).toMatch(/^HTTP\/1\.1 200 /);
  // Closed connections no longer count.
  for (const socket of known) socket.destroy();
  expect(await request(await caller())).toMatch(/^HTTP\/1\.1 200 /);
});

test.each([
  ["a decision keeps its connection", 200, "keep-alive"],
  ["a replica that can't decide ends the connection, so that the next request may reach another one", 503, "close"],
])("%s", async (_, status, connection) => {
  answer = () => ({ status, body: "{}" });
  expect((await request(await caller())).toLowerCase()).toContain(`\r\nconnection: ${connection}\r\n`);
});

/** Node itself would close it two minutes later. */
const BEFORE_NODE = { timeout: 60_000 };

test("the end of the server closes a connection that has made no handshake, too", BEFORE_NODE, async () => {
  const silent = await stranger();
  await server.close();
  await expect.poll(() => silent.closed).toBe(true);
});

test("a request that crosses the end of an idle connection gets a response, and no verdict", async () => {
  let decided = 0;
  answer = () => {
    decided++;
    return { status: 200, body: "{}" };
  };
  const socket = await caller();
  expect(await request(socket)).toMatch(/^HTTP\/1\.1 200 /);
  let said = "";
  socket.on("data", (text) => {
    said += text;
    socket.write(REQUEST);
  });
  const closed = once(socket, "close");
  await server.drain();
  await closed;
  // client-go repeats the request at once, on another connection.
  expect(said).toBe(DISMISSAL);
  expect(decided).toBe(1);
});

test("a client that does not close its idle connection keeps no replica from its end", async () => {
  const socket = await caller();
  socket.pause();
  await server.drain();
});
