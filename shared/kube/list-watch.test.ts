import { afterEach, describe, expect, test } from "vitest";
import { page, ScriptedStream, ScriptedTransport, statusAnswer } from "../../test/support/scripted-transport.ts";
import { VirtualTime } from "../../test/support/virtual-ports.ts";
import { ListWatch, type ListWatchOptions } from "./list-watch.ts";
import type { WatchEvent } from "./watch-event.ts";

interface Thing {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly color: string;
}

/** A raw object. Its UID says which of several of one name it is. */
function raw(name: string, version: string, color = "red", uid = `${name}-uid`): unknown {
  return { metadata: { namespace: "ns", name, uid, resourceVersion: version }, color };
}

function parseThing(value: unknown): Thing {
  const { metadata, color } = value as { metadata: Record<string, string>; color: string };
  if (color === "bad") throw new Error("a bad color");
  return { name: metadata.name ?? "", uid: metadata.uid ?? "", version: metadata.resourceVersion ?? "", color };
}

const EXPIRED = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
const TOO_LARGE = {
  reason: "Timeout",
  details: { causes: [{ reason: "ResourceVersionTooLarge" }], retryAfterSeconds: 1 },
};

class Rig {
  readonly time = new VirtualTime();
  readonly process = this.time.process({ seed: 7 });
  readonly transport = new ScriptedTransport();
  readonly events: WatchEvent[] = [];
  readonly notices: string[] = [];
  readonly source: ListWatch<Thing>;

  constructor(options: Partial<ListWatchOptions<Thing>> = {}) {
    this.source = new ListWatch<Thing>({
      name: "things",
      transport: this.transport,
      ports: this.process,
      path: "/things",
      parse: parseThing,
      keyOf: (thing) => `ns/${thing.name}`,
      uidOf: (thing) => thing.uid,
      versionOf: (thing) => thing.version,
      onEvent: (event) => this.events.push(event),
      ...options,
    });
    const show = (thing: Thing | undefined): string => (thing ? `${thing.name}@${thing.version}` : "-");
    this.source.subscribe({
      changed: (before, after) => this.notices.push(`${show(before)} > ${show(after)}`),
      relisted: (position) => this.notices.push(`relisted ${position}`),
      confirmed: (sentMs) => this.notices.push(`confirmed ${sentMs}`),
    });
  }

  async start(...watches: (ScriptedStream | "reset")[]): Promise<void> {
    if (this.transport.lists.length === 0) this.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6")]));
    this.transport.watches.push(...watches);
    this.source.start();
    await this.time.settle();
  }

  state(): string {
    const things = [...this.source.values()].map((thing) => `${thing.name}@${thing.version}`).sort();
    return `${this.source.position}: ${things.join(" ")}`;
  }

  failures(): string[] {
    return this.events.flatMap((event) => (event.kind === "failed" ? [`${event.during} ${event.tag}`] : []));
  }

  watchTimes(count: number): number {
    return this.transport.requests.filter((request) => request.startsWith("WATCH")).length - count;
  }
}

const rigs: Rig[] = [];
function rig(options: Partial<ListWatchOptions<Thing>> = {}): Rig {
  const made = new Rig(options);
  rigs.push(made);
  return made;
}
afterEach(async () => {
  await Promise.all(rigs.splice(0).map((made) => made.source.stop()));
});

describe("lists", () => {
  test("the first list is a quorum read in pages of one version, then a watch from that version", async () => {
    const it = rig({ pageSize: 2 });
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6")], "next"), page("10", [raw("c", "7")]));
    await it.start(new ScriptedStream());
    expect(it.transport.requests).toEqual(["LIST limit=2", "LIST limit=2&continue=next", "WATCH resourceVersion=10"]);
    expect(it.state()).toBe("10: a@5 b@6 c@7");
    expect(it.notices).toEqual(["- > a@5", "- > b@6", "- > c@7", "relisted 10", "confirmed 0"]);
  });

  test("nothing is visible before the last page", async () => {
    const it = rig({ pageSize: 2 });
    it.transport.lists.push(page("10", [raw("a", "5")], "next"), "reset");
    await it.start();
    expect(it.source.synced).toBe(false);
    expect([...it.source.values()]).toEqual([]);
  });

  test("pages of two versions are not mixed: it starts over with larger pages", async () => {
    const it = rig({ pageSize: 2 });
    it.transport.lists.push(page("10", [raw("a", "5")], "next"), page("11", [raw("b", "11")]));
    it.transport.lists.push(page("12", [raw("b", "11"), raw("c", "12")]));
    await it.start(new ScriptedStream());
    expect(it.transport.requests.slice(0, 3)).toEqual(["LIST limit=2", "LIST limit=2&continue=next", "LIST limit=4"]);
    expect(it.state()).toBe("12: b@11 c@12");
  });

  test("an expired continue token starts over, and a list that never holds still fails after three starts", async () => {
    const it = rig({ pageSize: 2 });
    for (let i = 0; i < 3; i++) it.transport.lists.push(page("10", [raw("a", "5")], "next"), statusAnswer(410));
    await it.start();
    expect(it.transport.requests.filter((request) => !request.includes("continue"))).toEqual([
      "LIST limit=2",
      "LIST limit=4",
      "LIST limit=8",
    ]);
    expect(it.failures()).toEqual(["list expired"]);
  });

  /** As the server writes the lists of its own kinds: metadata first. */
  function metadataFirst(items: readonly unknown[], continueToken: string | undefined, end = "]}"): string {
    const metadata = JSON.stringify({ resourceVersion: "10", continue: continueToken, remainingItemCount: 1 });
    const objects = items.map((item) => JSON.stringify(item)).join();
    return `{"kind":"ThingList","apiVersion":"things.example.com/v1","metadata":${metadata},"items":[${objects}${end}`;
  }

  test.each([
    ["before this one is parsed, where its head says how", true, ["a after 2", "b after 3", "c after 3"]],
    ["when this one is parsed, where its end does", false, ["a after 1", "b after 2", "c after 3"]],
  ])("the next page is asked for %s", async (_, isFirst, expected) => {
    const parsed: string[] = [];
    const it: Rig = rig({
      pageSize: 2,
      parse: (value) => {
        const thing = parseThing(value);
        parsed.push(`${thing.name} after ${it.transport.requests.length}`);
        return thing;
      },
    });
    for (const [item, token] of [
      [raw("a", "5"), "b+/=_-"],
      [raw("b", "6"), "c"],
      [raw("c", "7"), undefined],
    ] as const) {
      const body = metadataFirst([item], token);
      it.transport.lists.push(isFirst ? { status: 200, body } : page("10", [item], token));
    }
    await it.start(new ScriptedStream());
    expect(parsed).toEqual(expected);
    expect(it.transport.requests).toEqual([
      "LIST limit=2",
      "LIST limit=2&continue=b+/=_-",
      "LIST limit=2&continue=c",
      "WATCH resourceVersion=10",
    ]);
    expect(it.state()).toBe("10: a@5 b@6 c@7");
  });

  test.each([
    ["is cut", metadataFirst([raw("a", "5")], "next", "")],
    ["says twice where it goes on", metadataFirst([raw("a", "5")], "next", '],"metadata":{"resourceVersion":"10"}}')],
  ])("a page that %s is corrupt, and nothing of the list stays under way", async (_, body) => {
    const it = rig({ pageSize: 2 });
    const signals: (AbortSignal | undefined)[] = [];
    it.transport.lists.push({ status: 200, body }, ({ signal }) => {
      signals.push(signal);
      return page("10", [raw("b", "6")]);
    });
    await it.start();
    expect(it.failures()).toEqual(["list corrupt"]);
    expect(signals.map((signal) => signal?.aborted)).toEqual([true]);
    expect(it.source.synced).toBe(false);
  });

  test("a page that is too large is asked for again in smaller ones", async () => {
    const it = rig({ pageSize: 500 });
    it.transport.lists.push("oversized", page("10", [raw("a", "5")]));
    await it.start(new ScriptedStream());
    expect(it.transport.requests.slice(0, 2)).toEqual(["LIST limit=500", "LIST limit=125"]);
  });

  test("a relist is not older than what is known, and reports what changed: gone, new, modified, another UID", async () => {
    const it = rig();
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6"), raw("c", "7"), raw("d", "8")]));
    await it.start(new ScriptedStream().event("ERROR", EXPIRED));
    it.notices.length = 0;
    it.transport.lists.push(
      page("20", [raw("a", "5"), raw("b", "15"), raw("d", "16", "red", "d-other"), raw("e", "17")]),
    );
    it.transport.watches.push(new ScriptedStream());
    await it.time.advance(1000);
    expect(it.transport.requests.slice(2)).toEqual([
      "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan",
      "WATCH resourceVersion=20",
    ]);
    expect(it.notices).toEqual(["c@7 > -", "b@6 > b@15", "d@8 > -", "- > d@16", "- > e@17", "relisted 20"]);
    expect(it.source.relists).toBe(1);
  });

  test("a server that is behind the known position is asked by a quorum list, never by version 0", async () => {
    const it = rig();
    await it.start(new ScriptedStream().event("ERROR", EXPIRED));
    it.transport.lists.push(statusAnswer(504, TOO_LARGE), page("20", [raw("a", "5")]));
    it.transport.watches.push(new ScriptedStream());
    await it.time.advance(1000);
    expect(it.transport.requests.slice(2, 4)).toEqual([
      "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan",
      "LIST limit=250",
    ]);
    expect(it.transport.requests.join()).not.toContain("resourceVersion=0");
    expect(it.state()).toBe("20: a@5");
  });

  test.each([
    ["not JSON", { status: 200, body: "{]" }, "list corrupt"],
    ["no list", { status: 200, body: { items: [] } }, "list corrupt"],
    [
      "items that are no objects",
      { status: 200, body: { metadata: { resourceVersion: "3" }, items: [4] } },
      "list corrupt",
    ],
    ["403", statusAnswer(403), "list forbidden"],
    ["404 in plain text", { status: 404, body: "404 page not found" }, "list not-served"],
    ["500", statusAnswer(500), "list server-error"],
    ["429", statusAnswer(429, {}, { "retry-after": "2" }), "list throttled"],
  ])("a first list that is %s is tried again", async (_, answer, failure) => {
    const it = rig();
    it.transport.lists.push(answer, page("10", [raw("a", "5")]));
    await it.start(new ScriptedStream());
    expect(it.failures()).toEqual([failure]);
    await it.time.advance(3000);
    expect(it.state()).toBe("10: a@5");
  });
});

describe("streams", () => {
  test("events change the store and the position in order; a bookmark moves the position alone", async () => {
    const it = rig();
    const stream = new ScriptedStream();
    await it.start(stream);
    it.notices.length = 0;
    stream.event("ADDED", raw("c", "11")).event("MODIFIED", raw("a", "12")).event("DELETED", raw("b", "13"));
    stream.event("BOOKMARK", { metadata: { resourceVersion: "20" } });
    await it.time.settle();
    expect(it.state()).toBe("20: a@12 c@11");
    expect(it.notices).toEqual(["- > c@11", "a@5 > a@12", "b@6 > -"]);
  });

  test("a changed UID is a deletion and an addition; a late deletion of the old UID changes nothing", async () => {
    const it = rig();
    const stream = new ScriptedStream();
    await it.start(stream);
    it.notices.length = 0;
    stream.event("MODIFIED", raw("a", "11", "red", "a-new")).event("DELETED", raw("a", "12"));
    await it.time.settle();
    expect(it.notices).toEqual(["a@5 > -", "- > a@11"]);
    expect(it.state()).toBe("12: a@11 b@6");
  });

  test("a stream that the server ends as asked is followed at once by the next, from the last position", async () => {
    const it = rig();
    const stream = new ScriptedStream().event("BOOKMARK", { metadata: { resourceVersion: "15" } });
    await it.start(stream, new ScriptedStream());
    await it.time.advance(6000);
    stream.end();
    await it.time.settle();
    expect(it.transport.requests.slice(1)).toEqual(["WATCH resourceVersion=10", "WATCH resourceVersion=15"]);
    expect(it.failures()).toEqual([]);
    expect(it.source.relists).toBe(0);
  });

  test.each([
    ["a reset", (s: ScriptedStream) => s.fail("reset"), "watch reset", "WATCH resourceVersion=11"],
    ["silence", (s: ScriptedStream) => s.fail("timeout"), "watch timeout", "WATCH resourceVersion=11"],
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
  ])("after %s it goes on: resumes, or lists where the stream can't be trusted", async (_, breakIt, failure, next) => {
    const it = rig();
    const stream = new ScriptedStream().event("ADDED", raw("c", "11"));
    await it.start(breakIt(stream));
    expect(it.failures()).toEqual([failure]);
    expect(it.state()).toBe("11: a@5 b@6 c@11");
    await it.time.advance(250);
    expect(it.transport.requests[2]).toBe(next);
    expect(stream.closed).toBe(true);
  });

  test.each([
    ["410", statusAnswer(410), "watch expired", "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan"],
    ["429 with Retry-After", statusAnswer(429, {}, { "retry-after": "3" }), "watch throttled", undefined],
    ["404", { status: 404, body: "404 page not found" }, "watch not-served", "WATCH resourceVersion=10"],
    ["500", statusAnswer(500), "watch server-error", "WATCH resourceVersion=10"],
  ])("a watch that is refused with %s", async (_, answer, failure, next) => {
    const it = rig();
    it.transport.watches.push(answer);
    await it.start();
    await it.time.advance(250);
    expect(it.failures()[0]).toBe(failure);
    expect(it.transport.requests[2]).toBe(next);
    await it.time.advance(3600);
    expect(it.transport.requests.length).toBeGreaterThan(2);
  });

  test("lines and characters cut at any byte arrive whole", async () => {
    const bytes = new TextEncoder().encode(`${JSON.stringify({ type: "ADDED", object: raw("c", "11", "grün 🟢") })}\n`);
    for (let cut = 1; cut < bytes.length; cut++) {
      const it = rig();
      const stream = new ScriptedStream().bytes(bytes.subarray(0, cut)).bytes(bytes.subarray(cut));
      await it.start(stream);
      expect(it.source.get("ns/c")?.color).toBe("grün 🟢");
    }
  });

  test("an object that can't be parsed is reported and kept out, or kept as last known where asked; the stream goes on", async () => {
    for (const unparsable of ["drop", "keepLast"] as const) {
      const it = rig({ unparsable });
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

  test("a handler that throws is reported and stops neither the stream nor other handlers", async () => {
    const it = rig();
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

  test("events after a silence are read at once", async () => {
    const stream = new ScriptedStream();
    const it = rig();
    await it.start(stream);
    await it.time.advance(50);
    stream.event("MODIFIED", raw("a", "11")).event("MODIFIED", raw("a", "12"));
    await it.time.settle();
    expect(it.state()).toBe("12: a@12 b@6");
  });

  test("a burst that is much work gives way to what else waits", async () => {
    const stream = new ScriptedStream();
    let workedMs = 0;
    const time = new VirtualTime({ seed: 7 });
    const clock = { nowMs: () => time.clock.nowMs(), monotonicMs: () => time.elapsedMs + workedMs };
    const it = rig({
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

  test("a consumer that is behind holds the stream", async () => {
    let release = (): void => {};
    const it = rig({
      pause: () =>
        new Promise<void>((resolve) => {
          release = resolve;
        }),
    });
    const stream = new ScriptedStream()
      .event("ADDED", raw("c", "11"))
      .event("ADDED", raw("d", "12"))
      .event("ADDED", raw("e", "13"));
    await it.start(stream);
    expect([it.state(), stream.waiting]).toEqual(["11: a@5 b@6 c@11", 2]);
    release();
    await it.time.settle();
    expect([it.state(), stream.waiting]).toEqual(["12: a@5 b@6 c@11 d@12", 1]);
    release();
  });
});

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
    const it = rig();
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
    // A 410 or garbage costs a list and a watch each time.
    expect(it.transport.requests.length - before - inOutage).toBeLessThanOrEqual(24);
  });

  test("after a healthy stream the first try comes soon again", async () => {
    const it = rig();
    await it.start("reset", "reset", "reset", "reset", "reset", "reset");
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
    const it = rig({ confirmEveryMs: 3000 });
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

describe("a server whose versions went back (restored from a snapshot)", () => {
  test("is noticed by the confirming LIST while the stream is silent; everything is taken anew and reported", async () => {
    const it = rig({ confirmEveryMs: 3000 });
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.notices.length = 0;
    it.transport.confirmations.push(page("7", []));
    it.transport.lists.push(page("7", [raw("a", "5", "blue")]));
    await it.time.advance(5000);
    expect(it.transport.requests.slice(2)).toEqual(["LIST limit=1", "LIST limit=250", "WATCH resourceVersion=7"]);
    expect(it.notices.slice(0, 3)).toEqual(["b@6 > -", "a@5 > a@5", "relisted 7"]);
    expect(it.source.get("ns/a")?.color).toBe("blue");
    expect(it.events).toContainEqual({ kind: "versionWentBack", from: "10", to: "7" });
    expect(stream.closed).toBe(true);
  });

  test("makes what was asked before it worthless as evidence", async () => {
    const it = rig({ confirmEveryMs: 3000 });
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.transport.confirmations.push(page("15", []), page("7", []));
    it.transport.lists.push(page("7", []));
    const back = (): boolean => it.events.some((event) => event.kind === "versionWentBack");
    expect(await it.time.runUntil(back, 10_000)).toBe(true);
    await it.time.settle();
    // The quorum list is the newest evidence; the LIST at version 15 of the old history would stand before it.
    expect(it.source.confirmedSentMs).toBe(it.time.elapsedMs);
  });

  test("is asked for by a stream that ended as asked without a word, where nothing else asks", async () => {
    const it = rig();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream(), new ScriptedStream());
    it.transport.confirmations.push(page("7", []));
    it.transport.lists.push(page("7", []));
    await it.time.advance(6500);
    stream.end();
    await it.time.advance(1000);
    expect(it.transport.requests.slice(2)).toEqual([
      "WATCH resourceVersion=10",
      "LIST limit=1",
      "LIST limit=250",
      "WATCH resourceVersion=7",
    ]);
    expect(it.state()).toBe("7: ");
  });
});

describe("a server that was restored and has passed the position while nobody asked", () => {
  test("is noticed by an object whose version went back, however new the list is", async () => {
    const it = rig();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.notices.length = 0;
    it.transport.lists.push(page("20", [raw("a", "5", "blue"), raw("b", "4")]));
    await it.time.advance(1000);
    expect(it.events).toContainEqual({ kind: "versionWentBack", from: "6", to: "4" });
    // Those of equal version may be another state of the same number.
    expect(it.notices.slice(0, 3)).toEqual(["a@5 > a@5", "b@6 > b@4", "relisted 20"]);
  });

  test.each<[string, string | undefined, boolean]>([
    ["an own answer, that the stream had not reached", "12", true],
    ["an own answer, but the stream had reached it", "6", false],
    ["an own answer that the list shows", "14", false],
    ["nothing", undefined, false],
  ])("is noticed by what was seen in %s", async (_, version, isNoticed) => {
    const it = rig();
    const first = new ScriptedStream();
    await it.start(first, new ScriptedStream());
    it.notices.length = 0;
    if (version !== undefined) it.source.learned("ns/b", version);
    it.transport.watches.unshift(statusAnswer(410));
    it.transport.lists.push(page("20", [raw("a", "5"), raw("b", version === "14" ? "14" : "6")]));
    first.end();
    await it.time.advance(5000);
    expect(it.events.some(({ kind }) => kind === "versionWentBack")).toBe(isNoticed);
    expect(it.notices.includes("a@5 > a@5")).toBe(isNoticed);
  });

  test("of the same name is another object's", async () => {
    const it = rig();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.transport.lists.push(page("20", [raw("a", "14", "red", "another")]));
    await it.time.advance(1000);
    expect(it.state()).toBe("20: a@14");
    expect(it.events.map(({ kind }) => kind)).not.toContain("versionWentBack");
  });

  test("is noticed by an object that had been deleted and is there again, whatever its name is now", async () => {
    const it = rig();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.transport.lists.push(page("20", [raw("a", "5"), raw("b", "6"), raw("c", "4")]));
    await it.time.advance(1000);
    expect(it.events).toContainEqual({ kind: "versionWentBack", from: "10", to: "4" });
  });

  const list = "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan";
  const resumed = "WATCH resourceVersion=10";
  test.each<[string, Partial<ListWatchOptions<Thing>>, "reset" | ReturnType<typeof statusAnswer>, number, string]>([
    ["a break", { relistAfterOutageMs: 1000 }, "reset", 1, resumed],
    // The last of its failures was earlier than that: it counts until the server answers.
    ["an outage", { relistAfterOutageMs: 1000 }, "reset", 3, list],
    ["an outage, where that is not asked for", {}, "reset", 5, resumed],
    [
      "a server that asks for patience",
      { relistAfterOutageMs: 1000 },
      statusAnswer(429, {}, { "retry-after": "1" }),
      3,
      resumed,
    ],
  ])("after %s", async (_, options, answer, times, next) => {
    const it = rig(options);
    for (let time = 0; time < times; time++) it.transport.watches.push(answer);
    it.transport.watches.push(new ScriptedStream());
    await it.start();
    it.transport.lists.push("reset", page("20", []));
    await it.time.advance(30_000);
    const tries = it.transport.requests.slice(1);
    expect(tries[times]).toBe(next);
    expect(tries.includes(list)).toBe(next === list);
  });
});

test("an outage that is over only when the watch is answered counts, too", async () => {
  const it = rig({ relistAfterOutageMs: 1000 });
  const answer = Promise.withResolvers<ScriptedStream>();
  it.transport.watches.push("reset", answer.promise, new ScriptedStream());
  await it.start();
  it.transport.lists.push(page("20", [raw("a", "5")]));
  await it.time.advance(1500);
  expect(it.transport.requests.slice(1)).toEqual(["WATCH resourceVersion=10", "WATCH resourceVersion=10"]);
  answer.resolve(new ScriptedStream().event("MODIFIED", raw("b", "15")));
  await it.time.advance(100);
  expect(it.transport.requests.slice(3)).toEqual([
    "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan",
    "WATCH resourceVersion=20",
  ]);
  expect(it.failures()).toEqual(["watch reset"]);
});

describe("a process that stood still", () => {
  const list = "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan";
  const resumed = "WATCH resourceVersion=10";
  test.each<[string, Partial<ListWatchOptions<Thing>>, number, string]>([
    ["lists anew when its stream has ended meanwhile", { relistAfterOutageMs: 1000 }, 2000, list],
    ["goes on after a shorter time", { relistAfterOutageMs: 1000 }, 400, resumed],
    ["goes on where that is not asked for", {}, 2000, resumed],
  ])("%s", async (_, options, ms, next) => {
    const it = rig(options);
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.process.pause();
    await it.time.advance(ms);
    it.process.resume();
    expect(it.source.isDoubtful).toBe(next === list);
    stream.end();
    it.transport.lists.push(page("20", [raw("a", "5"), raw("b", "6")]));
    await it.time.advance(1000);
    const asked = it.transport.requests.slice(2).filter((request) => request !== "LIST limit=1");
    expect(asked[0]).toBe(next);
    expect(it.events.some((event) => event.kind === "listed" && event.reason === "standstill")).toBe(next === list);
    expect(it.source.isDoubtful).toBe(false);
  });

  test("trusts a stream that has outlived it: it reaches a LIST that was sent after", async () => {
    const it = rig({ relistAfterOutageMs: 1000 });
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.process.pause();
    await it.time.advance(2000);
    it.transport.confirmations.push(page("12", []));
    it.process.resume();
    await it.time.advance(100);
    expect(it.source.isDoubtful).toBe(true);
    stream.event("MODIFIED", raw("a", "12"));
    await it.time.advance(100);
    expect(it.source.isDoubtful).toBe(false);
    stream.end();
    await it.time.advance(1000);
    expect(it.transport.requests.at(-1)).toBe("WATCH resourceVersion=12");
  });
});

describe("a history that others know to be gone", () => {
  test("is dropped: everything is listed anew by a quorum read and reported, however new the position", async () => {
    const it = rig();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.notices.length = 0;
    it.transport.lists.push(page("12", [raw("a", "5", "blue")]));
    it.source.distrust();
    await it.time.advance(1000);
    expect(stream.closed).toBe(true);
    expect(it.transport.requests.slice(2)).toEqual(["LIST limit=250", "WATCH resourceVersion=12"]);
    expect(it.notices.slice(0, 3)).toEqual(["b@6 > -", "a@5 > a@5", "relisted 12"]);
    expect(it.source.get("ns/a")?.color).toBe("blue");
  });

  test("was not kept by the list that shows so", async () => {
    const it = rig();
    it.source.subscribe({ changed: () => it.source.distrust() });
    await it.start(new ScriptedStream());
    await it.time.advance(1000);
    expect(it.transport.requests).toEqual(["LIST limit=250", "WATCH resourceVersion=10"]);
  });
});

describe("streamed lists (KEP-3157)", () => {
  const end = { metadata: { resourceVersion: "10", annotations: { "k8s.io/initial-events-end": "true" } } };

  test("the list arrives as a stream and is swapped in at its end bookmark", async () => {
    const it = rig({ streamLists: true });
    const initial = new ScriptedStream().event("ADDED", raw("a", "5")).event("ADDED", raw("b", "6"));
    await it.start(initial, new ScriptedStream());
    expect(it.source.synced).toBe(false);
    initial.event("DELETED", raw("b", "9")).event("BOOKMARK", end);
    await it.time.settle();
    expect(it.state()).toBe("10: a@5");
    expect(it.transport.requests).toEqual([
      "WATCH sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
      "WATCH resourceVersion=10",
    ]);
  });

  test("a server that does not offer it is asked for pages, then and later", async () => {
    const it = rig({ streamLists: true });
    it.transport.watches.push(statusAnswer(422));
    await it.start(new ScriptedStream().event("ERROR", EXPIRED));
    it.transport.lists.push(page("20", []));
    await it.time.advance(250);
    expect(it.transport.requests).toEqual([
      "WATCH sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
      "LIST limit=250",
      "WATCH resourceVersion=10",
      "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan",
      "WATCH resourceVersion=20",
    ]);
  });
});
