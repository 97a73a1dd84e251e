/** A kubeconfig that is renewed while a process runs, with real TLS servers. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { createServer, type Server } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TLSSocket } from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import { authority, failure, GET, listen, serving, VALID } from "../../../test/support/kube/https-server.ts";
import { createCertificateAuthority, issueCertificate } from "../../certificates/x509.ts";
import { systemPorts } from "../../runtime/system-ports.ts";
import { createHttpsTransport } from "../client/https-transport.ts";
import type { Transport } from "../client/transport.ts";
import type { KubeconfigEvent } from "./cluster-access.ts";
import { loadClusterAccess } from "./kubeconfig.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const otherAuthority = await createCertificateAuthority({ ...VALID, commonName: "renewed" });
const otherServing = await issueCertificate(otherAuthority, {
  ...VALID,
  commonName: "apiserver",
  ipAddresses: ["127.0.0.1"],
  usages: ["server"],
});
const clients = await Promise.all(
  ["old", "new"].map((commonName) => issueCertificate(authority, { ...VALID, commonName, usages: ["client"] })),
);
const [oldClient, newClient] = clients as [(typeof clients)[number], (typeof clients)[number]];

interface Parts {
  readonly context?: string;
  readonly cluster?: object;
  readonly user: object;
}

class Renewal {
  readonly directory = mkdtempSync(join(tmpdir(), "renewal-"));
  readonly events: string[] = [];
  server: Server | undefined;
  url = "";

  async serve(listener: RequestListener): Promise<void> {
    const { privateKeyPem: key, certificatePem: cert } = serving;
    const ca = authority.certificatePem;
    this.server = createServer({ key, cert, ca, requestCert: true, rejectUnauthorized: false }, listener);
    this.url = `https://127.0.0.1:${await listen(this.server)}`;
    onTestFinished(() => rmSync(this.directory, { recursive: true }));
  }

  file(name: string, text: string): string {
    const path = join(this.directory, name);
    writeFileSync(path, text);
    return path;
  }

  write({
    context = "here",
    cluster = { "certificate-authority-data": base64(authority.certificatePem) },
    user,
  }: Parts): string {
    return this.file(
      "config",
      JSON.stringify({
        "current-context": context,
        contexts: [{ name: context, context: { cluster: "c", user: "u" } }],
        clusters: [{ name: "c", cluster: { server: this.url, ...cluster } }],
        users: [{ name: "u", user }],
      }),
    );
  }

  async connect(path: string): Promise<Transport> {
    const onEvent = ({ kind }: { readonly kind: string }): void => void this.events.push(kind);
    const access = await loadClusterAccess(path, { onEvent });
    const transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "test" });
    onTestFinished(() => transport.close());
    return transport;
  }
}

/** Accepts `Bearer new` alone once `revoked` is set, and `Bearer old` alone before. */
async function tokenServer(): Promise<Renewal & { revoked: boolean }> {
  const renewal = Object.assign(new Renewal(), { revoked: false });
  await renewal.serve((request, response) => {
    response.statusCode = request.headers.authorization === `Bearer ${renewal.revoked ? "new" : "old"}` ? 200 : 401;
    response.end("{}");
  });
  return renewal;
}

describe("a renewed kubeconfig", () => {
  test("an inline token: used after the 401 of the old one, and no call fails under load", async () => {
    const it = await tokenServer();
    const transport = await it.connect(it.write({ user: { token: "old" } }));
    const statuses: number[] = [];
    const load = Array.from({ length: 8 }, async () => {
      for (let call = 0; call < 50; call++) {
        if (statuses.length === 100) {
          it.write({ user: { token: "new" } });
          it.revoked = true;
        }
        statuses.push((await transport.request(GET)).status);
      }
    });
    await Promise.all(load);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
    expect(it.events).toEqual(["renewed"]);
  });

  test("a token file: another file is named, and used after the 401", async () => {
    const it = await tokenServer();
    it.file("one", "old");
    it.file("two", "new");
    const transport = await it.connect(it.write({ user: { tokenFile: "one" } }));
    expect((await transport.request(GET)).status).toBe(200);
    it.write({ user: { tokenFile: "two" } });
    it.revoked = true;
    expect((await transport.request(GET)).status).toBe(200);
  });

  const certificateForms: [string, (it: Renewal, pair: typeof oldClient) => object][] = [
    [
      "inline",
      (_, pair) => ({
        "client-certificate-data": base64(pair.certificatePem),
        "client-key-data": base64(pair.privateKeyPem),
      }),
    ],
    [
      "in files",
      (it, pair) => ({
        "client-certificate": it.file("client.crt", pair.certificatePem),
        "client-key": it.file("client.key", pair.privateKeyPem),
      }),
    ],
  ];
  test.each(certificateForms)("a client certificate %s: used after the 401 of the old one", async (_, form) => {
    const it = new Renewal();
    let accepted = "old";
    await it.serve((request, response) => {
      const peer = request.socket instanceof TLSSocket ? request.socket.getPeerCertificate().subject?.CN : undefined;
      response.statusCode = peer === accepted ? 200 : 401;
      response.end("{}");
    });
    const transport = await it.connect(it.write({ user: form(it, oldClient) }));
    expect((await transport.request(GET)).status).toBe(200);
    it.write({ user: form(it, newClient) });
    accepted = "new";
    expect((await transport.request(GET)).status).toBe(200);
  });

  const authorityForms: [string, (it: Renewal, pem: string) => object][] = [
    ["inline", (_, pem) => ({ "certificate-authority-data": base64(pem) })],
    ["in a file", (it, pem) => ({ "certificate-authority": it.file("ca.crt", pem) })],
  ];
  test.each(authorityForms)(
    "a certificate authority %s: used after the TLS failure with the old one",
    async (_, form) => {
      const it = new Renewal();
      await it.serve((_request, response) => void response.setHeader("connection", "close").end("{}"));
      const transport = await it.connect(it.write({ cluster: form(it, authority.certificatePem), user: {} }));
      expect((await transport.request(GET)).status).toBe(200);
      it.server?.setSecureContext({ key: otherServing.privateKeyPem, cert: otherServing.certificatePem });
      it.write({ cluster: form(it, otherAuthority.certificatePem), user: {} });
      expect((await transport.request({ ...GET, method: "POST", body: "{}" })).status).toBe(200);
    },
  );

  test("a text that can't be used is reported once, and the old one serves until it can", async () => {
    const it = await tokenServer();
    const path = it.write({ user: { token: "old" } });
    const events: string[] = [];
    const onEvent = ({ kind }: { readonly kind: string }): void => void events.push(kind);
    const { credentials } = await loadClusterAccess(path, { onEvent });
    const token = async (nowMs: number): Promise<string | undefined> =>
      (await credentials.current(nowMs)).authorization;
    const { tls } = await credentials.current(0);
    it.file("config", '{"users": [');
    for (const atMs of [5_000, 10_000, 15_000]) expect(await token(atMs)).toBe("Bearer old");
    expect(events).toEqual(["unusable"]);
    rmSync(path);
    for (const atMs of [20_000, 25_000]) expect(await token(atMs)).toBe("Bearer old");
    expect(events).toEqual(["unusable", "unusable"]);
    it.write({ user: { token: "new" } });
    expect([await token(30_000), events.at(-1)]).toEqual(["Bearer new", "renewed"]);
    expect((await credentials.current(30_001)).tls).toBe(tls);
  });

  const client = "client.crt";
  test.each<[string, (it: Renewal) => void, RegExp]>([
    ["the token file, deleted", (it) => rmSync(join(it.directory, "token")), /token cannot be read \(ENOENT\)/],
    ["the token file, emptied", (it) => void it.file("token", ""), /the token is empty/],
    ["the CA, half written", (it) => void it.file("ca.crt", "-----BEGIN"), /authority is no PEM/],
    [
      "the client certificate of another key",
      (it) => void it.file(client, newClient.certificatePem),
      /does not belong/,
    ],
    [
      "the client certificate, now a directory",
      (it) => {
        rmSync(join(it.directory, client));
        mkdirSync(join(it.directory, client));
      },
      /EISDIR/,
    ],
  ])("of a file of it that stays unusable is told once, and the last content serves: %s", async (_, spoil, message) => {
    const it = await tokenServer();
    it.file("token", "old");
    const path = it.write({
      cluster: { "certificate-authority": it.file("ca.crt", authority.certificatePem) },
      user: {
        tokenFile: "token",
        "client-certificate": it.file(client, oldClient.certificatePem),
        "client-key": it.file("client.key", oldClient.privateKeyPem),
      },
    });
    const told: string[] = [];
    const onEvent = (event: KubeconfigEvent): void => void told.push("error" in event ? event.error.message : "");
    const { credentials } = await loadClusterAccess(path, { onEvent });
    const before = await credentials.current(0);
    spoil(it);
    // A file that is being replaced is nothing to tell of.
    for (const atMs of [10_000, 15_000]) expect(await credentials.current(atMs)).toEqual(before);
    expect(told).toEqual([]);
    for (const atMs of [20_000, 25_000, 60_000]) expect(await credentials.current(atMs)).toEqual(before);
    expect(told).toEqual([expect.stringMatching(message)]);
  });

  test("a context of another name is used where it is the current one and leads to the same server", async () => {
    const it = await tokenServer();
    const transport = await it.connect(it.write({ user: { token: "old" } }));
    it.write({ context: "renamed", user: { token: "new" } });
    it.revoked = true;
    expect((await transport.request(GET)).status).toBe(200);
    expect(it.events).toEqual(["renewed"]);
  });

  test("a context that was named is not replaced by the current one", async () => {
    const it = await tokenServer();
    const messages: string[] = [];
    const onEvent = (event: KubeconfigEvent): void => void messages.push("error" in event ? event.error.message : "");
    const path = it.write({ user: { token: "old" } });
    const { credentials } = await loadClusterAccess(path, { context: "here", onEvent });
    it.write({ context: "renamed", user: { token: "new" } });
    expect((await credentials.current(5_000)).authorization).toBe("Bearer old");
    expect(messages).toEqual([expect.stringContaining('no context "here"')]);
  });

  test("a context of another name and another server is refused, and the error names both servers", async () => {
    const it = await tokenServer();
    const messages: string[] = [];
    const onEvent = (event: KubeconfigEvent): void => void messages.push("error" in event ? event.error.message : "");
    const { credentials } = await loadClusterAccess(it.write({ user: { token: "old" } }), { onEvent });
    it.write({ context: "renamed", cluster: { server: "https://127.0.0.2:1" }, user: { token: "new" } });
    expect((await credentials.current(5_000)).authorization).toBe("Bearer old");
    expect(messages).toEqual([expect.stringContaining(`changed from ${it.url} to https://127.0.0.2:1`)]);
  });

  test("another server is not followed: the new token stays here", async () => {
    const it = await tokenServer();
    const transport = await it.connect(it.write({ user: { token: "old" } }));
    await transport.request(GET);
    it.write({ cluster: { server: "https://127.0.0.2:1" }, user: { token: "new" } });
    it.revoked = true;
    expect((await transport.request(GET)).status).toBe(401);
    expect(it.events).toEqual(["unusable"]);
  });

  test("a TLS failure without a renewed CA remains one", async () => {
    const it = new Renewal();
    await it.serve((_, response) => void response.end("{}"));
    const cluster = { "certificate-authority-data": base64(otherAuthority.certificatePem) };
    const transport = await it.connect(it.write({ cluster, user: {} }));
    expect(await failure(transport.request(GET))).toMatchObject({ tag: "tls", sent: false });
  });
});
