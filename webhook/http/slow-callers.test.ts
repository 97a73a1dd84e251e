import { once } from "node:events";
import { setImmediate as turn } from "node:timers/promises";
import { connect, type TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { authority, certificate } from "../../test/support/webhook/loopback-certificate.ts";
import { NODE_LIMITS, WebhookServer } from "./server.ts";
import { BODY_CHECKS, HEADERS_CHECKS } from "./slow-callers.ts";

/** Go's default transport keeps a connection that it does not need for so long. */
const GO_IDLE_MS = 90_000;
const HEAD = "POST /webhook/east HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n";
const REQUEST = `${HEAD}Content-Length: 2\r\n\r\n{}`;

let server: WebhookServer;
let socket: TLSSocket;
let received = "";

beforeEach(async () => {
  server = new WebhookServer({
    certificate,
    pathPrefix: "/webhook",
    cells: new Set(["east"]),
  });
  server.serve({
    handle: () => ({ status: 200, body: "{}" }),
    rejected: () => undefined,
    crashed: () => undefined,
  });
  await server.listen(0, "127.0.0.1");
  received = "";
  socket = connect({ host: "127.0.0.1", port: server.port, ca: authority.certificatePem });
  socket.setEncoding("utf8").on("data", (text: string) => {
    received += text;
  });
  await once(socket, "secureConnect");
});

afterEach(async () => {
  socket.destroy();
  await server.close();
});

/** Looks until the connection has ended; how often. */
async function looksUntilClosed(): Promise<number> {
  let looks = 0;
  for (; !socket.closed && !socket.readableEnded; looks++) {
    server.slowCallers.check();
    await turn();
  }
  return looks;
}

async function lookOften(): Promise<void> {
  for (let looks = 0; looks < 10 * BODY_CHECKS; looks++) {
    server.slowCallers.check();
    await turn();
  }
}

async function answered(count: number): Promise<void> {
  while (received.split("HTTP/1.1 200").length <= count) await once(socket, "data");
}

describe("a connection", () => {
  it("on which nothing was sent stays, and serves when it is needed", async () => {
    await lookOften();
    socket.write(REQUEST);
    await answered(1);
  });

  it("that has had its answer stays", async () => {
    for (let count = 1; count <= 3; count++) {
      socket.write(REQUEST);
      await answered(count);
      await lookOften();
    }
    expect(socket.closed).toBe(false);
  });

  it.each([
    ["half of its headers", HEAD, HEADERS_CHECKS],
    ["half of its body", `${HEAD}Content-Length: 2\r\n\r\n{`, BODY_CHECKS],
  ])("that sent %s is told so and closed", async (_what, text, ticks) => {
    socket.write(text);
    expect(await looksUntilClosed()).toBeGreaterThan(ticks);
    expect(received).toMatch(/^HTTP\/1.1 408 /);
  });

  it("that sent a request and half of the next one's body in one piece is closed", async () => {
    socket.write(`${REQUEST}${HEAD}Content-Length: 2\r\n\r\n{`);
    await answered(1);
    await looksUntilClosed();
    expect(received).toContain("HTTP/1.1 408 ");
  });

  it("whose answers are not read is closed", async () => {
    socket.pause();
    // Each is refused with its own path, until no buffer on the way takes any more.
    const request = REQUEST.replace("east", "x".repeat(14_000));
    socket.on("error", () => undefined);
    for (let looks = 0; looks < 100 * BODY_CHECKS && !socket.closed; ) {
      if (socket.writableLength < 1_000_000) socket.write(request);
      else {
        server.slowCallers.check();
        looks++;
      }
      await turn();
    }
    await expect.poll(() => socket.closed).toBe(true);
  });

  it("that sent half of its second request is closed", async () => {
    socket.write(REQUEST);
    await answered(1);
    socket.write(HEAD);
    await looksUntilClosed();
    expect(received).toContain("HTTP/1.1 408 ");
  });
});

it("outlives what an apiserver keeps for later, as far as Node is concerned", () => {
  const { keepAliveTimeout, headersTimeout, requestTimeout } = NODE_LIMITS;
  expect(Math.min(keepAliveTimeout, headersTimeout, requestTimeout)).toBeGreaterThan(GO_IDLE_MS);
});
