import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { Agent } from "node:https";
import { join } from "node:path";
import { connect } from "node:tls";
import { afterEach, describe, expect, test } from "vitest";
import { httpsCall } from "../../scripts/control-plane/https-call.ts";
import { issueCertificate } from "../../shared/certificates/x509.ts";
import { temporaryDirectory } from "../../test/support/runtime/temporary-directory.ts";
import { authority, validity } from "../../test/support/webhook/loopback-certificate.ts";
import { type AdmissionCall, HttpError, type HttpResponse } from "./call.ts";
import { MAX_REQUEST_BYTES } from "./limits.ts";
import { WebhookServer } from "./server.ts";
import {
  CertificateError,
  type CertificateFiles,
  readServingCertificate,
  type ServingCertificate,
} from "./serving-certificate.ts";

async function issue(): Promise<{ cert: string; key: string }> {
  const issued = await issueCertificate(authority, {
    ...validity,
    commonName: "webhook",
    ipAddresses: ["127.0.0.1"],
    usages: ["server"],
  });
  return { cert: issued.certificatePem, key: issued.privateKeyPem };
}

const folder = temporaryDirectory();
let server: WebhookServer | undefined;
const crashes: unknown[] = [];

afterEach(async () => {
  await server?.close();
  server = undefined;
  crashes.length = 0;
});

async function start(
  handler: (call: AdmissionCall) => Promise<HttpResponse> | HttpResponse,
  certificate?: ServingCertificate,
  pathPrefix = "/webhook",
): Promise<WebhookServer> {
  const cells = new Set(["cell-1", "secret-1", "~1"]);
  server = new WebhookServer({ certificate: certificate ?? (await issue()), pathPrefix, cells });
  server.serve({ handle: handler, rejected: () => undefined, crashed: (error) => crashes.push(error) });
  await server.listen(0, "127.0.0.1");
  return server;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly connection: string | undefined;
}

interface Ask {
  readonly method?: string;
  readonly path?: string;
  readonly type?: string | undefined;
  readonly host?: string;
  readonly body?: string;
  readonly agent?: Agent;
}

async function ask(port: number, options: Ask = {}): Promise<Answer> {
  const { method = "POST", path = "/webhook/cell-1?timeout=5s", body = "{}", agent = false, host } = options;
  const type = "type" in options ? options.type : "application/json";
  const given = { ...(type === undefined ? {} : { "content-type": type }), ...(host === undefined ? {} : { host }) };
  const call = { host: "127.0.0.1", port, method, path, ca: authority.certificatePem, headers: given, agent };
  const { status, text, headers } = await httpsCall(`https://127.0.0.1:${port}`, call, body);
  return { status, body: text, connection: headers.connection };
}

describe("a call reaches the handler", () => {
  test.each([
    ["a validation", "/webhook/cell-1?timeout=5s", { cell: "cell-1", kind: "validate", timeout: "5s" }],
    ["a validation without timeout", "/webhook/cell-1", { cell: "cell-1", kind: "validate", timeout: undefined }],
    ["a mutation", "/webhook/cell-1/mutate?timeout=1s", { cell: "cell-1", kind: "mutate", timeout: "1s" }],
    ["a path with escapes", "/webhook/cell%2D1?a=1&timeout=%35s", { cell: "cell-1", kind: "validate", timeout: "5s" }],
  ])("%s", async (_name, path, expected) => {
    const calls: AdmissionCall[] = [];
    const { port } = await start((call) => {
      calls.push(call);
      return { status: 200, body: '{"said":"é"}' };
    });
    const answer = await ask(port, { path, body: '{"asked":"é"}', type: "application/json; charset=utf-8" });
    expect(answer).toMatchObject({ status: 200, body: '{"said":"é"}' });
    expect(calls).toMatchObject([{ ...expected, body: '{"asked":"é"}' }]);
  });

  test.each(["[fd00:0:0:1:0:0:0:10]:8443", "[::ffff:10.0.0.1]:8443"])(
    "by any spelling of an address: %s",
    async (host) => {
      const { port } = await start(() => ({ status: 200, body: "fine" }));
      expect(await ask(port, { host })).toMatchObject({ status: 200, body: "fine" });
    },
  );
});

describe("of a body that is large, the values are counted,", () => {
  const review = (annotation: string): string => JSON.stringify({ oldObject: { annotation } });
  const statusOf = async (body: string): Promise<number> => {
    const { port } = await start(() => ({ status: 200, body: "fine" }));
    return (await ask(port, { body })).status;
  };

  test.each([
    ["as JSON", JSON.stringify(Array.from({ length: 18_000 }, () => ({ a: 1, b: "c" })))],
    ["with quotes and backslashes", '\\"'.repeat(120_000)],
  ])("which an annotation of 256 KiB %s has none of", async (_name, annotation) => {
    expect(await statusOf(review(annotation.slice(0, 256 * 1024)))).toBe(200);
  });

  test.each([
    ["", ""],
    ["behind a string that ends with a backslash", '"\\\\",'],
    ["behind a string with a quote", '"\\"",'],
  ])("and too many are refused %s", async (_name, before) => {
    expect(await statusOf(`[${before}"${"x".repeat(140_000)}"${",[]".repeat(60_000)}]`)).toBe(413);
  });
});

describe("without a prefix the cell is the whole path", () => {
  test.each(["cell-1", "secret-1", "~1"])("of cell %s, with and without a secret segment", async (id) => {
    const { port } = await start(({ cell, kind }) => ({ status: 200, body: `${kind} ${cell}` }), undefined, "");
    for (const segment of ["", `/~${"-".repeat(43)}`, `/secret-${"0f".repeat(32)}`]) {
      expect(await ask(port, { path: `${segment}/${id}?timeout=5s` })).toMatchObject({ body: `validate ${id}` });
      expect(await ask(port, { path: `${segment}/${id}/mutate` })).toMatchObject({ body: `mutate ${id}` });
    }
  });
});

test("a replica that is starting responds 503", async () => {
  server = new WebhookServer({ certificate: await issue(), pathPrefix: "/webhook", cells: new Set(["cell-1"]) });
  await server.listen(0, "127.0.0.1");
  expect(await ask(server.port)).toMatchObject({ status: 503, body: expect.stringContaining("starting") });
});

describe("a call that is at fault gets an error, and the next call is served", () => {
  const big = "x".repeat(MAX_REQUEST_BYTES + 1);
  test.each<[string, Ask, number, RegExp]>([
    ["wrong method, as the health check of a load balancer", { method: "GET", body: "", path: "/" }, 405, /POST/],
    ["wrong method on the mutation", { method: "PUT", path: "/webhook/cell-1/mutate" }, 405, /POST/],
    ["wrong content type", { type: "text/plain" }, 415, /application\/json/],
    ["no content type", { type: undefined }, 415, /application\/json/],
    ["an unknown cell", { path: "/webhook/elsewhere" }, 404, /"elsewhere".*--cell/],
    ["a path outside the prefix", { path: "/metrics" }, 404, /\/webhook\/CELL/],
    ["a body that is too large", { body: big }, 413, /larger than/],
  ])("%s", async (_name, options, status, text) => {
    const { port } = await start(() => ({ status: 200, body: "fine" }));
    const answer = await ask(port, options).catch((error: unknown) => {
      // The server may close before the client has sent all of a body that is too large.
      if (options.body !== big) throw error;
      return { status: 413, body: "larger than", connection: undefined };
    });
    expect(answer.status).toBe(status);
    expect(answer.body).toMatch(text);
    expect((await ask(port)).body).toBe("fine");
  });

  describe.each([
    [
      "at once",
      (error: Error) => () => {
        throw error;
      },
    ],
    ["later", (error: Error) => () => Promise.reject(error)],
  ])("an error that the handler throws %s", (_when, failing) => {
    test.each(["/webhook/cell-1", "/webhook/cell%2D1"])("costs that call alone, at %s", async (path) => {
      let handler: () => HttpResponse | Promise<HttpResponse> = failing(new Error("a defect"));
      const { port } = await start(() => handler());
      expect(await ask(port, { path })).toMatchObject({
        status: 500,
        body: expect.stringMatching(/^this admission request .*\n$/),
      });
      expect(crashes).toHaveLength(1);
      handler = failing(new HttpError(400, "malformed"));
      expect(await ask(port, { path })).toMatchObject({ status: 400, body: "malformed\n" });
      expect(crashes).toHaveLength(1);
      handler = () => ({ status: 200, body: "fine" });
      expect((await ask(port, { path })).body).toBe("fine");
      expect(server?.inFlight).toBe(0);
    });
  });

  test("garbage instead of a handshake", async () => {
    const { port } = await start(() => ({ status: 200, body: "fine" }));
    const { createConnection } = await import("node:net");
    await new Promise<void>((resolve) => {
      const socket = createConnection(port, "127.0.0.1", () => socket.end("GET / HTTP/1.1\r\n\r\n"));
      socket.on("close", () => resolve());
      socket.on("error", () => undefined);
    });
    expect((await ask(port)).body).toBe("fine");
  });
});

describe("a caller that disconnects", () => {
  test("is seen by the handler, and its response counts as not delivered", async () => {
    const delivered = Promise.withResolvers<boolean>();
    const left = Promise.withResolvers<void>();
    const seen = Promise.withResolvers<AdmissionCall>();
    const { port } = await start(async (call) => {
      seen.resolve(call);
      await left.promise;
      return { status: 200, body: "late", delivered: (complete) => delivered.resolve(complete) };
    });
    const socket = connect({ host: "127.0.0.1", port, ca: authority.certificatePem }, () => {
      socket.write(
        "POST /webhook/cell-1 HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
      );
    });
    const call = await seen.promise;
    expect(call.isCallerGone()).toBe(false);
    socket.destroy();
    await expect.poll(() => call.isCallerGone()).toBe(true);
    left.resolve();
    expect(await delivered.promise).toBe(false);
  });

  test("a response that was handed over counts as delivered", async () => {
    const delivered = Promise.withResolvers<boolean>();
    const { port } = await start(() => ({
      status: 200,
      body: "fine",
      delivered: (complete) => delivered.resolve(complete),
    }));
    await ask(port);
    expect(await delivered.promise).toBe(true);
  });
});

const REQUEST =
  "POST /webhook/cell-1 HTTP/1.1\r\nhost: any\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

describe("shutdown", () => {
  test("requests in flight get their response with Connection: close, then drain resolves", async () => {
    const gate = Promise.withResolvers<void>();
    const entered = Promise.withResolvers<void>();
    const running = await start(async () => {
      entered.resolve();
      await gate.promise;
      return { status: 200, body: "fine" };
    });
    const agent = new Agent({ keepAlive: true });
    const answer = ask(running.port, { agent });
    await entered.promise;
    let drained = false;
    const drain = running.drain().then(() => {
      drained = true;
    });
    expect(drained).toBe(false);
    gate.resolve();
    expect(await answer).toMatchObject({ status: 200, body: "fine", connection: "close" });
    await drain;
    agent.destroy();
  });

  test("a server that retires goes on serving, with Connection: close", async () => {
    const running = await start(() => ({ status: 200, body: "fine" }));
    const agent = new Agent({ keepAlive: true });
    expect(await ask(running.port, { agent })).toMatchObject({ status: 200, connection: "keep-alive" });
    running.retire();
    expect(await ask(running.port, { agent })).toMatchObject({ status: 200, connection: "close" });
    expect(await ask(running.port, { agent })).toMatchObject({ status: 200, connection: "close" });
    await running.drain();
    await expect(ask(running.port)).rejects.toThrow(/ECONNREFUSED/);
    agent.destroy();
  });

  test("a request that has arrived, but is not read yet, is answered", async () => {
    const running = await start(() => ({ status: 200, body: "fine" }));
    const socket = connect({ port: running.port, host: "127.0.0.1", ca: authority.certificatePem });
    socket.setEncoding("utf8");
    const closed = once(socket, "close");
    await once(socket, "secureConnect");
    const send = (): boolean => socket.write(REQUEST);
    send();
    await once(socket, "data");
    const answers: unknown[] = [];
    socket.on("data", (text) => answers.push(text));
    // A busy replica: the request comes while it does something else, after which its time to serve is over.
    setTimeout(() => {
      send();
      void running.drain();
    });
    await closed;
    expect(answers.join("")).toMatch(/^HTTP\/1\.1 200 OK\r\n.*fine$/s);
  });

  test("listening on a port in use rejects", async () => {
    const { port } = await start(() => ({ status: 200, body: "" }));
    const second = new WebhookServer({ certificate: await issue(), pathPrefix: "/webhook", cells: new Set() });
    await expect(second.listen(port, "127.0.0.1")).rejects.toThrow(/EADDRINUSE/);
  });
});

describe("the serving certificate", () => {
  const files = (cert: string, key: string, clientCa?: string): CertificateFiles => {
    const paths = { tlsCertFile: join(folder, "tls.crt"), tlsPrivateKeyFile: join(folder, "tls.key") };
    writeFileSync(paths.tlsCertFile, cert);
    writeFileSync(paths.tlsPrivateKeyFile, key);
    if (clientCa === undefined) return paths;
    const clientCaFile = join(folder, "client-ca.crt");
    writeFileSync(clientCaFile, clientCa);
    return { ...paths, clientCaFile };
  };

  test("a pair that fits is read", async () => {
    const pair = await issue();
    expect(readServingCertificate(files(pair.cert, pair.key))).toEqual(pair);
  });

  test.each([
    [
      "a key of another certificate",
      async () => files((await issue()).cert, (await issue()).key),
      "mismatch",
      /does not belong to/,
    ],
    [
      "no certificate",
      async () => files("garbage", (await issue()).key),
      "malformed",
      /tls\.crt does not hold a certificate/,
    ],
    ["no key", async () => files((await issue()).cert, "garbage"), "malformed", /tls\.key does not hold a private key/],
    [
      "no file",
      () => ({ tlsCertFile: join(folder, "none"), tlsPrivateKeyFile: join(folder, "none") }),
      "unreadable",
      /ENOENT/,
    ],
    [
      "no client CA",
      async () => {
        const { cert, key } = await issue();
        return files(cert, key, "");
      },
      "malformed",
      /client-ca\.crt does not hold a client CA/,
    ],
  ])("%s: says which file and what is wrong", async (_name, make, tag, text) => {
    let thrown: unknown;
    const made = await make();
    try {
      readServingCertificate(made);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(CertificateError);
    expect(thrown).toMatchObject({ tag, message: expect.stringMatching(text) });
  });

  test("a new certificate is served from the next handshake on", async () => {
    const running = await start(() => ({ status: 200, body: "fine" }));
    const serial = (): Promise<string> =>
      new Promise((resolve, reject) => {
        const socket = connect({ host: "127.0.0.1", port: running.port, ca: authority.certificatePem }, () => {
          resolve(socket.getPeerCertificate().serialNumber);
          socket.destroy();
        });
        socket.on("error", reject);
      });
    const first = await serial();
    running.setCertificate(await issue());
    expect(await serial()).not.toBe(first);
  });
});
