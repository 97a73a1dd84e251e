import { once } from "node:events";
import { connect, type TLSSocket } from "node:tls";
import { afterEach, expect, test } from "vitest";
import { authority, certificate } from "../../test/support/webhook/loopback-certificate.ts";
import type { CallHandler } from "./call.ts";
import { CHUNK_BYTES, type InFlightLimits } from "./in-flight-limiter.ts";
import { LARGE_BODY_BYTES, MAX_BYTES_IN_FLIGHT, MAX_CONNECTIONS, MAX_REQUEST_BYTES } from "./limits.ts";
import { WebhookServer } from "./server.ts";

const HEAD = "POST /webhook/east HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n";
const REQUEST = `${HEAD}Content-Length: 2\r\n\r\n{}`;
const HALF = `${HEAD}Content-Length: 2\r\n\r\n{`;
const REFUSED = /^HTTP\/1\.1 503 .*connection: close.*too many admission requests/is;

let server: WebhookServer;
const callers: TLSSocket[] = [];
const rejected: number[] = [];

afterEach(async () => {
  for (const caller of callers.splice(0)) caller.destroy();
  rejected.length = 0;
  await server.close();
});

type Limits = Pick<InFlightLimits, "requests" | "bytes"> & Partial<InFlightLimits>;

async function start(limits: Limits, handle: CallHandler = () => ({ status: 200, body: "{}" })): Promise<void> {
  server = new WebhookServer({
    certificate,
    pathPrefix: "/webhook",
    cells: new Set(["east"]),
    limits: { values: 1_000, connections: MAX_CONNECTIONS, ...limits },
  });
  server.serve({ handle, rejected: (status) => rejected.push(status), crashed: () => undefined });
  await server.listen(0, "127.0.0.1");
}

interface Caller {
  readonly socket: TLSSocket;
  /** What the server has sent so far. */
  readonly heard: () => string;
}

async function call(text: string | Buffer, ...more: readonly (string | Buffer)[]): Promise<Caller> {
  const socket = connect({ host: "127.0.0.1", port: server.port, ca: authority.certificatePem });
  callers.push(socket);
  let heard = "";
  socket.setEncoding("utf8").on("data", (said: string) => {
    heard += said;
  });
  // The server may close under a caller that is still sending.
  socket.on("error", () => undefined);
  await once(socket, "secureConnect");
  socket.write(text);
  for (const one of more) socket.write(one);
  return { socket, heard: () => heard };
}

test("requests that are half sent are evicted for complete ones, the oldest first", async () => {
  await start({ requests: 3, bytes: MAX_BYTES_IN_FLIGHT });
  const slow: Caller[] = [];
  for (let count = 1; count <= 3; count++) {
    slow.push(await call(HALF));
    await expect.poll(() => server.inFlight).toBe(count);
  }
  const prompt = await call(REQUEST);
  await expect.poll(prompt.heard).toMatch(/^HTTP\/1\.1 200 /);
  await expect.poll(() => slow[0]?.heard()).toMatch(REFUSED);
  await expect.poll(() => slow[0]?.socket.closed).toBe(true);
  expect(slow.slice(1).map(({ heard }) => heard())).toEqual(["", ""]);
  expect(rejected).toEqual([503]);
  // A request that was not evicted is served once it is complete.
  slow[1]?.socket.write("}");
  await expect.poll(() => slow[1]?.heard()).toMatch(/^HTTP\/1\.1 200 /);
  await expect.poll(() => server.inFlight).toBe(1);
});

test("complete requests keep their slots until their response; one more gets 503", async () => {
  const gate = Promise.withResolvers<void>();
  await start({ requests: 2, bytes: MAX_BYTES_IN_FLIGHT }, () =>
    gate.promise.then(() => ({ status: 200, body: "{}" })),
  );
  const waiting = [await call(REQUEST), await call(REQUEST)];
  await expect.poll(() => server.inFlight).toBe(2);
  const refused = await call(REQUEST);
  await expect.poll(refused.heard).toMatch(/^HTTP\/1\.1 503 /);
  gate.resolve();
  for (const { heard } of waiting) await expect.poll(heard).toMatch(/^HTTP\/1\.1 200 /);
  // So that the caller's next request may reach another replica.
  expect(refused.heard()).toMatch(REFUSED);
  await expect.poll(() => server.bodyBytes).toBe(0);
  await expect.poll((await call(REQUEST)).heard).toMatch(/^HTTP\/1\.1 200 /);
});

test("bodies that never end stay within their bound, and other requests are served meanwhile", async () => {
  const bytes = 3 * MAX_REQUEST_BYTES;
  await start({ requests: 10, bytes });
  const most = Buffer.alloc(MAX_REQUEST_BYTES - 1, " ");
  most.write('{"operation":"UPDATE"');
  const slow: Caller[] = [];
  for (let count = 0; count < 4; count++) {
    slow.push(await call(`${HEAD}Content-Length: ${MAX_REQUEST_BYTES}\r\n\r\n`, most));
  }
  await expect.poll(() => rejected).toContain(503);
  await expect.poll(() => slow[0]?.heard()).toMatch(REFUSED);
  expect(server.bodyBytes).toBeLessThanOrEqual(bytes);
  await expect.poll((await call(REQUEST)).heard).toMatch(/^HTTP\/1\.1 200 /);
  for (const { socket } of slow) socket.destroy();
  await expect.poll(() => server.bodyBytes).toBe(0);
});

test("a body in tiny chunks counts with the overhead of each chunk", async () => {
  const chunks = 100;
  await start({ requests: 10, bytes: chunks * CHUNK_BYTES });
  const { heard } = await call(`${HEAD}Transfer-Encoding: chunked\r\n\r\n${"1\r\n \r\n".repeat(chunks)}`);
  await expect.poll(heard).toMatch(REFUSED);
  await expect.poll(() => server.bodyBytes).toBe(0);
});

test.each([
  ["a body that is not large has", 40_000],
  ["a large body has", 46_000],
])("requests that wait hold so many values together, whatever %s", async (_what, arrays) => {
  const gate = Promise.withResolvers<void>();
  await start({ requests: 200, bytes: MAX_BYTES_IN_FLIGHT, values: 7 * arrays }, () =>
    gate.promise.then(() => ({ status: 200, body: "{}" })),
  );
  const body = JSON.stringify(Array.from({ length: arrays }, () => []));
  const request = `${HEAD}Content-Length: ${body.length}\r\n\r\n${body}`;
  const sent = await Promise.all(Array.from({ length: 60 }, () => call(request)));
  const answered = (status: number): number =>
    sent.filter(({ heard }) => heard().startsWith(`HTTP/1.1 ${status} `)).length;
  await expect.poll(() => server.inFlight + answered(503), { timeout: 10_000 }).toBe(sent.length);
  expect(answered(503)).toBeGreaterThan(10);
  gate.resolve();
  await expect.poll(() => answered(200) + answered(503)).toBe(sent.length);
  // Whoever has left has freed its room.
  await expect.poll((await call(request)).heard).toMatch(/^HTTP\/1\.1 200 /);
});

// A tenant deletes pods of megabytes whose owner, which its protector has asked, does not answer.
test.each([
  ["bytes", 4, { bytes: 5 * LARGE_BODY_BYTES, values: 1_000 }],
  ["values", 40, { bytes: MAX_BYTES_IN_FLIGHT, values: 200 }],
])("large bodies that wait leave half of the %s to others", async (_what, count, limits) => {
  const gate = Promise.withResolvers<void>();
  await start({ requests: 200, ...limits }, () => gate.promise.then(() => ({ status: 200, body: "{}" })));
  const bodyOf = (bytes: number): string => `[0,0,0,0,0${" ".repeat(bytes - 11)}]`;
  const [large, small] = [LARGE_BODY_BYTES + 1, LARGE_BODY_BYTES / 2].map(
    (bytes) => `${HEAD}Content-Length: ${bytes}\r\n\r\n${bodyOf(bytes)}`,
  );
  const sent = await Promise.all(Array.from({ length: count }, () => call(large ?? "")));
  const answered = (of: readonly Caller[]): number => of.filter(({ heard }) => heard() !== "").length;
  await expect.poll(() => server.inFlight + answered(sent)).toBe(count);
  const others = [await call(small ?? ""), await call(small ?? "")];
  await expect.poll(() => server.inFlight + answered([...sent, ...others])).toBe(count + others.length);
  expect(others.map(({ heard }) => heard())).toEqual(["", ""]);
  gate.resolve();
  for (const { heard } of [sent[0], ...others].filter((one) => one !== undefined))
    await expect.poll(heard).toMatch(/^HTTP\/1\.1 200 /);
});
