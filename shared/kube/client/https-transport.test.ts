import type { ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { connect, createServer as createTcpServer, type Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  accessTo,
  authority,
  expiringAtHead,
  failure,
  GET,
  listen,
  material,
  ok,
  plainTransport,
  SECRET,
  serving,
  startServer,
  VALID,
} from "../../../test/support/kube/https-server.ts";
import { silentResolver } from "../../../test/support/runtime/silent-resolver.ts";
import { createCertificateAuthority } from "../../certificates/x509.ts";
import { systemPorts } from "../../runtime/system-ports.ts";
import { createHttpsTransport } from "./https-transport.ts";

describe("request", () => {
  test("sends path, body and credentials; returns any status with lower-case headers", async () => {
    const it = await startServer((request, response) => {
      request.resume();
      response.writeHead(429, { "Retry-After": "3" }).end(JSON.stringify({ grün: "🟢" }));
    });
    const answer = await it.transport.request({ method: "PUT", path: "/api/x?y=1", body: '{"a":1}', timeoutMs: 5000 });
    expect([answer.status, answer.headers["retry-after"], answer.body]).toEqual([429, "3", '{"grün":"🟢"}']);
    expect(it.seen).toEqual([{ authorization: `Bearer ${SECRET}`, url: "/api/x?y=1" }]);
  });

  test("says who asks, as client-go does", async () => {
    const agents: (string | undefined)[] = [];
    const it = await startServer(
      (request, response) => {
        agents.push(request.headers["user-agent"]);
        ok(request, response);
      },
      { userAgent: "podseidon-aggregator/0.1.0" },
    );
    await it.transport.request(GET);
    expect(agents).toEqual(["podseidon-aggregator/0.1.0"]);
  });

  test("asks for answers as they are: without a word, whatever is in between may compress them", async () => {
    const asIs = (encoding: unknown): boolean => encoding === "identity";
    const it = await startServer(({ headers }, to) => to.end(asIs(headers["accept-encoding"]) ? "{}" : gzipSync("{}")));
    expect((await it.transport.request(GET)).body).toBe("{}");
  });

  test("connections are kept and used again", async () => {
    const it = await startServer(ok);
    for (let i = 0; i < 5; i++) await it.transport.request(GET);
    expect(it.sockets.size).toBe(1);
  });

  test.each<[string, string | undefined]>([
    ["directly", undefined],
    ["through a proxy", "http://silent-proxy.test:3128"],
  ])("a name that no resolver answers is looked up once at a time, however many calls wait: %s", async (_, proxy) => {
    const resolver = silentResolver();
    const credentials = { authorization: undefined, tls: material({ proxy }) };
    const access = accessTo("https://silent.test:6443", { credentials, rejections: 0, renewed: undefined });
    const transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "test" });
    onTestFinished(() => transport.close());
    const call = async (timeoutMs: number) => (await failure(transport.request({ ...GET, timeoutMs }))).tag;
    for (let times = 0; times < 3; times++) await Promise.all([call(20), call(20), call(20)]);
    expect(resolver.names).toEqual([proxy === undefined ? "silent.test" : "silent-proxy.test"]);
    const waiting = [call(5_000), call(5_000)];
    setTimeout(resolver.fail, 20);
    expect(await Promise.all(waiting)).toEqual(["dns", "dns"]);
    await call(20);
    expect(resolver.names).toHaveLength(2);
  });

  test("concurrent requests share a bounded number of connections, and streams take none of them", async () => {
    const waiting: ServerResponse[] = [];
    const it = await startServer(
      (request, response) => {
        if (request.url === "/stream") response.write("x\n");
        else waiting.push(response);
      },
      { maxRequestSockets: 2 },
    );
    for (let i = 0; i < 5; i++) await it.transport.stream({ ...GET, path: "/stream" });
    const all = Promise.all([1, 2, 3, 4, 5, 6].map(() => it.transport.request(GET)));
    const serve = setInterval(() => {
      for (const response of waiting.splice(0)) response.end("{}");
    }, 1);
    onTestFinished(() => clearInterval(serve));
    await all;
    expect(it.sockets.size).toBe(5 + 2);
  });

  test.each(["deadline", "signal", "close"])(
    "a call that waits for a connection obeys its %s, and is never sent",
    async (by) => {
      const hanging = Promise.withResolvers<ServerResponse>();
      const it = await startServer(
        (request, response) => {
          if (request.url === "/hang") hanging.resolve(response);
          else response.end("{}");
        },
        { maxRequestSockets: 1 },
      );
      let settled = false;
      const first = it.transport.request({ ...GET, method: "POST", path: "/hang", timeoutMs: 60_000 }).finally(() => {
        settled = true;
      });
      first.catch(() => {});
      const response = await hanging.promise;
      const controller = new AbortController();
      const timeoutMs = by === "deadline" ? 100 : 60_000;
      const second = it.transport.request({
        ...GET,
        method: "POST",
        path: "/late",
        timeoutMs,
        signal: controller.signal,
      });
      if (by === "signal") controller.abort();
      if (by === "close") it.transport.close();
      expect(await failure(second)).toMatchObject({ tag: by === "deadline" ? "timeout" : "aborted", sent: false });
      if (by === "close") return;
      expect(settled).toBe(false);
      response.end("{}");
      await first;
      await it.transport.request(GET);
      expect(it.seen.map(({ url }) => url)).toEqual(["/hang", GET.path]);
    },
  );

  test("a read does not wait for writes and pages of lists that hang", async () => {
    const it = await startServer(
      (request, response) => {
        if (request.url === GET.path) response.end("{}");
      },
      { maxRequestSockets: 1, maxListSockets: 1 },
    );
    for (const call of [1, 2, 3]) {
      it.transport.request({ ...GET, path: `/list/${call}`, isList: true }).catch(() => {});
      it.transport.request({ ...GET, method: "PUT", path: `/write/${call}` }).catch(() => {});
    }
    expect((await it.transport.request(GET)).status).toBe(200);
    expect(it.sockets.size).toBeLessThanOrEqual(3);
  });

  test("a 401 renews the credentials and repeats the request once, but only with new credentials", async () => {
    const it = await startServer((request, response) => {
      response.statusCode = request.headers.authorization === "Bearer new" ? 200 : 401;
      response.end("{}");
    });
    expect((await it.transport.request(GET)).status).toBe(401);
    expect([it.rejections, it.seen.length]).toEqual([1, 1]);
    it.renewed = { authorization: "Bearer new", tls: it.credentials.tls };
    it.rejections = 0;
    expect((await it.transport.request(GET)).status).toBe(200);
    expect([it.rejections, it.seen.length]).toEqual([1, 3]);
  });

  test("a 401 whose body never ends keeps no connection", async () => {
    const it = await startServer(
      (request, response) => {
        const isNew = request.headers.authorization === "Bearer new";
        response.writeHead(isNew ? 200 : 401);
        if (isNew) response.end("{}");
        else response.write("{");
      },
      { maxRequestSockets: 1 },
    );
    it.renewed = { authorization: "Bearer new", tls: it.credentials.tls };
    expect((await it.transport.request(GET)).status).toBe(200);
    expect((await it.transport.request(GET)).status).toBe(200);
  });

  test("new TLS material is used by new connections", async () => {
    const it = await startServer(ok);
    await it.transport.request(GET);
    it.credentials = { ...it.credentials, tls: material() };
    await it.transport.request(GET);
    expect(it.sockets.size).toBe(2);
  });

  test("a body over the limit is rejected", async () => {
    const it = await startServer((_, response) => response.end("x".repeat(2000)), { maxBodyBytes: 1000 });
    expect(await failure(it.transport.request(GET))).toMatchObject({ tag: "oversized", sent: true });
  });

  test("a body in parts of a byte each, which take far more memory than their bytes, is rejected", async () => {
    const serve: Parameters<typeof startServer>[0] = (_, response) => {
      for (let count = 0; count < 100; count++) response.write("x");
      response.end();
    };
    const it = await startServer(serve, { maxBodyBytes: 10_000 });
    expect(await failure(it.transport.request(GET))).toMatchObject({ tag: "oversized", sent: true });
  });

  test("bodies that arrive at once share a bound, so that one on each connection fills no memory", async () => {
    const it = await startServer((_, response) => response.write("x".repeat(9_000)), { maxBodyBytes: 10_000 });
    const outcomes = Array.from({ length: 8 }, () => failure(it.transport.request({ ...GET, timeoutMs: 60_000 })));
    const first = await Promise.race(outcomes);
    expect(first).toMatchObject({ tag: "oversized" });
    it.transport.close();
    await Promise.all(outcomes);
  });

  test("a body has its room again once it was read", async () => {
    const it = await startServer((_, response) => response.end("x".repeat(9_000)), { maxBodyBytes: 10_000 });
    for (let times = 0; times < 4; times++) expect((await it.transport.request(GET)).status).toBe(200);
  });

  test("reports the beginning of the body once, before the rest arrives", async () => {
    const begun = Promise.withResolvers<string>();
    const heads: string[] = [];
    const it = await startServer(async (_, response) => {
      response.write("first");
      // The rest follows when the first part was reported.
      await begun.promise;
      response.end(" and last");
    });
    const onBodyBegins = (head: string): void => {
      heads.push(head);
      begun.resolve(head);
    };
    expect((await it.transport.request({ ...GET, onBodyBegins })).body).toBe("first and last");
    expect(heads).toEqual(["first"]);
  });

  test("a response that is cut off fails the request", async () => {
    const it = await startServer((request, response) => {
      response.writeHead(200, { "content-length": 100 }).write("half", () => request.socket.destroy());
    });
    expect(await failure(it.transport.request(GET))).toMatchObject({ tag: "reset", sent: true });
  });

  test("an idle connection that the server closed does not fail a read", async () => {
    const it = await startServer(ok);
    await it.transport.request(GET);
    for (const socket of it.sockets) socket.destroy();
    expect((await it.transport.request(GET)).status).toBe(200);
  });
});

describe("failures are classified, and tell whether the request may have been sent", () => {
  test("nobody listens", async () => {
    const server = createTcpServer();
    const port = await listen(server);
    server.close();
    expect(await failure(plainTransport(port).request(GET))).toMatchObject({ tag: "refused", sent: false });
  });

  test("an unknown host", async () => {
    const state = { credentials: { authorization: undefined, tls: material() }, rejections: 0, renewed: undefined };
    const transport = createHttpsTransport(accessTo("https://no-such-host.invalid:1", state), {
      ports: systemPorts,
      userAgent: "test",
    });
    expect(await failure(transport.request(GET))).toMatchObject({ tag: "dns", sent: false });
  });

  test("a server of another CA", async () => {
    const other = await createCertificateAuthority({ ...VALID, commonName: "other" });
    const it = await startServer(ok, {}, material({ ca: other.certificatePem }));
    expect(await failure(it.transport.request(GET))).toMatchObject({ tag: "tls", sent: false });
  });

  test("a server that wants another client certificate rejects the handshake late, and has read nothing", async () => {
    const server = createHttpsServer(
      { key: serving.privateKeyPem, cert: serving.certificatePem, ca: authority.certificatePem, requestCert: true },
      ok,
    );
    const port = await listen(server);
    const error = await failure(plainTransport(port).request(GET));
    expect([error.tag, error.sent]).toEqual(["tls", false]);
  });

  test("a server without TLS", async () => {
    let connections = 0;
    const port = await listen(createTcpServer((socket) => socket.end(`hello ${++connections}\n`)));
    expect(await failure(plainTransport(port).request(GET))).toMatchObject({ tag: "tls", sent: false });
    // With the same credentials, a second handshake would fail like the first.
    expect(connections).toBe(1);
  });

  test("TLS that breaks after the request: the request was sent, and is not repeated", async () => {
    const bodies: string[] = [];
    const wires: Socket[] = [];
    const server = createHttpsServer({ key: serving.privateKeyPem, cert: serving.certificatePem }, (request) => {
      request.on("data", (body: Buffer) => {
        bodies.push(`${body}`);
        wires.at(-1)?.write("HTTP/1.1 200 OK, in plain text");
      });
    });
    const inner = await listen(server);
    const wire = createTcpServer((client) => {
      const upstream = connect(inner, "127.0.0.1");
      wires.push(client);
      for (const socket of [upstream.pipe(client), client.pipe(upstream)]) socket.on("error", () => {});
    });
    const authorization = undefined;
    const renewed = { authorization, tls: material() };
    const renewing = { credentials: { authorization, tls: material() }, rejections: 0, renewed };
    const transport = createHttpsTransport(accessTo(`https://127.0.0.1:${await listen(wire)}`, renewing), {
      ports: systemPorts,
      userAgent: "test",
    });
    onTestFinished(() => transport.close());
    const error = await failure(transport.request({ ...GET, method: "POST", body: "once" }));
    expect([error.tag, error.sent, bodies]).toEqual(["tls", true, ["once"]]);
  });

  test("a silent connection: the deadline covers the handshake", async () => {
    const port = await listen(createTcpServer(() => {}));
    expect(await failure(plainTransport(port).request({ ...GET, timeoutMs: 50 }))).toMatchObject({
      tag: "timeout",
      sent: false,
    });
  });

  test("a silent connection ends long before a long deadline: a frozen server takes no request", async () => {
    const port = await listen(createTcpServer(() => {}));
    const after: typeof systemPorts.timers.after = (ms, callback) =>
      systemPorts.timers.after(ms === 10_000 ? 1 : ms, callback);
    const ports = { ...systemPorts, timers: { ...systemPorts.timers, after } };
    expect(await failure(plainTransport(port, material(), ports).request({ ...GET, timeoutMs: 60_000 }))).toMatchObject(
      { tag: "timeout", sent: false },
    );
  });

  test("a server that does not answer: the request was sent", async () => {
    const it = await startServer((request, response) => {
      if (request.url === "/first") response.end("{}");
    });
    // The connection is up before the deadline is near.
    await it.transport.request({ ...GET, path: "/first" });
    expect(await failure(it.transport.request({ ...GET, timeoutMs: 200 }))).toMatchObject({
      tag: "timeout",
      sent: true,
    });
  });

  test("credentials that do not come: the error says what the call waited for", async () => {
    const state = { credentials: { authorization: undefined, tls: material() }, rejections: 0, renewed: undefined };
    const { credentials, ...access } = accessTo("https://127.0.0.1:1", state);
    const waiting = { ...credentials, current: () => new Promise<never>(() => {}) };
    const options = { ports: systemPorts, userAgent: "test" };
    const transport = createHttpsTransport({ ...access, credentials: waiting }, options);
    const error = await failure(transport.request({ ...GET, timeoutMs: 50 }));
    expect([error.tag, error.sent]).toEqual(["timeout", false]);
    expect(error.message).toMatch(/\(waiting for credentials\)$/);
  });

  test("the deadline covers a body that never ends", async () => {
    const it = await startServer((_, response) => response.write("{"), { ports: expiringAtHead(200) });
    const error = await failure(it.transport.request({ ...GET, timeoutMs: 200 }));
    expect([error.tag, error.sent]).toEqual(["timeout", true]);
  });

  test("a connection that ends after the request", async () => {
    const it = await startServer((request) => request.socket.destroy());
    expect(await failure(it.transport.request({ ...GET, method: "POST", body: "{}" }))).toMatchObject({
      tag: "reset",
      sent: true,
    });
  });

  test("an aborted call, before and during", async () => {
    const it = await startServer(() => {});
    expect(await failure(it.transport.request({ ...GET, signal: AbortSignal.abort() }))).toMatchObject({
      tag: "aborted",
      sent: false,
    });
    const controller = new AbortController();
    const call = failure(it.transport.request({ ...GET, signal: controller.signal }));
    while (it.seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
    controller.abort();
    expect(await call).toMatchObject({ tag: "aborted", sent: true });
  });

  test("close fails requests in flight and later requests", async () => {
    const it = await startServer(() => {});
    const call = failure(it.transport.request(GET));
    while (it.seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
    it.transport.close();
    expect((await call).tag).toBe("aborted");
    expect((await failure(it.transport.request(GET))).tag).toBe("aborted");
  });

  test("no error repeats a credential", async () => {
    const it = await startServer((request) => request.socket.destroy());
    const error = await failure(it.transport.request(GET));
    expect(JSON.stringify([error.message, error.stack, String(error.cause)])).not.toContain(SECRET);
  });
});
