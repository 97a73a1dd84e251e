import { once } from "node:events";
import { Agent, type AgentOptions } from "node:https";
import { connect as connectTcp, createServer } from "node:net";
import { connect } from "node:tls";
import { afterEach, expect, test } from "vitest";
import { httpsCall } from "../../scripts/control-plane/https-call.ts";
import {
  createCertificateAuthority,
  issueCertificate,
  type KeyAndCertificate,
} from "../../shared/certificates/x509.ts";
import { authority, certificate, validity } from "../../test/support/webhook/loopback-certificate.ts";
import { WebhookServer } from "./server.ts";

const mine = await createCertificateAuthority({ ...validity, commonName: "apiservers" });
const other = await createCertificateAuthority({ ...validity, commonName: "others" });
const { certificatePem: cert, privateKeyPem: key } = await issueCertificate(authority, {
  ...{ ...validity, commonName: "webhook", ipAddresses: ["127.0.0.1"], usages: ["server"] },
});
let server: WebhookServer;
let handled = 0;

afterEach(() => server.close());

/** Accepts the clients of this authority. */
const trusting = (by: KeyAndCertificate, pair = certificate) => ({ ...pair, ca: by.certificatePem });

async function start(): Promise<void> {
  server = new WebhookServer({ certificate: trusting(mine), pathPrefix: "/webhook", cells: new Set(["east"]) });
  handled = 0;
  const handle = () => {
    handled++;
    return { status: 200, body: "fine" };
  };
  server.serve({ handle, rejected: () => undefined, crashed: () => undefined });
  await server.listen(0, "127.0.0.1");
}

async function shown(by: KeyAndCertificate | undefined): Promise<Pick<AgentOptions, "cert" | "key">> {
  if (by === undefined) return {};
  const client = await issueCertificate(by, { ...validity, commonName: "apiserver", usages: ["client"] });
  return { cert: client.certificatePem, key: client.privateKeyPem };
}

interface Answer {
  readonly status: number;
  readonly connection: string | undefined;
}

async function asked(agent: Agent, port = server.port): Promise<Answer> {
  const headers = { "content-type": "application/json" };
  const call = { method: "POST", ca: authority.certificatePem, headers, agent };
  const { status, headers: given } = await httpsCall(`https://127.0.0.1:${port}/webhook/east`, call, "{}");
  return { status, connection: given.connection };
}

test("with a client CA, callers without its certificate fail at the handshake; a new CA counts at once", async () => {
  await start();
  const as = async (by?: KeyAndCertificate): Promise<number> => (await asked(new Agent(await shown(by)))).status;
  await expect(as()).rejects.toThrow();
  await expect(as(other)).rejects.toThrow();
  expect(await as(mine)).toBe(200);
  server.setCertificate(trusting(other));
  await expect(as(mine)).rejects.toThrow();
  expect(await as(other)).toBe(200);
});

test("an open connection by a certificate of an authority that is gone ends with its next response", async () => {
  await start();
  const agent = new Agent({ ...(await shown(mine)), keepAlive: true, maxSockets: 1 });
  const kept = { status: 200, connection: "keep-alive" };
  expect(await asked(agent)).toEqual(kept);
  server.setCertificate(trusting(mine, { cert, key }));
  expect(await asked(agent)).toEqual(kept);
  server.setCertificate(trusting(other));
  expect(await asked(agent)).toEqual({ status: 200, connection: "close" });
  await expect(asked(agent)).rejects.toThrow();
});

test("of requests that a client sends over it without waiting for that response, one counts", async () => {
  await start();
  const client = { ...(await shown(mine)), ca: authority.certificatePem, host: "127.0.0.1", port: server.port };
  const headers = "Host: webhook\r\nContent-Type: application/json\r\nContent-Length: 2";
  const one = `POST /webhook/east HTTP/1.1\r\n${headers}\r\n\r\n{}`;
  const socket = connect(client).on("data", () => {});
  await once(socket, "secureConnect");
  socket.write(one);
  await once(socket, "data");
  server.setCertificate(trusting(other));
  socket.write(one.repeat(5));
  await once(socket, "close");
  // The one before, and the first of these at most.
  expect(handled).toBeLessThanOrEqual(2);
});

test("a handshake that began before its authority was taken out leads to one response at most", async () => {
  await start();
  const began = Promise.withResolvers<() => void>();
  // Holds back what the client says after the server's part of the handshake.
  const between = createServer((client) => {
    const onward = connectTcp(server.port, "127.0.0.1").on("error", () => client.destroy());
    onward.pipe(client);
    client.once("data", (hello: Buffer) => {
      client.pause();
      onward.write(hello);
      onward.once("data", () => began.resolve(() => client.pipe(onward)));
    });
  });
  await once(between.listen(0, "127.0.0.1"), "listening");
  const address = between.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const answer = asked(new Agent({ ...(await shown(mine)), keepAlive: true, maxSockets: 1 }), port);
  const goOn = await began.promise;
  server.setCertificate(trusting(other));
  goOn();
  expect(await answer).toEqual({ status: 200, connection: "close" });
  between.close();
});

test.each(["TLSv1.2", "TLSv1.3"] as const)(
  "no session of a client with a certificate is resumed, which would outlive it: %s",
  async (maxVersion) => {
    await start();
    const client = { ...(await shown(mine)), ca: authority.certificatePem, host: "127.0.0.1", maxVersion };
    let session: Buffer | undefined;
    const isResumed = (): Promise<boolean> =>
      new Promise((resolve, reject) => {
        const socket = connect({ ...client, port: server.port, session }).on("session", (given: Buffer) => {
          session = given;
        });
        socket.on("secureConnect", () => socket.write("GET / HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n"));
        socket.on("error", reject).on("data", () => {});
        socket.on("end", () => resolve(socket.isSessionReused()));
      });
    expect([await isResumed(), await isResumed()]).toEqual([false, false]);
    server.setCertificate(trusting(mine, { cert, key }));
    session = undefined;
    expect([await isResumed(), await isResumed()]).toEqual([false, false]);
  },
);
