import { expect, test } from "vitest";
import { JSON_TYPE } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { sleep } from "../../runtime/clock.ts";
import { readWatch } from "./watch.ts";

test("the body of a rejected watch is not read for long, however slowly it comes", async () => {
  const time = new VirtualTime();
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (;;) {
      yield new TextEncoder().encode("x");
      await sleep(time, 5_000);
    }
  }
  const stream = { status: 503, headers: JSON_TYPE, chunks: chunks(), close: () => undefined };
  const failed = readWatch({
    ...{ name: "things", resourceVersion: "1", timeoutSeconds: 7, isMoved: false },
    transport: { request: () => Promise.reject(), stream: () => Promise.resolve(stream), close() {} },
    ports: time,
    collection: { path: "/things", query: {} },
    signal: new AbortController().signal,
    ...{ contact: () => undefined, opened: () => undefined, each: () => undefined },
  }).catch((error: unknown) => String(error));
  await time.advance(60_000);
  expect(await Promise.race([failed, time.settle()])).toMatch(/HTTP 503/);
});
