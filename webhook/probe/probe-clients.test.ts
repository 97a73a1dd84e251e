/** Both clients against a server on real sockets: the contract, and every way to break it. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer as createHttpServer, type ServerResponse } from "node:http";
import { createServer as createHttp2Server, type OutgoingHttpHeaders } from "node:http2";
import { createServer, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { issueCertificate } from "../../shared/certificates/x509.ts";
import { silentResolver } from "../../test/support/runtime/silent-resolver.ts";
import { authority, certificate } from "../../test/support/webhook/loopback-certificate.ts";
import { ProbeServer, type Said } from "../../test/support/webhook/probe-server.ts";
import { GrpcProbeClient } from "./grpc-client.ts";
import { HttpProbeClient } from "./http-client.ts";
import { decodeResponse, encodeRequest, type ProbeResponse, parseResponseJson } from "./message.ts";
import type { ProbeClient } from "./probe-client.ts";
import type { ProbeRequest } from "./probe-request.ts";

const LONG = "n".repeat(300);
const REQUEST: ProbeRequest = {
  probe: { endpoint: "" },
  podNamespace: "data",
  podName: "db-0",
  budgetNamespace: "data",
  budgetName: LONG,
  deadlineMs: 0,
};

let server: ProbeServer;
let said: Said;
const clients: ProbeClient[] = [];

beforeEach(async () => {
  said = { is_allowed: true };
  server = await ProbeServer.start(() => said);
});

afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await server[Symbol.asyncDispose]();
});

function connect(protocol: "GRPC" | "HTTP"): ProbeClient {
  const made =
    protocol === "GRPC"
      ? new GrpcProbeClient({ endpoint: server.grpcEndpoint, caBundle: undefined, insecure: true })
      : new HttpProbeClient({ endpoint: server.httpEndpoint, caBundle: undefined, insecure: true });
  clients.push(made);
  return made;
}

function ask(on: ProbeClient, signal = new AbortController().signal): Promise<ProbeResponse> {
  return on.ask(REQUEST, signal);
}

describe.each(["GRPC", "HTTP"] as const)("%s", (protocol) => {
  test("the request holds the names, the response is understood, and one connection serves many calls", async () => {
    const on = connect(protocol);
    expect(await ask(on)).toEqual({ isAllowed: true, error: "" });
    expect(server.requests).toEqual([
      { pod_name: "db-0", pod_namespace: "data", xpdb_name: LONG, xpdb_namespace: "data" },
    ]);
    said = { is_allowed: false, error: "leader of 3 shards" };
    expect(await ask(on)).toEqual({ isAllowed: false, error: "leader of 3 shards" });
    await Promise.all(Array.from({ length: 20 }, () => ask(on)));
    if (protocol === "GRPC") expect(server.connections).toBe(1);
  });

  test.each<[Said, RegExp]>([
    ["failure", /gRPC status 14 \(not today\)|HTTP status 500/],
    ["garbage", /cut off|malformed|unknown kind|not JSON/],
    ["flood", /larger than 65536 bytes/],
    ["hang-up", /closed|ECONNRESET|socket hang up|ended without a gRPC status/],
    ["switch", /closed|ended without a gRPC status/],
  ])("%s rejects, and the next call is served", async (what, message) => {
    const on = connect(protocol);
    said = what;
    await expect(ask(on)).rejects.toThrow(message);
    said = { is_allowed: true };
    expect(await ask(on)).toMatchObject({ isAllowed: true });
  });

  test("the signal ends a call without a response, and the next call gets another connection", async () => {
    const on = connect(protocol);
    said = "silence";
    const giveUp = new AbortController();
    const asking = ask(on, giveUp.signal);
    while (server.requests.length === 0) await new Promise((resolve) => setImmediate(resolve));
    giveUp.abort();
    await expect(asking).rejects.toThrow("no answer in time");
    said = { is_allowed: true };
    expect(await ask(on)).toMatchObject({ isAllowed: true });
  });

  test("a call that is given up leaves no socket open, though the server never closes its side", async () => {
    const opened: Socket[] = [];
    const note = (message: unknown): void => void opened.push(Reflect.get(Object(message), "socket"));
    const giveUp = new AbortController();
    const mute = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", () => undefined).resume();
      giveUp.abort();
    });
    await once(mute.listen(0, "127.0.0.1"), "listening");
    const endpoint = `127.0.0.1:${String(Reflect.get(Object(mute.address()), "port"))}`;
    const on =
      protocol === "GRPC"
        ? new GrpcProbeClient({ endpoint, caBundle: undefined, insecure: true })
        : new HttpProbeClient({ endpoint: `http://${endpoint}/`, caBundle: undefined, insecure: true });
    clients.push(on);
    subscribe("net.client.socket", note);
    await expect(ask(on, giveUp.signal)).rejects.toThrow("no answer in time");
    unsubscribe("net.client.socket", note);
    mute.close();
    expect(opened.map(({ destroyed }) => destroyed)).toEqual([true]);
  });

  test("a name that no resolver answers is looked up once, however often it is asked for", async () => {
    const { names } = silentResolver();
    const on =
      protocol === "GRPC"
        ? new GrpcProbeClient({ endpoint: "silent.test:1", caBundle: undefined, insecure: true })
        : new HttpProbeClient({ endpoint: "http://silent.test:1/", caBundle: undefined, insecure: true });
    clients.push(on);
    for (let times = 0; times < 3; times++) await expect(ask(on, AbortSignal.timeout(20))).rejects.toThrow("in time");
    expect(names).toEqual(["silent.test"]);
  });

  test("a server that restarts is asked again; an absent server rejects", async () => {
    const on = connect(protocol);
    await ask(on);
    server.disconnect();
    await new Promise((resolve) => setImmediate(resolve));
    expect(await ask(on)).toMatchObject({ isAllowed: true });
    const nowhere =
      protocol === "GRPC"
        ? new GrpcProbeClient({ endpoint: "127.0.0.1:1", caBundle: undefined, insecure: true })
        : new HttpProbeClient({ endpoint: "http://127.0.0.1:1/", caBundle: undefined, insecure: true });
    clients.push(nowhere);
    await expect(ask(nowhere)).rejects.toThrow(/ECONNREFUSED|closed/);
  });
});

test("after a failover, where each idle HTTP connection is reset when it is used, no call fails", async () => {
  const dead = new Set<Socket>();
  const waiting: ServerResponse[] = [];
  const owner = createHttpServer((request, response) => {
    if (dead.has(request.socket)) request.socket.destroy();
    else waiting.push(response);
    if (dead.size > 0 || waiting.length === 8) for (const one of waiting.splice(0)) one.end('{"is_allowed":true}');
  });
  owner.on("connection", (socket) => open.add(socket));
  const open = new Set<Socket>();
  await once(owner.listen(0, "127.0.0.1"), "listening");
  const endpoint = `http://127.0.0.1:${String(Reflect.get(Object(owner.address()), "port"))}`;
  const on = new HttpProbeClient({ endpoint, caBundle: undefined, insecure: true });
  clients.push(on);
  await Promise.all(Array.from({ length: 8 }, () => ask(on)));
  for (const socket of open) dead.add(socket);
  for (let call = 0; call < 8; call++) expect(await ask(on)).toMatchObject({ isAllowed: true });
  for (const socket of open) socket.destroy();
  owner.close();
});

const GRPC = { ":status": 200, "content-type": "application/grpc" };
const YES = [0x08, 1];

test.each<[string, OutgoingHttpHeaders, number[], RegExp]>([
  ["of another HTTP status", { ...GRPC, ":status": 503 }, [0, 0, 0, 0, 2, ...YES], /HTTP status 503/],
  ["of another type", { ...GRPC, "content-type": "text/html" }, [0, 0, 0, 0, 2, ...YES], /not gRPC/],
  ["of no type", { ":status": 200 }, [0, 0, 0, 0, 2, ...YES], /not gRPC/],
  ["whose headers say that it failed", { ...GRPC, "grpc-status": "14" }, [0, 0, 0, 0, 2, ...YES], /gRPC status 14/],
  ["that is compressed", GRPC, [1, 0, 0, 0, 2, ...YES], /compressed/],
  ["that is longer than its message", GRPC, [0, 0, 0, 0, 2, ...YES, 0x08, 0], /exactly one message/],
  ["that ends before its message does", GRPC, [0, 0, 0, 0, 4, ...YES], /exactly one message/],
  ["without a message", GRPC, [0, 0], /no message/],
])("an answer %s is no yes", async (_, headers, bytes, message) => {
  const odd = createHttp2Server();
  odd.on("stream", (stream) => {
    stream.on("error", () => undefined);
    stream.respond(headers, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(Buffer.from(bytes));
  });
  await once(odd.listen(0, "127.0.0.1"), "listening");
  const endpoint = `127.0.0.1:${String(Reflect.get(Object(odd.address()), "port"))}`;
  const on = new GrpcProbeClient({ endpoint, caBundle: undefined, insecure: true });
  clients.push(on);
  await expect(ask(on)).rejects.toThrow(message);
  odd.close();
});

test("a gRPC call that is given up ends no other call of its connection, which takes no new one", async () => {
  const on = connect("GRPC");
  const giveUp = new AbortController();
  const answer = Promise.withResolvers<Said>();
  server.opinion = () => (server.requests.length === 1 ? answer.promise : "silence");
  const asking = ask(on);
  const given = ask(on, giveUp.signal);
  while (server.requests.length < 2) await new Promise((resolve) => setImmediate(resolve));
  giveUp.abort();
  await expect(given).rejects.toThrow("no answer in time");
  server.opinion = () => ({ is_allowed: false });
  expect(await ask(on)).toMatchObject({ isAllowed: false });
  expect(server.connections).toBe(2);
  answer.resolve({ is_allowed: true });
  expect(await asking).toMatchObject({ isAllowed: true });
  expect(server.requests).toHaveLength(3);
});

test("a gRPC server without the service says so", async () => {
  const on = new GrpcProbeClient(
    { endpoint: server.grpcEndpoint, caBundle: undefined, insecure: true },
    "/other.Service/Ask",
  );
  clients.push(on);
  await expect(ask(on)).rejects.toThrow("does not know /other.Service/Ask");
});

test("a client shows its certificate to a server that asks for one", async () => {
  const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
  const own = await issueCertificate(authority, { ...validity, commonName: "webhook", usages: ["client"] });
  const caBundle = authority.certificatePem;
  const strict = { ...certificate, ca: caBundle, requestCert: true, rejectUnauthorized: true };
  await using asked = await ProbeServer.start(() => said, strict);
  const options = { endpoint: asked.grpcEndpoint, caBundle, insecure: false };
  const clientCertificate = { cert: own.certificatePem, key: own.privateKeyPem };
  const on = new GrpcProbeClient({ ...options, clientCertificate });
  const without = new GrpcProbeClient(options);
  clients.push(on, without);
  expect(await ask(on)).toMatchObject({ isAllowed: true });
  await expect(ask(without)).rejects.toThrow();
  expect(asked.requests).toHaveLength(1);
});

test("a client with TLS asks no server without it", async () => {
  const on = new GrpcProbeClient({ endpoint: server.grpcEndpoint, caBundle: undefined, insecure: false });
  clients.push(on);
  await expect(ask(on)).rejects.toThrow();
  expect(server.requests).toEqual([]);
});

test.each<[string, number[]]>([
  ["a length beyond the end", [0x12, 5, 65]],
  ["a number without end", [0x08, ...Array.from({ length: 11 }, () => 0xff)]],
  ["a kind of field that protobuf does not have", [0x0f]],
])("a message with %s is rejected", (_, bytes) => {
  expect(() => decodeResponse(Buffer.from(bytes))).toThrow();
});

test("unknown fields are skipped, and absent fields mean no", () => {
  const bytes = [0x18, 7, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x2a, 1, 65, 0x35, 1, 2, 3, 4, 0x08, 1];
  expect(decodeResponse(Buffer.from(bytes))).toEqual({ isAllowed: true, error: "" });
  expect(decodeResponse(Buffer.alloc(0))).toEqual({ isAllowed: false, error: "" });
  expect(encodeRequest({ ...REQUEST, podName: "a", podNamespace: "", budgetName: "", budgetNamespace: "b" })).toEqual(
    Buffer.from([0x0a, 1, 97, 0x22, 1, 98]),
  );
});

test.each<[string, string]>([
  ['{"is_allowed": true, "error": ""}', "yes"],
  ['{"isAllowed": true}', "yes"],
  ["{}", "no"],
  ['{"is_allowed": "true"}', "neither true nor false"],
  ['{"is_allowed": true, "error": 5}', "not a string"],
  ["[true]", "not a JSON object"],
  ["true", "not a JSON object"],
  ["null", "not a JSON object"],
])("the JSON %s: %s", (text, expected) => {
  if (expected === "yes" || expected === "no") expect(parseResponseJson(text).isAllowed).toBe(expected === "yes");
  else expect(() => parseResponseJson(text)).toThrow(expected);
});
