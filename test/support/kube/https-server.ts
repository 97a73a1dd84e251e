/** Real HTTPS servers on loopback, and transports to them, for the tests of the HTTPS transport. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { createServer as createHttpsServer, type Server } from "node:https";
import type { AddressInfo, Socket, Server as TcpServer } from "node:net";
import { onTestFinished } from "vitest";
import { createCertificateAuthority, issueCertificate } from "../../../shared/certificates/x509.ts";
import { createHttpsTransport, type HttpsTransportOptions } from "../../../shared/kube/client/https-transport.ts";
import { type Transport, TransportError } from "../../../shared/kube/client/transport.ts";
import type { ClusterAccess, Credentials, TlsMaterial } from "../../../shared/kube/credentials/cluster-access.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";

export const VALID = { notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1) };
export const SECRET = "token-that-must-not-show";

export const authority = await createCertificateAuthority({ ...VALID, commonName: "test" });
export const serving = await issueCertificate(authority, {
  ...VALID,
  commonName: "apiserver",
  ipAddresses: ["127.0.0.1"],
  usages: ["server"],
});

interface TestServer {
  readonly transport: Transport;
  readonly sockets: Set<Socket>;
  readonly seen: { authorization: string | undefined; url: string | undefined }[];
  credentials: Credentials;
  rejections: number;
  /** The result of `current` after a rejection. */
  renewed: Credentials | undefined;
}

export function material(overrides: Partial<TlsMaterial> = {}): TlsMaterial {
  return {
    ca: authority.certificatePem,
    cert: undefined,
    key: undefined,
    serverName: undefined,
    skipVerification: false,
    proxy: undefined,
    ...overrides,
  };
}

export function accessTo(
  server: string,
  setup: Pick<TestServer, "credentials" | "rejections" | "renewed">,
): ClusterAccess {
  return {
    description: "test",
    server,
    namespace: undefined,
    credentials: {
      current: async () => (setup.rejections > 0 && setup.renewed ? setup.renewed : setup.credentials),
      rejected: () => {
        setup.rejections++;
      },
    },
  };
}

export async function listen(server: Server | TcpServer): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

export async function startServer(
  listener: RequestListener,
  options: Partial<HttpsTransportOptions> = {},
  tls = material(),
): Promise<TestServer> {
  const sockets = new Set<Socket>();
  const seen: TestServer["seen"] = [];
  const server = createHttpsServer(
    { key: serving.privateKeyPem, cert: serving.certificatePem },
    (request, response) => {
      sockets.add(request.socket);
      seen.push({ authorization: request.headers.authorization, url: request.url });
      listener(request, response);
    },
  );
  const port = await listen(server);
  const state = { credentials: { authorization: `Bearer ${SECRET}`, tls }, rejections: 0, renewed: undefined };
  const made: TestServer = { ...state, sockets, seen, transport: undefined as unknown as Transport };
  const transport = createHttpsTransport(accessTo(`https://127.0.0.1:${port}`, made), {
    ports: systemPorts,
    userAgent: "test",
    ...options,
  });
  onTestFinished(() => transport.close());
  return Object.assign(made, { transport });
}

export function plainTransport(port: number, tls = material(), ports = systemPorts): Transport {
  const state = { credentials: { authorization: `Bearer ${SECRET}`, tls }, rejections: 0, renewed: undefined };
  const transport = createHttpsTransport(accessTo(`https://127.0.0.1:${port}`, state), { ports, userAgent: "test" });
  onTestFinished(() => transport.close());
  return transport;
}

/** Ports whose timers of `delayMs` fire as soon as the client has the head of a response, at whatever speed. */
export function expiringAtHead(delayMs: number): Ports {
  const deadlines = new Set<() => void>();
  const expire = (): void =>
    void setImmediate(() => {
      for (const pass of deadlines) pass();
    });
  subscribe("http.client.response.finish", expire);
  onTestFinished(() => void unsubscribe("http.client.response.finish", expire));
  const after: Ports["timers"]["after"] = (ms, callback) => {
    if (ms !== delayMs) return systemPorts.timers.after(ms, callback);
    deadlines.add(callback);
    return { cancel: () => void deadlines.delete(callback) };
  };
  return { ...systemPorts, timers: { ...systemPorts.timers, after } };
}

export async function failure(work: Promise<unknown>): Promise<TransportError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof TransportError)) throw new Error(`no TransportError: ${String(error)}`);
  return error;
}

export const ok = (_: IncomingMessage, response: ServerResponse): void => {
  response.end("{}");
};
export const GET = { method: "GET", path: "/api", timeoutMs: 5000 } as const;
