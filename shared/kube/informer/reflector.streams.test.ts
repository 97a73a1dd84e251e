import { describe, expect, test } from "vitest";
import { EXPIRED, parseThing, raw, reflectorHarness } from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";

describe("streams", () => {
  test("events change the store and the position in order; a bookmark moves the position alone", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream);
    it.notices.length = 0;
    stream.event("ADDED", raw("c", "11")).event("MODIFIED", raw("a", "12")).event("DELETED", raw("b", "13"));
    stream.event("BOOKMARK", { metadata: { resourceVersion: "20" } });
    await it.time.settle();
    expect(it.state()).toBe("20: a@12 c@11");
    expect(it.notices).toEqual(["- > c@11", "a@5 > a@12", "b@6 > -"]);
  });

  test("the gap before each event and bookmark is told, over the end of a stream", async () => {
    const gaps: number[] = [];
    const it = reflectorHarness({ onHeard: (gapMs) => gaps.push(gapMs) });
    const [first, second] = [new ScriptedStream(), new ScriptedStream()];
    await it.start(first, second);
    await it.time.advance(1000);
    first.event("ADDED", raw("c", "11")).event("MODIFIED", raw("a", "12"));
    await it.time.advance(5000);
    first.end();
    await it.time.advance(500);
    second.event("BOOKMARK", { metadata: { resourceVersion: "20" } });
    await it.time.settle();
    expect(gaps).toEqual([1000, 0, 5500]);
  });

  test("a changed UID is a deletion and an addition; a late deletion of the old UID changes nothing", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream);
    it.notices.length = 0;
    stream.event("MODIFIED", raw("a", "11", "red", "a-new")).event("DELETED", raw("a", "12"));
    await it.time.settle();
    expect(it.notices).toEqual(["a@5 > -", "- > a@11"]);
    expect(it.state()).toBe("12: a@11 b@6");
  });

  test("a stream that the server ends on time is followed at once by the next, from the last position", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream().event("BOOKMARK", { metadata: { resourceVersion: "15" } });
    await it.start(stream, new ScriptedStream());
    await it.time.advance(6000);
    stream.end();
    await it.time.settle();
    expect(it.transport.requests.slice(1)).toEqual(["WATCH resourceVersion=10", "WATCH resourceVersion=15"]);
    expect(it.failures()).toEqual([]);
    expect(it.relists()).toBe(0);
  });

  test.each([
    ["a reset", (s: ScriptedStream) => s.fail("reset"), "watch reset", "WATCH resourceVersion=11"],
    [
      "silence",
      (s: ScriptedStream) => s.fail("timeout"),
      "watch timeout",
      "LIST limit=250&resourceVersion=11&resourceVersionMatch=NotOlderThan",
    ],
    ["an early end", (s: ScriptedStream) => s.end(), "watch ended-early", "WATCH resourceVersion=11"],
    [
      "a cut line",
      (s: ScriptedStream) => s.text('{"type":"ADDED","obj').end(),
      "watch ended-early",
      "WATCH resourceVersion=11",
    ],
    [
      "an ERROR event",
      (s: ScriptedStream) => s.event("ERROR", { kind: "Status", code: 500, message: "oh" }),
      "watch error-event",
      "WATCH resourceVersion=11",
    ],
    [
      "410 in the stream",
      (s: ScriptedStream) => s.event("ERROR", EXPIRED),
      "watch expired",
      "LIST limit=250&resourceVersion=11&resourceVersionMatch=NotOlderThan",
    ],
    [
      "a garbage line",
      (s: ScriptedStream) => s.text("%%%\n"),
      "watch corrupt",
      "LIST limit=250&resourceVersion=11&resourceVersionMatch=NotOlderThan",
    ],
    [
      "bytes that are not UTF-8",
      (s: ScriptedStream) => s.bytes(Uint8Array.of(0x22, 0xff, 0x22, 0x0a)),
      "watch corrupt",
      "LIST limit=250&resourceVersion=11&resourceVersionMatch=NotOlderThan",
    ],
    [
      "an event without a version",
      (s: ScriptedStream) => s.event("ADDED", { metadata: { name: "x" } }),
      "watch corrupt",
      "LIST limit=250&resourceVersion=11&resourceVersionMatch=NotOlderThan",
    ],
    [
      "an event of an unknown type",
      (s: ScriptedStream) => s.event("EXPLODED", raw("x", "12")),
      "watch corrupt",
      "LIST limit=250&resourceVersion=11&resourceVersionMatch=NotOlderThan",
    ],
    [
      "a version that goes back",
      (s: ScriptedStream) => s.event("ADDED", raw("x", "3")),
      "watch ahead-of-server",
      "LIST limit=250",
    ],
  ])(
    "after %s the reflector resumes, or lists where the stream can't be trusted",
    async (_, breakIt, failure, next) => {
      const it = reflectorHarness();
      const stream = new ScriptedStream().event("ADDED", raw("c", "11"));
      await it.start(breakIt(stream));
      expect(it.failures()).toEqual([failure]);
      expect(it.state()).toBe("11: a@5 b@6 c@11");
      await it.time.advance(250);
      expect(it.transport.requests[2]).toBe(next);
      expect(stream.closed).toBe(true);
    },
  );

  test.each([
    ["410", statusAnswer(410), "watch expired", "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan"],
    ["429 with Retry-After", statusAnswer(429, {}, { "retry-after": "3" }), "watch throttled", undefined],
    ["404", { status: 404, body: "404 page not found" }, "watch not-served", "WATCH resourceVersion=10"],
    ["500", statusAnswer(500), "watch server-error", "WATCH resourceVersion=10"],
  ])("a watch that is rejected with %s", async (_, answer, failure, next) => {
    const it = reflectorHarness();
    it.transport.watches.push(answer);
    await it.start();
    await it.time.advance(250);
    expect(it.failures()[0]).toBe(failure);
    expect(it.transport.requests[2]).toBe(next);
    await it.time.advance(3600);
    expect(it.transport.requests.length).toBeGreaterThan(2);
  });

  test("lines and characters cut at any byte arrive whole", async () => {
    const object = raw("c", "11", "grün 🟢");
    const bytes = new TextEncoder().encode(`${JSON.stringify({ type: "ADDED", object })}\n`);
    for (let cut = 1; cut < bytes.length; cut++) {
      const it = reflectorHarness();
      const stream = new ScriptedStream().bytes(bytes.subarray(0, cut)).bytes(bytes.subarray(cut));
      await it.start(stream);
      expect(it.source.get("ns/c")?.color).toBe("grün 🟢");
    }
  });

  test("an unparsable object is reported, and left out or kept as last known; the stream goes on", async () => {
    for (const unparsable of ["drop", "keepLast"] as const) {
      const it = reflectorHarness({ unparsable });
      const stream = new ScriptedStream();
      await it.start(stream);
      stream
        .event("MODIFIED", raw("a", "11", "bad"))
        .event("ADDED", raw("x", "12", "bad"))
        .event("ADDED", raw("c", "13"));
      await it.time.settle();
      expect(it.state()).toBe(unparsable === "drop" ? "13: b@6 c@13" : "13: a@5 b@6 c@13");
      expect(it.events.filter((event) => event.kind === "unparsable").map((event) => event.key)).toEqual([
        "ns/a",
        "ns/x",
      ]);
    }
  });

  test("an unparsable object is reported, and kept as the stub that its reader makes of it", async () => {
    const stub = (odd: unknown) => parseThing({ ...Object(odd), color: "odd" });
    const it = reflectorHarness({ unparsable: "keepLast", stub });
    const stream = new ScriptedStream();
    await it.start(stream);
    stream.event("MODIFIED", raw("a", "11", "bad")).event("ADDED", raw("x", "12", "bad"));
    await it.time.settle();
    expect(it.state()).toBe("12: a@11 b@6 x@12");
    expect(it.source.get("ns/a")?.color).toBe("odd");
    expect(it.events.filter((event) => event.kind === "unparsable")).toHaveLength(2);
  });

  test("an object that was never parsable has a placeholder, until a list after the stream shows it", async () => {
    const placeholder = (odd: unknown) => ({ ...parseThing({ ...Object(odd), color: "odd" }), version: "0" });
    const it = reflectorHarness({ unparsable: "listAgain", placeholder });
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6", "bad")]));
    const streams = [new ScriptedStream(), new ScriptedStream(), new ScriptedStream()];
    await it.start(...streams);
    expect(it.state()).toBe("10: a@5 b@0");
    streams[0]?.event("MODIFIED", raw("a", "11", "bad"));
    await it.time.advance(6000);
    expect(it.state()).toBe("11: a@5 b@0");
    for (const [index, color] of (["bad", "red"] as const).entries()) {
      it.transport.lists.push(page("12", [raw("a", "11", color), raw("b", "6", color)]));
      streams[index]?.end();
      await it.time.settle();
      expect(it.state()).toBe(color === "bad" ? "12: a@5 b@0" : "12: a@11 b@6");
      await it.time.advance(6000);
    }
    // Not taken for a restored server: the object was there all the time.
    expect(it.events.filter(({ kind }) => kind === "versionWentBack")).toEqual([]);
    streams[2]?.end();
    await it.time.settle();
    expect(it.relists()).toBe(2);
    expect(it.transport.requests.at(-1)).toMatch(/^WATCH/);
  });

  test("a handler that throws is reported and stops neither the stream nor other handlers", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    it.source.subscribe({
      changed: () => {
        throw new Error("a bug");
      },
    });
    await it.start(stream);
    stream.event("ADDED", raw("c", "11"));
    await it.time.settle();
    expect(it.state()).toBe("11: a@5 b@6 c@11");
    expect(it.events.filter((event) => event.kind === "handlerFailed")).toHaveLength(3);
  });

  test("the last contact is the last message of the server", async () => {
    const stream = new ScriptedStream();
    const it = reflectorHarness();
    await it.start(stream);
    await it.time.advance(2000);
    const silentMs = (): number => it.process.clock.monotonicMs() - (it.source.lastContactMs ?? 0);
    expect(silentMs()).toBe(2000);
    stream.event("MODIFIED", raw("a", "11"));
    await it.time.settle();
    expect(silentMs()).toBe(0);
  });

  test("events after a silence are read at once", async () => {
    const stream = new ScriptedStream();
    const it = reflectorHarness();
    await it.start(stream);
    await it.time.advance(50);
    stream.event("MODIFIED", raw("a", "11")).event("MODIFIED", raw("a", "12"));
    await it.time.settle();
    expect(it.state()).toBe("12: a@12 b@6");
  });

  test("a long burst gives way to other work", async () => {
    const stream = new ScriptedStream();
    let workedMs = 0;
    const time = new VirtualTime({ seed: 7 });
    const clock = { nowMs: () => time.clock.nowMs(), monotonicMs: () => time.elapsedMs + workedMs };
    const it = reflectorHarness({
      ports: { clock, timers: time.timers, random: time.random },
      parse: (value) => {
        workedMs += 6;
        return parseThing(value);
      },
    });
    await it.start(stream);
    for (const version of ["11", "12", "13"]) stream.event("MODIFIED", raw("a", version));
    await it.time.settle();
    expect(it.state()).toBe("12: a@12 b@6");
    await time.advance(0);
    expect(it.state()).toBe("13: a@13 b@6");
  });

  test.each(["ADDED", "DELETED", "BOOKMARK"])("an %s event of another kind is of a stream mixed up", async (type) => {
    const it = reflectorHarness({ kind: "Thing" });
    const stream = new ScriptedStream();
    await it.start(stream);
    stream.event("ADDED", { kind: "Thing", ...Object(raw("c", "11")) });
    stream.event(type, { kind: "ConfigMap", ...Object(raw("a", "12")) });
    await it.time.settle();
    expect(it.failures()).toEqual(["watch corrupt"]);
    expect(it.state()).toBe("11: a@5 b@6 c@11");
  });

  test.each([
    ["blank lines", "\n"],
    ["a line without end", " "],
  ])("a stream that lives on by %s, long after its time, is left", async (_, drip) => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    const streams = [0, 1, 2].map(() => new ScriptedStream());
    await it.start(...streams);
    it.transport.lists.push(page("15", [raw("a", "11")]));
    for (let time = 0; time < 60; time++) it.transport.confirmations.push(page("15", []));
    for (let second = 0; second < 90; second++) {
      for (const stream of streams) stream.text(drip);
      await it.time.advance(1000);
    }
    expect(it.state()).toBe("15: a@11");
  });

  test.each([
    ["that has not reached a LIST from before its last bookmarks moves to another connection", "15", ", moved"],
    ["that has reached every LIST keeps its connection", "10", ""],
  ])("a stream %s", async (_, version, moved) => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    // The apiserver of the stream lags behind etcd, and its LISTs do not: they are quorum reads.
    for (let time = 0; time < 5; time++) it.transport.confirmations.push(page(version, []));
    await it.time.advance(6900);
    stream.end();
    await it.time.settle();
    expect(it.transport.requests.findLast((request) => request.startsWith("WATCH"))).toBe(
      `WATCH resourceVersion=10${moved}`,
    );
  });

  test.each([
    ["without bookmarks is confirmed by a complete list after two quiet streams, again and again", 3000],
    ["without bookmarks is not listed again where nothing has to be confirmed", undefined],
  ])("a server %s", async (_, confirmEveryMs) => {
    const it = reflectorHarness(confirmEveryMs === undefined ? {} : { confirmEveryMs });
    const streams = [0, 1, 2, 3].map(() => new ScriptedStream());
    await it.start(...streams);
    for (const version of ["15", "25"]) it.transport.lists.push(page(version, [raw("a", "5"), raw("b", "6")]));
    const unconfirmedMs: number[] = [];
    for (const [index, stream] of streams.entries()) {
      it.transport.confirmations.splice(0, 9, ...Array.from({ length: 9 }, () => page(index < 2 ? "15" : "25", [])));
      await it.time.advance(6000);
      unconfirmedMs.push(it.time.elapsedMs - (it.source.confirmedSentMs ?? 0));
      stream.end();
      await it.time.settle();
    }
    expect(it.events.flatMap((event) => (event.kind === "listed" ? [event.reason] : []))).toEqual(
      confirmEveryMs === undefined ? ["first"] : ["first", "unconfirmed", "unconfirmed"],
    );
    // As long as a webhook may decide by its cache, less three seconds for the list.
    if (confirmEveryMs !== undefined) expect(Math.max(...unconfirmedMs)).toBeLessThanOrEqual(12_000);
  });
});
