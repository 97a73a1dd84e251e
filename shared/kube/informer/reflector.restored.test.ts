/** Servers that were restored to another history: how the reflector notices, and that it lists everything again. */
import { describe, expect, test } from "vitest";
import { EXPIRED, parseThing, raw, reflectorHarness } from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";
import type { ApiRequest } from "../client/transport.ts";

describe("a server whose versions went back (restored from a snapshot)", () => {
  test("is noticed by a quorum check while the stream is silent; everything is listed again and reported", async () => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
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

  test("is reported although the list after the quorum check shows that it has passed the position", async () => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.transport.confirmations.push(page("7", []));
    it.transport.lists.push(page("12", [raw("a", "5")]), page("13", [raw("a", "5")]));
    await it.time.advance(5000);
    it.source.distrustHistory();
    await it.time.advance(5000);
    expect(it.state()).toBe("13: a@5");
    const reports = it.events.filter(({ kind }) => kind === "versionWentBack");
    expect(reports).toEqual([{ kind: "versionWentBack", from: "10", to: "7" }]);
  });

  test("that is noticed during a list for another reason makes the next one a quorum read", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.transport.lists.push(
      () => {
        it.source.distrustHistory();
        return statusAnswer(500);
      },
      page("12", [raw("a", "5")]),
    );
    stream.event("ERROR", EXPIRED);
    await it.time.advance(20_000);
    const floor = "&resourceVersion=10&resourceVersionMatch=NotOlderThan";
    const lists = it.transport.requests.filter((request) => request.startsWith("LIST limit=250"));
    expect(lists.slice(1)).toEqual([`LIST limit=250${floor}`, "LIST limit=250"]);
  });

  test.each([
    ["an object comes back under the name of another", "7", "uid-before", { from: "10", to: "7" }],
    [
      "an object is older than a response has shown, which the stream has not reached",
      "12",
      "a-uid",
      { from: "15", to: "12" },
    ],
  ])("is noticed in a later list where %s", async (_, version, uid, found) => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    if (uid === "a-uid") {
      it.source.learned("ns/a", "15");
      stream.event("MODIFIED", raw("a", version));
    }
    stream.event("ERROR", EXPIRED);
    it.transport.lists.push(page("20", [raw("a", version, "red", uid), raw("b", "6")]));
    await it.time.advance(20_000);
    expect(it.events).toContainEqual({ kind: "versionWentBack", ...found });
  });

  test.each([
    ["there was none before", "c", "16", "20: a@5 b@15 c@0"],
    ["its last version is kept, though a response has shown a later one", "b", "15", "20: a@5 b@6"],
  ])("is not what a list with an unreadable object shows, where %s", async (_, name, version, state) => {
    const placeholder = (odd: unknown) => ({ ...parseThing({ ...Object(odd), color: "odd" }), version: "0" });
    const it = reflectorHarness({ unparsable: "listAgain", placeholder });
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.source.learned("ns/b", "15");
    const readable = name === "b" ? [raw("a", "5")] : [raw("a", "5"), raw("b", "15")];
    it.transport.lists.push(page("20", [...readable, raw(name, version, "bad")]));
    stream.event("ERROR", EXPIRED);
    await it.time.advance(5000);
    expect(it.state()).toBe(state);
    expect(it.events.filter(({ kind }) => kind === "versionWentBack")).toEqual([]);
  });

  test("is reported once, though a response has shown a version that is lost since", async () => {
    const it = reflectorHarness();
    await it.start(new ScriptedStream(), new ScriptedStream(), new ScriptedStream());
    it.source.learned("ns/a", "9");
    it.transport.lists.push(page("12", [raw("a", "5")]), page("13", [raw("a", "5")]));
    for (let time = 0; time < 2; time++) {
      it.source.distrustHistory();
      await it.time.advance(20_000);
    }
    expect(it.state()).toBe("13: a@5");
    const reports = it.events.filter(({ kind }) => kind === "versionWentBack");
    expect(reports).toEqual([{ kind: "versionWentBack", from: "9", to: "5" }]);
  });

  test("is reported where its stream has shown it, although the list after that has passed the position", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.transport.lists.push(page("12", [raw("a", "9"), raw("b", "6")]));
    stream.event("MODIFIED", raw("a", "9"));
    await it.time.advance(5000);
    expect(it.state()).toBe("12: a@9 b@6");
    const reports = it.events.filter(({ kind }) => kind === "versionWentBack");
    expect(reports).toEqual([{ kind: "versionWentBack", from: "10", to: "9" }]);
  });

  test("makes earlier quorum checks worthless as evidence", async () => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.transport.confirmations.push(page("15", []), page("7", []));
    it.transport.lists.push(page("7", []));
    const back = (): boolean => it.events.some((event) => event.kind === "versionWentBack");
    expect(await it.time.runUntil(back, 10_000)).toBe(true);
    await it.time.settle();
    // The quorum list is the newest evidence. The LIST at version 15 belongs to the lost history.
    expect(it.source.confirmedSentMs).toBe(it.time.elapsedMs);
  });

  test("is noticed by two quorum checks, and what is confirmed goes on behind the first one's version", async () => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.transport.confirmations.push(page("900", []), page("12", [raw("a", "5")]));
    for (let time = 0; time < 20; time++) it.transport.confirmations.push(page("12", [raw("a", "5")]));
    it.transport.lists.push(page("12", [raw("a", "5")]));
    await it.time.advance(20_000);
    expect(it.state()).toBe("12: a@5");
    expect(it.time.elapsedMs - (it.source.confirmedSentMs ?? 0)).toBeLessThan(5000);
  });

  test("is noticed by a quorum check after a silent stream, where no other check runs", async () => {
    const it = reflectorHarness();
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

test.each([
  ["a sign of a restore during a list that may be older is followed by another list", false, 2],
  ["a sign of a restore during a quorum list is answered by that list", true, 1],
])("%s", async (_, isQuorum, relists) => {
  const it = reflectorHarness();
  const shown: string[] = [];
  it.source.subscribe({ relisted: () => shown.push(`${it.source.historyInDoubt}`) });
  if (!isQuorum) it.transport.watches.push(statusAnswer(410));
  await it.start(new ScriptedStream(), new ScriptedStream());
  it.transport.lists.push(
    () => {
      it.source.distrustHistory();
      return page("12", [raw("a", "5")]);
    },
    page("13", [raw("a", "5")]),
  );
  if (isQuorum) it.source.distrustHistory();
  await it.time.advance(20_000);
  expect([it.relists(), it.source.historyInDoubt]).toEqual([relists, false]);
  expect(shown).toEqual(isQuorum ? ["false", "false"] : ["false", "true", "false"]);
  const watches = it.transport.requests.filter((request) => request.startsWith("WATCH")).slice(-2);
  expect(watches).toEqual([10, isQuorum ? 12 : 13].map((version) => `WATCH resourceVersion=${version}`));
});

describe("a server that was restored and has passed the position unnoticed", () => {
  test("is noticed by an object whose version went back, however new the list is", async () => {
    const it = reflectorHarness();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.notices.length = 0;
    it.transport.lists.push(page("20", [raw("a", "5", "blue"), raw("b", "4")]));
    await it.time.advance(1000);
    expect(it.events).toContainEqual({ kind: "versionWentBack", from: "6", to: "4" });
    // An equal version may stand for another state.
    expect(it.notices.slice(0, 3)).toEqual(["a@5 > a@5", "b@6 > b@4", "relisted 20"]);
  });

  test.each<[string, string | undefined, boolean]>([
    ["the response to an own call that the stream had not reached", "12", true],
    ["the response to an own call that the stream had reached", "6", false],
    ["the response to an own call that the list shows", "14", false],
    ["no response", undefined, false],
  ])("is noticed by the version in %s", async (_, version, isNoticed) => {
    const it = reflectorHarness();
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

  test("is not told from a server that lags by a list that is older than the response to an own call", async () => {
    const it = reflectorHarness();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.source.learned("ns/b", "12");
    it.source.learned("ns/a", "11");
    // Another apiserver than the one that has answered the call: its watch cache is at 11.
    const cached = ({ path }: ApiRequest) =>
      path.includes("resourceVersion=12")
        ? statusAnswer(504, { details: { causes: [{ reason: "ResourceVersionTooLarge", message: "" }] } })
        : page("11", [raw("a", "11"), raw("b", "6")]);
    it.transport.lists.push(cached, page("13", [raw("a", "11"), raw("b", "12")]));
    await it.time.advance(1000);
    expect(it.events.map(({ kind }) => kind)).not.toContain("versionWentBack");
    expect(it.state()).toBe("13: a@11 b@12");
  });

  test("is not taken for restored by another object of the same name", async () => {
    const it = reflectorHarness();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.transport.lists.push(page("20", [raw("a", "14", "red", "another")]));
    await it.time.advance(1000);
    expect(it.state()).toBe("20: a@14");
    expect(it.events.map(({ kind }) => kind)).not.toContain("versionWentBack");
  });

  test("is noticed by an object that had been deleted and exists again, under any name", async () => {
    const it = reflectorHarness();
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream());
    it.transport.lists.push(page("20", [raw("a", "5"), raw("b", "6"), raw("c", "4")]));
    await it.time.advance(1000);
    expect(it.events).toContainEqual({ kind: "versionWentBack", from: "10", to: "4" });
  });
});

describe("a history that other parts know to be lost", () => {
  test("is dropped: everything is listed again by a quorum read and reported, at any position", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.notices.length = 0;
    it.transport.lists.push(page("12", [raw("a", "5", "blue")]));
    expect(it.source.historyInDoubt).toBe(false);
    it.source.distrustHistory();
    expect(it.source.historyInDoubt).toBe(true);
    await it.time.advance(1000);
    expect(it.source.historyInDoubt).toBe(false);
    expect(stream.closed).toBe(true);
    expect(it.transport.requests.slice(2)).toEqual(["LIST limit=250", "WATCH resourceVersion=12"]);
    expect(it.notices.slice(0, 3)).toEqual(["b@6 > -", "a@5 > a@5", "relisted 12"]);
    expect(it.source.get("ns/a")?.color).toBe("blue");
  });

  test.each([
    ["is cut", { status: 200, body: "{" }],
    ["expires", statusAnswer(410)],
  ])("stays lost when the list that follows %s", async (_, answer) => {
    const it = reflectorHarness();
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.notices.length = 0;
    it.transport.lists.push(answer, page("12", [raw("a", "5", "blue")]));
    it.source.distrustHistory();
    await it.time.advance(5000);
    expect(it.transport.requests.slice(2)).toEqual(["LIST limit=250", "LIST limit=250", "WATCH resourceVersion=12"]);
    expect(it.notices.slice(0, 3)).toEqual(["b@6 > -", "a@5 > a@5", "relisted 12"]);
    expect(it.source.get("ns/a")?.color).toBe("blue");
  });

  test("is in doubt when the server says that the stream is ahead, until the next list", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    const causes = [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }];
    const object = { kind: "Status", code: 504, reason: "Timeout", message: "Too large", details: { causes } };
    stream.event("ERROR", object);
    await it.time.settle();
    expect(it.source.historyInDoubt).toBe(true);
    it.transport.lists.push(page("7", []));
    await it.time.advance(5000);
    expect([it.source.historyInDoubt, it.source.position]).toEqual([false, "7"]);
  });

  test("is not in doubt by a sign from the very list that is swapped in", async () => {
    const it = reflectorHarness();
    it.source.subscribe({ changed: () => it.source.distrustHistory() });
    await it.start(new ScriptedStream());
    await it.time.advance(1000);
    expect(it.transport.requests).toEqual(["LIST limit=250", "WATCH resourceVersion=10"]);
  });
});
