import { once } from "node:events";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { connect, type TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { authority, certificate } from "../../test/support/webhook/loopback-certificate.ts";
import { NODE_LIMITS, type Service, WebhookServer } from "./server.ts";
import { BODY_CHECKS, HEADERS_CHECKS } from "./slow-callers.ts";

/** Go's default transport keeps an idle connection for this long. */
const GO_IDLE_MS = 90_000;
/** Between two ends of one machine. */
const ARRIVES_MS = 100;
const HEAD = "POST /webhook/east HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n";
const REQUEST = `${HEAD}Content-Length: 2\r\n\r\n{}`;

let server: WebhookServer;
let socket: TLSSocket;
let received = "";

const SERVICE: Service = {
  handle: () => ({ status: 200, body: "{}" }),
  rejected: () => undefined,
  crashed: () => undefined,
};

/** The server is starting until it is told what serves the calls. */
beforeEach(async () => {
  server = new WebhookServer({ certificate, pathPrefix: "/webhook", cells: new Set(["east"]) });
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

/** Checks until the connection has ended. Returns how often. */
async function checksUntilClosed(): Promise<number> {
  let checks = 0;
  for (; !socket.closed && !socket.readableEnded; checks++) {
    server.slowCallers.check();
    await turn();
  }
  return checks;
}

async function checkOften(): Promise<void> {
  for (let checks = 0; checks < 10 * BODY_CHECKS; checks++) {
    server.slowCallers.check();
    await turn();
  }
}

async function answered(count: number): Promise<void> {
  while (received.split("HTTP/1.1 200").length <= count) await once(socket, "data");
}

describe("a connection", () => {
  beforeEach(() => server.serve(SERVICE));

  it("on which nothing was sent stays, and serves a later request", async () => {
    await checkOften();
    socket.write(REQUEST);
    await answered(1);
  });

  it("that has had its response stays", async () => {
    for (let count = 1; count <= 3; count++) {
      socket.write(REQUEST);
      await answered(count);
      await checkOften();
    }
    expect(socket.closed).toBe(false);
  });

  it.each([
    ["half of its headers", HEAD, HEADERS_CHECKS],
    ["half of its body", `${HEAD}Content-Length: 2\r\n\r\n{`, BODY_CHECKS],
  ])("that sent %s gets 408 and is closed", async (_what, text, ticks) => {
    socket.write(text);
    expect(await checksUntilClosed()).toBeGreaterThan(ticks);
    expect(received).toMatch(/^HTTP\/1.1 408 /);
  });

  it("that sent a request and half of the next one's body in one piece is closed", async () => {
    socket.write(`${REQUEST}${HEAD}Content-Length: 2\r\n\r\n{`);
    await answered(1);
    await checksUntilClosed();
    expect(received).toContain("HTTP/1.1 408 ");
  });

  it("whose responses are not read is closed", async () => {
    socket.pause();
    // Each is rejected with its own path, until every buffer on the way is full.
    const request = REQUEST.replace("east", "x".repeat(14_000));
    socket.on("error", () => undefined);
    for (let checks = 0; checks < 100 * BODY_CHECKS && !socket.closed; ) {
      if (socket.writableLength < 1_000_000) socket.write(request);
      else {
        server.slowCallers.check();
        checks++;
      }
      await turn();
    }
    await expect.poll(() => socket.closed).toBe(true);
  });

  it("that sent half of its second request is closed", async () => {
    socket.write(REQUEST);
    await answered(1);
    socket.write(HEAD);
    await checksUntilClosed();
    expect(received).toContain("HTTP/1.1 408 ");
  });
});

it("a connection whose body arrives after its response stays, and serves a later request", async () => {
  socket.write(`${HEAD}Content-Length: 2\r\n\r\n`);
  while (!received.includes("starting")) await once(socket, "data");
  socket.write("{}");
  await sleep(ARRIVES_MS);
  await checkOften();
  expect(received).not.toContain("HTTP/1.1 408 ");
  server.serve(SERVICE);
  socket.write(REQUEST);
  await answered(1);
});

it("Node's own limits are longer than an apiserver keeps an idle connection", () => {
  const { keepAliveTimeout, headersTimeout, requestTimeout } = NODE_LIMITS;
  expect(Math.min(keepAliveTimeout, headersTimeout, requestTimeout)).toBeGreaterThan(GO_IDLE_MS);
});
