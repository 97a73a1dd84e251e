/** Kubeconfigs with a proxy, against real proxies and TLS servers. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createProxy, request as forward, type IncomingMessage } from "node:http";
import { createServer } from "node:https";
import { connect, createServer as createTcpServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import { authority, failure, GET, listen, serving, VALID } from "../../../test/support/kube/https-server.ts";
import { createCertificateAuthority, issueCertificate } from "../../certificates/x509.ts";
import { systemPorts } from "../../runtime/system-ports.ts";
import { AccessError } from "../credentials/cluster-access.ts";
import { loadClusterAccess } from "../credentials/kubeconfig.ts";
import { proxyFor } from "../credentials/proxy.ts";
import { createHttpsTransport } from "./https-transport.ts";
import type { Transport } from "./transport.ts";

const ACCOUNT = `Basic ${Buffer.from("me:pw").toString("base64")}`;

interface World {
  readonly server: string;
  /** What the server got. */
  readonly tokens: (string | undefined)[];
  readonly directory: string;
  accepted: string;
  body: string;
}

async function world(): Promise<World> {
  const directory = mkdtempSync(join(tmpdir(), "proxy-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const made: World = { server: "", tokens: [], directory, accepted: "Bearer one", body: "{}" };
  const { privateKeyPem: key, certificatePem: cert } = serving;
  const tls = { key, cert, ca: authority.certificatePem, requestCert: true, rejectUnauthorized: false };
  const server = createServer(tls, ({ headers: { authorization }, socket }, response) => {
    made.tokens.push(authorization);
    const peer = socket instanceof TLSSocket ? socket.getPeerCertificate().subject?.CN : undefined;
    response.statusCode = [authorization, peer].includes(made.accepted) ? 200 : 401;
    response.end(made.body);
  });
  return Object.assign(made, { server: `https://127.0.0.1:${await listen(server)}` });
}

function write({ directory, server }: World, proxyUrl: string, user: object, pem = authority.certificatePem): string {
  const path = join(directory, "config");
  const ca = Buffer.from(pem).toString("base64");
  const cluster = { server, "certificate-authority-data": ca, "proxy-url": proxyUrl };
  const contexts = [{ name: "here", context: { cluster: "c", user: "u" } }];
  const clusters = [{ name: "c", cluster }];
  writeFileSync(path, JSON.stringify({ "current-context": "here", contexts, clusters, users: [{ name: "u", user }] }));
  return path;
}

async function transportOf(path: string): Promise<Transport> {
  const options = { ports: systemPorts, userAgent: "test", maxRequestSockets: 2 };
  const transport = createHttpsTransport(await loadClusterAccess(path), options);
  onTestFinished(() => transport.close());
  return transport;
}

/** A proxy that connects; the result holds the CONNECT requests. */
async function startProxy(
  scheme: "http" | "https" = "http",
): Promise<{ readonly url: string; readonly connects: (string | undefined)[] }> {
  const connects: (string | undefined)[] = [];
  const { privateKeyPem: key, certificatePem: cert } = serving;
  const proxy = scheme === "http" ? createProxy() : createServer({ key, cert });
  proxy.on("connect", (request: IncomingMessage, client: Duplex) => {
    connects.push(request.headers["proxy-authorization"]);
    const [host = "", port] = (request.url ?? "").split(":");
    const upstream = connect(Number(port), host, () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      upstream.pipe(client).pipe(upstream);
    });
    for (const socket of [upstream, client]) {
      socket.on("error", () => {});
      socket.on("close", () => [upstream, client].forEach((one) => void one.destroy()));
    }
  });
  return { url: `${scheme}://me:pw@127.0.0.1:${await listen(proxy)}`, connects };
}

describe("proxy-url", () => {
  test("a token file is sent, and rotated; connections are kept, and bounded", async () => {
    const it = await world();
    const token = join(it.directory, "token");
    writeFileSync(token, "one");
    const proxy = await startProxy();
    const transport = await transportOf(write(it, proxy.url, { tokenFile: token }));
    const statuses = await Promise.all(Array.from({ length: 9 }, async () => (await transport.request(GET)).status));
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(proxy.connects).toEqual([ACCOUNT, ACCOUNT]);
    writeFileSync(token, "two");
    it.accepted = "Bearer two";
    expect((await transport.request(GET)).status).toBe(200);
    expect(proxy.connects.length).toBe(2);
  });

  test("large bodies arrive whole, in both directions, and a renewed CA takes effect", async () => {
    const it = await world();
    it.body = "x".repeat(5_000_000);
    const proxy = await startProxy();
    const transport = await transportOf(write(it, proxy.url, { token: "one" }));
    const post = { ...GET, method: "POST", body: "y".repeat(2_000_000) } as const;
    expect((await transport.request(post)).body === it.body).toBe(true);
    const renewed = await createCertificateAuthority({ ...VALID, commonName: "renewed" });
    write(it, proxy.url, { token: "two" }, authority.certificatePem + renewed.certificatePem);
    it.accepted = "Bearer two";
    expect((await transport.request(post)).status).toBe(200);
    expect(proxy.connects.length).toBe(2);
  });

  test("a proxy that speaks HTTPS", async () => {
    const it = await world();
    const proxy = await startProxy("https");
    const transport = await transportOf(write(it, proxy.url, { token: "one" }));
    expect((await transport.request(GET)).status).toBe(200);
    expect(proxy.connects).toEqual([ACCOUNT]);
  });

  test("a client certificate that is rotated is used after the 401 of the old one", async () => {
    const it = await world();
    const proxy = await startProxy();
    const user = async (commonName: string): Promise<object> => {
      const pair = await issueCertificate(authority, { ...VALID, commonName, usages: ["client"] });
      const [cert, key] = [pair.certificatePem, pair.privateKeyPem].map((pem) => Buffer.from(pem).toString("base64"));
      return { "client-certificate-data": cert, "client-key-data": key };
    };
    it.accepted = "old";
    const transport = await transportOf(write(it, proxy.url, await user("old")));
    expect((await transport.request(GET)).status).toBe(200);
    write(it, proxy.url, await user("new"));
    it.accepted = "new";
    expect((await transport.request(GET)).status).toBe(200);
    expect(proxy.connects.length).toBe(2);
  });

  test("a server without TLS is asked through the proxy by its whole URL, as by client-go", async () => {
    const seen: unknown[] = [];
    const plain = createProxy(({ url, headers: { host, authorization } }, response) => {
      seen.push({ url, host, authorization });
      response.end("{}");
    });
    const server = `http://127.0.0.1:${await listen(plain)}`;
    const proxy = createProxy((request, response) => {
      const { url = "", method, headers } = request;
      seen.push({ url, account: headers["proxy-authorization"] });
      const onward = forward(url, { method, headers }, (answer) => answer.pipe(response));
      request.pipe(onward);
    });
    const proxyUrl = `http://me:pw@127.0.0.1:${await listen(proxy)}`;
    const transport = await transportOf(write({ ...(await world()), server }, proxyUrl, { token: "one" }));
    expect((await transport.request(GET)).body).toBe("{}");
    const host = server.slice("http://".length);
    expect(seen).toEqual([
      { url: server + GET.path, account: ACCOUNT },
      { url: GET.path, host, authorization: "Bearer one" },
    ]);
  });

  test("socks5 is refused, and nothing is sent to the server", async () => {
    const it = await world();
    const path = write(it, "socks5://127.0.0.1:1", { token: "one" });
    const error = await transportOf(path)
      .then((transport) => transport.request(GET))
      .catch((thrown: unknown) => thrown);
    expect(it.tokens).toEqual([]);
    expect(error).toBeInstanceOf(AccessError);
    expect(error).toMatchObject({ tag: "proxy", message: expect.stringContaining("socks5") });
  });

  test.each(["its deadline", "its signal", "close"])(
    "a proxy that never answers CONNECT: %s ends the call",
    async (by) => {
      const it = await world();
      const asked = Promise.withResolvers<Socket>();
      const silent = createTcpServer((socket) => {
        socket.on("error", () => {});
        socket.once("data", () => asked.resolve(socket));
      });
      const path = write(it, `http://127.0.0.1:${await listen(silent)}`, { token: "one" });
      const transport = await transportOf(path);
      const controller = new AbortController();
      const call = failure(
        transport.request({ ...GET, timeoutMs: by === "its deadline" ? 300 : 60_000, signal: controller.signal }),
      );
      const socket = await asked.promise;
      const closed = new Promise((resolve) => socket.once("close", resolve));
      if (by === "its signal") controller.abort();
      if (by === "close") transport.close();
      expect(await call).toMatchObject({ tag: by === "its deadline" ? "timeout" : "aborted", sent: false });
      await closed;
    },
  );

  test("a proxy that refuses names itself and its answer", async () => {
    const it = await world();
    const refusing = createProxy().on("connect", (_, socket) => void socket.end("HTTP/1.1 407 No\r\n\r\n"));
    const transport = await transportOf(write(it, `http://127.0.0.1:${await listen(refusing)}`, { token: "one" }));
    const error = await failure(transport.request({ ...GET, method: "POST", body: "{}" }));
    expect(error).toMatchObject({ tag: "refused", sent: false, message: expect.stringContaining("HTTP 407") });
  });
});

test("a token file wins over an inline token, which serves while the file was never readable", async () => {
  const it = await world();
  const token = join(it.directory, "token");
  const authorization = async (): Promise<string | undefined> => {
    const { credentials } = await loadClusterAccess(write(it, "", { token: "inline", tokenFile: token }));
    return (await credentials.current(0)).authorization;
  };
  expect(await authorization()).toBe("Bearer inline");
  writeFileSync(token, "one");
  expect(await authorization()).toBe("Bearer one");
});

describe("the proxy of the environment, by Go's rules", () => {
  const P = "http://proxy:3128";
  const cases: [string, Record<string, string>, string, string | undefined][] = [
    ["HTTPS_PROXY", { HTTPS_PROXY: P }, "https://core:6443", P],
    ["lower case", { https_proxy: P }, "https://core", P],
    ["upper case wins", { HTTPS_PROXY: P, https_proxy: "http://x" }, "https://core", P],
    ["without a scheme", { HTTPS_PROXY: "proxy:3128" }, "https://core", P],
    ["HTTP_PROXY is for http", { HTTP_PROXY: P }, "https://core", undefined],
    ["HTTP_PROXY", { HTTP_PROXY: P }, "http://core:8080", P],
    ["HTTPS_PROXY is for https", { HTTPS_PROXY: P }, "http://core:8080", undefined],
    ["the default port of http", { http_proxy: P, no_proxy: "core:80" }, "http://core", undefined],
    ["localhost", { HTTPS_PROXY: P }, "https://localhost:6443", undefined],
    ["127.0.0.2", { HTTPS_PROXY: P }, "https://127.0.0.2:6443", undefined],
    ["::1", { HTTPS_PROXY: P }, "https://[::1]:6443", undefined],
    ["*", { HTTPS_PROXY: P, NO_PROXY: "*" }, "https://core", undefined],
    ["a name", { HTTPS_PROXY: P, NO_PROXY: "x, Core.example" }, "https://core.example", undefined],
    ["its subdomain", { HTTPS_PROXY: P, NO_PROXY: "example" }, "https://core.example", undefined],
    ["no part of a name", { HTTPS_PROXY: P, NO_PROXY: "ample" }, "https://core.example", P],
    [".name is not the name", { HTTPS_PROXY: P, NO_PROXY: ".core.example" }, "https://core.example", P],
    ["*.name", { HTTPS_PROXY: P, NO_PROXY: "*.example" }, "https://core.example", undefined],
    ["the port", { HTTPS_PROXY: P, NO_PROXY: "core:6443" }, "https://core:6443", undefined],
    ["another port", { HTTPS_PROXY: P, NO_PROXY: "core:443" }, "https://core:6443", P],
    ["the default port", { HTTPS_PROXY: P, no_proxy: "core:443" }, "https://core", undefined],
    ["an address", { HTTPS_PROXY: P, NO_PROXY: "10.0.0.1" }, "https://10.0.0.1", undefined],
    ["the end of an address, as in Go", { HTTPS_PROXY: P, NO_PROXY: "0.0.1" }, "https://10.0.0.1:1", undefined],
    ["a CIDR", { HTTPS_PROXY: P, NO_PROXY: "10.0.0.0/8" }, "https://10.9.9.9:6443", undefined],
    ["outside of a CIDR", { HTTPS_PROXY: P, NO_PROXY: "10.0.0.0/8" }, "https://11.0.0.1", P],
    ["an IPv6 CIDR", { HTTPS_PROXY: P, NO_PROXY: "fd00::/8" }, "https://[fd00::1]:6443", undefined],
    [
      "an IPv6 address with its port",
      { HTTPS_PROXY: P, NO_PROXY: "[fd00::1]:6443" },
      "https://[fd00::1]:6443",
      undefined,
    ],
  ];
  test.each(cases)("%s", (_, env, server, proxy) => {
    expect(proxyFor({ where: "test", server, proxyUrl: undefined, env })).toBe(proxy);
  });

  test("proxy-url overrules it, NO_PROXY, too", () => {
    const env = { HTTPS_PROXY: P, NO_PROXY: "*" };
    expect(proxyFor({ where: "test", server: "https://core", proxyUrl: "http://other", env })).toBe("http://other");
  });

  test("one that can't be used is refused, without its password", () => {
    const env = { HTTPS_PROXY: "socks5://me:s3cr3t@proxy:1080" };
    const find = () => proxyFor({ where: "test", server: "https://core", proxyUrl: undefined, env });
    expect(find).toThrow(/HTTPS_PROXY has the scheme socks5/);
    expect(find).not.toThrow(/s3cr3t/);
  });
});
