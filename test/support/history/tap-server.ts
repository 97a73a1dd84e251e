/**
 * The thread of the tap: passes every byte on, and tells each request with its response. Each connection has one of its
 * own to the other side, so that what closes one closes the other.
 */
import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect, createServer, type TLSSocket } from "node:tls";
import { parentPort, workerData } from "node:worker_threads";
import * as v from "valibot";
import { type HttpMessage, MessageReader } from "./message-reader.ts";

const { target, certificatePem, privateKeyPem, position } = v.parse(
  v.object({
    target: v.object({ host: v.string(), port: v.number() }),
    certificatePem: v.string(),
    privateKeyPem: v.string(),
    position: v.instance(Float64Array),
  }),
  workerData,
);

const server = createServer({ cert: certificatePem, key: privateKeyPem }, serve);
server.on("tlsClientError", () => {});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const address = server.address();
parentPort?.postMessage(typeof address === "object" && address !== null ? address.port : 0);

/** What is known now; called with the first byte of a request. */
function begin(): { readonly from: { readonly history: number; readonly revision: number }; readonly fromMs: number } {
  return { from: { history: position[0] ?? 0, revision: position[1] ?? 0 }, fromMs: Date.now() };
}

function serve(client: TLSSocket): void {
  // Between two processes of this machine: nobody else has the port.
  const upstream = connect({ socket: connectTcp(target), rejectUnauthorized: false });
  let begun: ReturnType<typeof begin> | undefined;
  let request: HttpMessage | undefined;
  const tell = (response: HttpMessage | undefined): void => {
    if (request !== undefined) parentPort?.postMessage({ ...begun, toMs: Date.now(), request, response });
    [begun, request] = [undefined, undefined];
  };
  const requests = new MessageReader((message) => {
    request = message;
  });
  const responses = new MessageReader(tell);
  client.on("data", (bytes: Buffer) => {
    begun ??= begin();
    requests.push(bytes);
    upstream.write(bytes);
  });
  upstream.on("data", (bytes: Buffer) => {
    responses.push(bytes);
    client.write(bytes);
  });
  let isOpen = true;
  const close = (): void => {
    if (isOpen) tell(undefined);
    isOpen = false;
    client.destroy();
    upstream.destroy();
  };
  for (const socket of [client, upstream]) {
    socket.on("error", close);
    socket.on("close", close);
  }
}
