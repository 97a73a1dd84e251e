import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { GET, startServer } from "../../../test/support/kube/https-server.ts";

const BODY_BYTES = 32 * 1024 * 1024;

/** Bytes of buffers that are still referenced. */
async function heldBytes(): Promise<number> {
  setFlagsFromString("--expose-gc");
  const collect: unknown = runInNewContext("gc");
  for (let times = 0; times < 3; times++) {
    if (typeof collect === "function") collect();
    await turn();
  }
  return process.memoryUsage().arrayBuffers;
}

test("a connection does not keep the body of its first response", async () => {
  const it = await startServer((_, response) => response.end("x".repeat(BODY_BYTES)));
  const before = await heldBytes();
  expect((await it.transport.request({ ...GET, timeoutMs: 60_000 })).body).toHaveLength(BODY_BYTES);
  expect([...it.sockets].map(({ destroyed }) => destroyed)).toEqual([false]);
  expect((await heldBytes()) - before).toBeLessThan(BODY_BYTES / 2);
});
