/**
 * After an outage, and after a stall of the process: whether a stream resumes where it ended, or everything is listed
 * again.
 */
import { describe, expect, test } from "vitest";
import { raw, reflectorHarness } from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";

/** As kube-apiserver answers with `--shutdown-send-retry-after`: no Status. */
const SHUTTING_DOWN = {
  status: 429,
  headers: { "retry-after": "5" },
  body: "The apiserver is shutting down, please try again later.\n",
};

const list = "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan";
const resumed = "WATCH resourceVersion=10";

describe("a server that was restored and has passed the position unnoticed", () => {
  test.each<[string, "reset" | ReturnType<typeof statusAnswer>, number, string]>([
    ["a break", "reset", 1, resumed],
    // The last failure was earlier, but the outage lasts until the server responds.
    ["an outage", "reset", 3, list],
    ["a server that asks for patience", statusAnswer(429, {}, { "retry-after": "1" }), 3, resumed],
    [
      "a server that asks for as much patience as it ever does",
      statusAnswer(429, {}, { "retry-after": "8" }),
      2,
      resumed,
    ],
    ["something in between that asks for more", statusAnswer(429, {}, { "retry-after": "20" }), 1, list],
    [
      "a server that had lost its storage, and asks for patience",
      statusAnswer(429, { message: "storage is (re)initializing" }, { "retry-after": "1" }),
      1,
      list,
    ],
    ["a server that shuts down, and asks for patience", SHUTTING_DOWN, 3, list],
    [
      "a server or proxy without one behind it, which asks for patience",
      statusAnswer(501, {}, { "retry-after": "1" }),
      1,
      list,
    ],
  ])("after %s", async (_, answer, times, next) => {
    const it = reflectorHarness();
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

test.each([
  ["a server that shuts down is asked again at once: another one may answer", SHUTTING_DOWN, 1000, [resumed, resumed]],
  [
    "a proxy without a server behind it, which asks for minutes, is asked again soon",
    statusAnswer(503, {}, { "retry-after": "300" }),
    3000,
    [resumed, list],
  ],
  [
    "nor is it waited for where a stream says so",
    new ScriptedStream().event("ERROR", { kind: "Status", code: 503, details: { retryAfterSeconds: 300 } }),
    3000,
    [resumed, list],
  ],
])("%s", async (_, answer, withinMs, expected) => {
  const it = reflectorHarness();
  it.transport.watches.push(answer, new ScriptedStream());
  await it.start();
  await it.time.advance(withinMs);
  expect(it.transport.requests.slice(1, 3)).toEqual(expected);
});

test("a page of JSON with 200 that a gateway answers meanwhile, without the end of a line, is no stream", async () => {
  const it = reflectorHarness();
  const maintenance = new ScriptedStream().text('{"message":"back soon"}').end();
  it.transport.watches.push(maintenance, new ScriptedStream());
  await it.start();
  it.transport.lists.push("reset", page("20", []));
  await it.time.advance(30_000);
  expect(it.transport.requests.slice(1)).toEqual([resumed, list, list, "WATCH resourceVersion=20"]);
});

test("a stream that is cut inside a line behind others resumes", async () => {
  const it = reflectorHarness();
  const cut = new ScriptedStream().event("MODIFIED", raw("b", "15")).text('{"type":"MODI').end();
  it.transport.watches.push(cut, new ScriptedStream());
  await it.start();
  await it.time.advance(1000);
  expect(it.transport.requests.slice(1)).toEqual([resumed, "WATCH resourceVersion=15"]);
});

test("a page with 200 that a load balancer answers meanwhile, without the end of a line, is no stream", async () => {
  const it = reflectorHarness();
  const maintenance = { status: 200, headers: { "content-type": "text/html" }, body: "<html>back soon</html>" };
  it.transport.watches.push(maintenance, new ScriptedStream());
  await it.start();
  it.transport.lists.push(maintenance, maintenance, page("20", []));
  await it.time.advance(30_000);
  expect(it.transport.requests.slice(1)).toEqual([resumed, list, list, list, "WATCH resourceVersion=20"]);
  expect(it.events.filter(({ kind }) => kind === "watching")).toHaveLength(1);
});

test("an outage that lasts until the response to the watch counts, too", async () => {
  const it = reflectorHarness();
  const answer = Promise.withResolvers<ScriptedStream>();
  it.transport.watches.push("reset", answer.promise, new ScriptedStream());
  await it.start();
  it.transport.lists.push(page("20", [raw("a", "5")]));
  await it.time.advance(1500);
  expect(it.transport.requests.slice(1)).toEqual([resumed, resumed]);
  answer.resolve(new ScriptedStream().event("MODIFIED", raw("b", "15")));
  await it.time.advance(100);
  expect(it.transport.requests.slice(3)).toEqual([list, "WATCH resourceVersion=20"]);
  expect(it.failures()).toEqual(["watch reset"]);
});

test("a server that refuses connections may have stopped when its stream was heard last", async () => {
  const it = reflectorHarness();
  const stream = new ScriptedStream();
  it.transport.watches.push(stream, "refused", new ScriptedStream());
  await it.start();
  it.transport.lists.push(page("20", []));
  await it.time.advance(2000);
  stream.end();
  await it.time.advance(1000);
  expect(it.transport.requests.slice(2)).toEqual([resumed, list, "WATCH resourceVersion=20"]);
});

test("a stream that was resumed after a break is resumed again where it ends on time", async () => {
  const it = reflectorHarness();
  const streams = [0, 1, 2].map(() => new ScriptedStream());
  await it.start(...streams);
  streams[0]?.fail("reset");
  await it.time.advance(6000);
  streams[1]?.event("MODIFIED", raw("a", "12")).end();
  await it.time.advance(1000);
  expect(it.transport.requests.at(-1)).toBe("WATCH resourceVersion=12");
  expect(it.relists()).toBe(0);
});

describe("a process that stalled", () => {
  test.each<[string, number, string]>([
    ["lists again when its stream has ended meanwhile", 2000, list],
    ["resumes after a shorter time", 400, resumed],
  ])("%s", async (_, ms, next) => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.process.pause();
    await it.time.advance(ms);
    it.process.resume();
    expect(it.source.hasStalled).toBe(next === list);
    stream.end();
    it.transport.lists.push(page("20", [raw("a", "5"), raw("b", "6")]));
    await it.time.advance(1000);
    const asked = it.transport.requests.slice(2).filter((request) => request !== "LIST limit=1");
    expect(asked[0]).toBe(next);
    expect(it.events.some((event) => event.kind === "listed" && event.reason === "standstill")).toBe(next === list);
    expect(it.source.hasStalled).toBe(false);
  });

  test("says so with the list that follows, when one before it was cut", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.process.pause();
    await it.time.advance(2000);
    it.process.resume();
    stream.end();
    it.transport.lists.push({ status: 200, body: "{" }, page("20", []));
    await it.time.advance(5000);
    expect(it.events.flatMap((event) => (event.kind === "listed" ? [event.reason] : []))).toEqual([
      "first",
      "standstill",
    ]);
  });

  test("says so although its cache has to be confirmed as well", async () => {
    const it = reflectorHarness({ confirmEveryMs: 3000 });
    const streams = [0, 1, 2].map(() => new ScriptedStream());
    await it.start(...streams);
    it.transport.confirmations.push(...Array.from({ length: 20 }, () => page("15", [])));
    it.transport.lists.push(page("15", []));
    await it.time.advance(6000);
    streams[0]?.end();
    await it.time.advance(4000);
    it.process.pause();
    await it.time.advance(2000);
    it.process.resume();
    streams[1]?.end();
    await it.time.advance(1000);
    expect(it.events.flatMap((event) => (event.kind === "listed" ? [event.reason] : []))).toEqual([
      "first",
      "standstill",
    ]);
  });

  test("trusts the stream when it reaches a LIST that was sent after the stall", async () => {
    const it = reflectorHarness();
    const stream = new ScriptedStream();
    await it.start(stream, new ScriptedStream());
    it.process.pause();
    await it.time.advance(2000);
    it.transport.confirmations.push(page("12", [raw("a", "12"), raw("b", "6")]));
    it.process.resume();
    await it.time.advance(100);
    expect(it.source.hasStalled).toBe(true);
    stream.event("MODIFIED", raw("a", "12"));
    await it.time.advance(100);
    expect(it.source.hasStalled).toBe(false);
    stream.end();
    await it.time.advance(1000);
    expect(it.transport.requests.at(-1)).toBe("WATCH resourceVersion=12");
  });
});
