/** What the reflector is told; `reflector.continuity.test.ts` has what it does then. */
import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { StreamContinuity } from "./stream-continuity.ts";

function start() {
  const time = new VirtualTime();
  const process = time.process();
  const facts: { confirmedMs: number | undefined; heardMs: number | undefined } = {
    ...{ confirmedMs: undefined, heardMs: undefined },
  };
  const continuity = new StreamContinuity({
    ports: process,
    confirmedSentMs: () => facts.confirmedMs,
    heardMs: () => facts.heardMs,
    requestEvidence: () => {},
  });
  continuity.start();
  const stall = async (): Promise<void> => {
    process.pause();
    await time.advance(5_000);
    process.resume();
    await time.advance(1_000);
  };
  return { time, facts, continuity, stall, nowMs: () => process.clock.monotonicMs() };
}

test("a stall lasts over the request for another stream, until a complete list or a later LIST", async () => {
  const { time, facts, continuity, stall, nowMs } = start();
  continuity.listed(nowMs());
  await stall();
  continuity.resuming(nowMs());
  continuity.resumed();
  expect([continuity.hasStalled, continuity.brokenBy]).toEqual([true, "standstill"]);
  facts.confirmedMs = nowMs();
  expect([continuity.hasStalled, continuity.brokenBy]).toEqual([false, undefined]);
  await stall();
  expect(continuity.hasStalled).toBe(true);
  await time.advance(1_000);
  continuity.listed(nowMs());
  expect([continuity.hasStalled, continuity.brokenBy]).toEqual([false, undefined]);
});

test("a stall before the request for the present stream is no longer one when the server was restored", async () => {
  const { time, facts, continuity, stall, nowMs } = start();
  await stall();
  facts.confirmedMs = nowMs();
  await time.advance(1_000);
  continuity.resuming(nowMs());
  facts.confirmedMs = undefined;
  expect(continuity.hasStalled).toBe(false);
});

test("an outage is over once the server opens a stream", async () => {
  const { time, continuity } = start();
  continuity.failed("reset");
  await time.advance(999);
  expect(continuity.brokenBy).toBeUndefined();
  await time.advance(1);
  expect(continuity.brokenBy).toBe("outage");
  continuity.resumed();
  continuity.failed("reset");
  expect(continuity.brokenBy).toBeUndefined();
});

test("the server has held a stream since its request, once it is open, and for a second", async () => {
  const { time, continuity, nowMs } = start();
  const sinceMs = nowMs();
  continuity.resuming(sinceMs);
  await time.advance(5_000);
  expect(continuity.heldSinceMs).toBeUndefined();
  continuity.resumed();
  expect(continuity.heldSinceMs).toBe(sinceMs);
  continuity.resuming(nowMs());
  await time.advance(5_000);
  expect(continuity.heldSinceMs).toBeUndefined();
});
