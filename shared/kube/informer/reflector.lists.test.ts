import { describe, expect, test } from "vitest";
import {
  EXPIRED,
  parseThing,
  type ReflectorHarness,
  raw,
  reflectorHarness,
} from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";

const TOO_LARGE = {
  reason: "Timeout",
  details: { causes: [{ reason: "ResourceVersionTooLarge" }], retryAfterSeconds: 1 },
};

describe("lists", () => {
  test("the first list is a quorum read in pages of one version, then a watch from that version", async () => {
    const it = reflectorHarness({ pageSize: 2 });
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6")], "next"), page("10", [raw("c", "7")]));
    await it.start(new ScriptedStream());
    expect(it.transport.requests).toEqual(["LIST limit=2", "LIST limit=2&continue=next", "WATCH resourceVersion=10"]);
    expect(it.state()).toBe("10: a@5 b@6 c@7");
    expect(it.notices).toEqual(["- > a@5", "- > b@6", "- > c@7", "relisted 10", "confirmed 0"]);
  });

  test("a list proves what it contains from its first request on, and only where it is a quorum read", async () => {
    const it = reflectorHarness({ pageSize: 2 });
    const patience = statusAnswer(429, {}, { "retry-after": "1" });
    it.transport.lists.push(page("10", [raw("a", "5")], "next"), patience, page("10", [raw("b", "6")]));
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    await it.time.advance(3000);
    expect([it.state(), it.source.confirmedSentMs]).toEqual(["10: a@5 b@6", 0]);
    it.transport.lists.push(page("12", [raw("a", "5")]));
    stream.event("ERROR", EXPIRED);
    await it.time.advance(20_000);
    expect([it.state(), it.source.confirmedSentMs]).toEqual(["12: a@5", 0]);
  });

  test("a reflector that a handler stops at its list ends, and opens no stream", async () => {
    const it = reflectorHarness();
    let stopped = false;
    it.source.subscribe({
      relisted: () =>
        void it.source.stop().then(() => {
          stopped = true;
        }),
    });
    await it.start(new ScriptedStream());
    await it.time.advance(60_000);
    expect(stopped).toBe(true);
  });

  test.each(["drop", "keepLast"] as const)(
    "an object that can't be parsed is not the last one of its name where its UID is another: %s",
    async (unparsable) => {
      const it = reflectorHarness({ unparsable });
      const stream = new ScriptedStream();
      await it.start(stream);
      stream.event("ADDED", raw("a", "12", "bad", "next-uid"));
      await it.time.settle();
      expect(it.state()).toBe("12: b@6");
    },
  );

  test("nothing is visible before the last page", async () => {
    const it = reflectorHarness({ pageSize: 2 });
    it.transport.lists.push(page("10", [raw("a", "5")], "next"), "reset");
    await it.start();
    expect(it.source.synced).toBe(false);
    expect([...it.source.values()]).toEqual([]);
  });

  test("pages of two versions are not mixed: the list starts again with larger pages", async () => {
    const it = reflectorHarness({ pageSize: 2 });
    it.transport.lists.push(page("10", [raw("a", "5")], "next"), page("11", [raw("b", "11")]));
    it.transport.lists.push(page("12", [raw("b", "11"), raw("c", "12")]));
    await it.start(new ScriptedStream());
    expect(it.transport.requests.slice(0, 3)).toEqual(["LIST limit=2", "LIST limit=2&continue=next", "LIST limit=4"]);
    expect(it.state()).toBe("12: b@11 c@12");
  });

  test("an expired continue token starts the list again; a list that keeps changing fails after three", async () => {
    const it = reflectorHarness({ pageSize: 2 });
    for (let i = 0; i < 3; i++) it.transport.lists.push(page("10", [raw("a", "5")], "next"), statusAnswer(410));
    await it.start();
    expect(it.transport.requests.filter((request) => !request.includes("continue"))).toEqual([
      "LIST limit=2",
      "LIST limit=4",
      "LIST limit=8",
    ]);
    expect(it.failures()).toEqual(["list expired"]);
  });

  /** A list as the server writes it for its own kinds: metadata first. */
  function metadataFirst(items: readonly unknown[], continueToken: string | undefined, end = "]}"): string {
    const metadata = JSON.stringify({ resourceVersion: "10", continue: continueToken, remainingItemCount: 1 });
    const objects = items.map((item) => JSON.stringify(item)).join();
    return `{"kind":"ThingList","apiVersion":"things.example.com/v1","metadata":${metadata},"items":[${objects}${end}`;
  }

  test.each([
    ["before this one is parsed, where its head says how", true, ["a after 2", "b after 3", "c after 3"]],
    ["when this one is parsed, where its end does", false, ["a after 1", "b after 2", "c after 3"]],
  ])("the next page is requested %s", async (_, isFirst, expected) => {
    const parsed: string[] = [];
    const it: ReflectorHarness = reflectorHarness({
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
  ])("a page that %s is corrupt, and no request of the list stays in flight", async (_, body) => {
    const it = reflectorHarness({ pageSize: 2 });
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

  test("a page that is too large is requested again in smaller pages", async () => {
    const it = reflectorHarness({ pageSize: 500 });
    it.transport.lists.push("oversized", page("10", [raw("a", "5")]));
    await it.start(new ScriptedStream());
    expect(it.transport.requests.slice(0, 2)).toEqual(["LIST limit=500", "LIST limit=125"]);
  });

  test("a relist is not older than the position, and reports every difference", async () => {
    const it = reflectorHarness();
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
    expect(it.relists()).toBe(1);
  });

  test("other objects than the server counts: a quorum list shows what the stream did not", async () => {
    const it = reflectorHarness();
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.transport.confirmations.push(page("10", [raw("b", "6")]));
    it.transport.lists.push(page("12", [raw("b", "6")]));
    it.source.requestEvidence();
    await it.time.advance(1000);
    expect(it.failures()).toEqual(["watch missed-event"]);
    expect(it.transport.requests.slice(-2)).toEqual(["LIST limit=250", "WATCH resourceVersion=12"]);
    expect(it.notices).toContain("a@5 > -");
    expect([it.state(), it.source.historyInDoubt]).toEqual(["12: b@6", false]);
    expect(it.events.some(({ kind }) => kind === "versionWentBack")).toBe(false);
  });

  test("a list of another kind, which a proxy has mixed up, is none of these objects", async () => {
    const it = reflectorHarness({ kind: "Thing" });
    const { body, ...mixedUp } = page("10", []);
    it.transport.lists.push({ ...mixedUp, body: { ...Object(body), kind: "ConfigMapList" } });
    it.transport.lists.push({ ...mixedUp, body: { ...Object(page("10", [raw("a", "5")]).body), kind: "ThingList" } });
    await it.start();
    await it.time.advance(1000);
    expect(it.failures()[0]).toBe("list corrupt");
    expect(it.state()).toBe("10: a@5");
  });

  test("a server behind the position gets a quorum list, never a list at version 0", async () => {
    const it = reflectorHarness();
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
    const it = reflectorHarness();
    it.transport.lists.push(answer, page("10", [raw("a", "5")]));
    await it.start(new ScriptedStream());
    expect(it.failures()).toEqual([failure]);
    await it.time.advance(3000);
    expect(it.state()).toBe("10: a@5");
  });
});
