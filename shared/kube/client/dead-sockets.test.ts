import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { expect, test } from "vitest";
import { GET, startServer } from "../../../test/support/kube/https-server.ts";

const SOCKETS = 16;

test("after a half-open cut one call finds the dead connections, not one call for each of them", async () => {
  const dead = new Set<Socket>();
  const waiting: ServerResponse[] = [];
  const it = await startServer((request, response) => {
    // A router that has lost its state answers nothing, and resets nothing.
    if (dead.has(request.socket)) return;
    if (it.sockets.size < SOCKETS) waiting.push(response);
    else for (const one of [...waiting.splice(0), response]) one.end("{}");
  });
  await Promise.all(Array.from({ length: SOCKETS }, () => it.transport.request(GET)));
  expect(it.sockets.size).toBe(SOCKETS);
  for (const socket of it.sockets) dead.add(socket);
  let timeouts = 0;
  for (let call = 0; call < SOCKETS + 1; call++) {
    await it.transport.request({ ...GET, timeoutMs: 300 }).catch(() => timeouts++);
  }
  expect(timeouts).toBe(1);
});
