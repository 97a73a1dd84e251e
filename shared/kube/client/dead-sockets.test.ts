import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { expect, test } from "vitest";
import { GET, startServer } from "../../../test/support/kube/https-server.ts";
import type { ApiRequest } from "./transport.ts";

const SOCKETS = 16;

/** A server that has answered on this many connections, and tells of calls that come by one of the `dead`. */
async function withDeadSockets(method: ApiRequest["method"], dead: (socket: Socket) => void) {
  const cut = new Set<Socket>();
  const waiting: ServerResponse[] = [];
  const it = await startServer((request, response) => {
    if (cut.has(request.socket)) return dead(request.socket);
    if (it.sockets.size < SOCKETS) waiting.push(response);
    else for (const one of [...waiting.splice(0), response]) one.end("{}");
  });
  await Promise.all(Array.from({ length: SOCKETS }, () => it.transport.request({ ...GET, method })));
  expect(it.sockets.size).toBe(SOCKETS);
  for (const socket of it.sockets) cut.add(socket);
  return it;
}

test("after a half-open cut one call finds the dead connections, not one call for each of them", async () => {
  // A router that has lost its state answers nothing, and resets nothing.
  const it = await withDeadSockets("GET", () => {});
  let timeouts = 0;
  for (let call = 0; call < SOCKETS + 1; call++) {
    await it.transport.request({ ...GET, timeoutMs: 300 }).catch(() => timeouts++);
  }
  expect(timeouts).toBe(1);
});

test.each([
  ["a read none", "GET" as const, 0],
  ["a write one", "PUT" as const, 1],
])("after a failover, where each idle connection is reset when it is used, %s fails", async (_, method, failures) => {
  // Another machine has the address now, and knows none of the connections.
  const it = await withDeadSockets(method, (socket) => void socket.destroy());
  let resets = 0;
  for (let call = 0; call < SOCKETS + 1; call++) {
    await it.transport.request({ ...GET, method }).catch(() => resets++);
  }
  expect(resets).toBe(failures);
});
