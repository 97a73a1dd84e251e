/** A server's stream lacks an event: how the reflector notices by counting, and what it does then. */
import { describe, expect, test } from "vitest";
import { type ReflectorHarness, raw, reflectorHarness } from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";

/** The next quorum LIST says that the collection has `total` objects at `version`. */
function count(it: ReflectorHarness, version: string, total: number): void {
  const metadata = { resourceVersion: version, continue: "token", remainingItemCount: total - 1 };
  it.transport.confirmations.push({ status: 200, body: { metadata, items: [raw("a", "5")] } });
  it.source.requestEvidence();
}

describe("an object that the stream has not shown", () => {
  test("is missed before an event that passes the version of the count is applied", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    count(it, "12", 3);
    await it.time.settle();
    expect(it.failures()).toEqual([]);
    it.transport.lists.push(page("13", [raw("a", "5"), raw("b", "13"), raw("c", "12")]));
    stream.event("MODIFIED", raw("b", "13"));
    await it.time.advance(1000);
    expect([it.failures(), it.state()]).toEqual([["watch missed-event"], "13: a@5 b@13 c@12"]);
  });

  test("is not missed where it can't be parsed", async () => {
    const it = reflectorHarness();
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6"), raw("c", "7", "bad")]));
    await it.start(new ScriptedStream());
    count(it, "10", 3);
    await it.time.advance(1000);
    expect([it.failures(), it.source.historyInDoubt]).toEqual([[], false]);
  });

  test("is not missed where it can't be parsed in the stream", async () => {
    const it = reflectorHarness();
    await it.start(new ScriptedStream().event("ADDED", raw("c", "11", "bad")));
    count(it, "11", 3);
    await it.time.advance(1000);
    expect([it.failures(), it.source.historyInDoubt]).toEqual([[], false]);
  });

  test("is not missed where it can't be parsed, while a list fails and is repeated", async () => {
    const it = reflectorHarness();
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6"), raw("c", "7", "bad")]), () => {
      count(it, "10", 3);
      return statusAnswer(500);
    });
    it.transport.watches.push(statusAnswer(410));
    await it.start();
    expect(await it.time.runUntil(() => (it.source.confirmedSentMs ?? 0) > 0, 5000)).toBe(true);
    expect([it.failures().slice(0, 2), it.source.historyInDoubt]).toEqual([
      ["watch expired", "list server-error"],
      false,
    ]);
  });

  test("is missed again once a list has shown that everything can be parsed", async () => {
    const it = reflectorHarness();
    it.transport.lists.push(
      page("10", [raw("a", "5", "bad"), raw("b", "6")]),
      page("10", [raw("a", "5"), raw("b", "6")]),
    );
    it.transport.watches.push(statusAnswer(410));
    await it.start(new ScriptedStream(), new ScriptedStream());
    await it.time.advance(1000);
    it.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6"), raw("c", "7")]));
    count(it, "10", 3);
    await it.time.advance(1000);
    expect([it.failures(), it.state()]).toEqual([["watch expired", "watch missed-event"], "10: a@5 b@6 c@7"]);
  });

  test("is told once, whatever keeps the list from being made", async () => {
    const it = reflectorHarness();
    await it.start(new ScriptedStream(), new ScriptedStream());
    it.transport.lists.push("refused", page("12", [raw("a", "5"), raw("b", "6"), raw("c", "9")]));
    count(it, "10", 3);
    await it.time.advance(5000);
    expect([it.failures(), it.state()]).toEqual([["watch missed-event", "list refused"], "12: a@5 b@6 c@9"]);
  });
});
