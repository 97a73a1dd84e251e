import { describe, expect, test } from "vitest";
import {
  parseThing,
  ReflectorHarness,
  raw,
  reflectorHarness,
  type Thing,
} from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { Ports } from "../../runtime/clock.ts";

describe("pace", () => {
  test.each([
    ["connections are refused", "refused"],
    ["each stream is reset", "reset"],
    ["lists answer 500", "500"],
    ["each watch says 410", "410"],
    ["each stream ends at once", "end"],
    ["each stream says one thing and is reset", "one"],
    ["each stream is garbage", "garbage"],
  ])("when %s, at most ten requests go out in the first ten seconds, then at most one every five", async (_, fault) => {
    const it = reflectorHarness();
    const good = page("10", [raw("a", "5")]);
    if (fault !== "500") for (let i = 0; i < 50; i++) it.transport.lists.push(good);
    for (let i = 0; i < 50; i++) {
      if (fault === "500") it.transport.lists.push(statusAnswer(500));
      if (fault === "reset") it.transport.watches.push("reset");
      if (fault === "410") it.transport.watches.push(statusAnswer(410));
      if (fault === "end") it.transport.watches.push(new ScriptedStream().end());
      if (fault === "one")
        it.transport.watches.push(new ScriptedStream().event("ADDED", raw("c", `${11 + i}`)).fail("reset"));
      if (fault === "garbage") it.transport.watches.push(new ScriptedStream().text("#\n"));
    }
    await it.start();
    const before = it.transport.requests.length;
    await it.time.advance(10_000);
    const inOutage = it.transport.requests.length - before;
    expect(inOutage).toBeGreaterThan(3);
    expect(inOutage).toBeLessThanOrEqual(10);
    await it.time.advance(60_000);
    // A 410 or garbage costs one list and one watch each time.
    expect(it.transport.requests.length - before - inOutage).toBeLessThanOrEqual(24);
  });

  test("when the process stalls in each list, such as a throttled one, it does not list at full speed", async () => {
    const time = new VirtualTime();
    const view = time.process({ seed: 7 });
    let stalledMs = 0;
    const ports: Ports = {
      random: view.random,
      timers: view.timers,
      clock: { nowMs: () => view.clock.nowMs(), monotonicMs: () => view.clock.monotonicMs() + stalledMs },
    };
    const parse = (object: unknown): Thing => {
      stalledMs += 1500;
      return parseThing(object);
    };
    const { source, transport } = new ReflectorHarness({ ports, parse });
    for (let i = 0; i < 300; i++) {
      transport.lists.push(page(`${10 + i}`, [raw("a", "5")]));
      transport.watches.push(new ScriptedStream());
    }
    source.start();
    await time.advance(10_000);
    expect(transport.requests.filter((request) => request.startsWith("LIST limit=250")).length).toBeLessThanOrEqual(10);
    await source.stop();
  });

  test("after a healthy stream the first try comes soon again", async () => {
    const it = reflectorHarness();
    await it.start("reset", "reset", "reset", "reset", "reset", "reset");
    for (let time = 0; time < 20; time++) it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6")]));
    await it.time.advance(30_000);
    const stream = new ScriptedStream().event("ADDED", raw("c", "11"));
    it.transport.watches.push(stream);
    await it.time.advance(11_000);
    stream.fail("reset");
    it.transport.watches.push(new ScriptedStream());
    await it.time.settle();
    const last = it.events.filter((event) => event.kind === "failed").at(-1);
    expect(last?.retryMs).toBeLessThanOrEqual(250);
  });

  test("stop ends the loop, its stream and its timers", async () => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    const stream = new ScriptedStream();
    await it.start(stream);
    await it.source.stop();
    const before = it.transport.requests.length;
    stream.event("ADDED", raw("c", "11"));
    await it.time.advance(60_000);
    expect([it.transport.requests.length, it.state(), stream.closed, it.time.pendingTimers]).toEqual([
      before,
      "10: a@5 b@6",
      true,
      0,
    ]);
  });
});
