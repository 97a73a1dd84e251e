import { expect, test, vi } from "vitest";
import {
  page,
  ScriptedStream,
  ScriptedTransport,
  statusAnswer,
} from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { RELEASED_ANNOTATION } from "../../schema/annotations.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { entryText } from "./register-format.ts";
import { ReleaseRegister } from "./release-register.ts";

function segment(uids: readonly string[], resourceVersion: string): object {
  const metadata = { name: "podseidon-released-0", uid: "segment", resourceVersion };
  return { metadata, data: Object.fromEntries(uids.map((uid) => [uid, "2026-01-01T00:00:00Z"])) };
}

function protector(uid: string, more: Partial<PodProtector["metadata"]> = {}): Pick<PodProtector, "metadata"> {
  return { metadata: { name: "web", namespace: "shop", uid, resourceVersion: "7", ...more } };
}

test("a release is remembered when its segment is gone, until its protector is in force again", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  transport.lists.push(page("5", [segment(["a", "b", "c"], "4")]));
  transport.watches.push(stream);
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  const known = (): string[] => ["a", "b", "c"].filter((uid) => register.has(uid));
  expect(known()).toEqual(["a", "b", "c"]);
  register.inForce(protector("a", { annotations: { [RELEASED_ANNOTATION]: "NotRequired" } }));
  stream.event("DELETED", segment(["a", "b", "c"], "6"));
  await time.advance(100);
  expect(known()).toEqual(["a", "b", "c"]);
  register.inForce(protector("b", { deletionTimestamp: "2026-01-01T00:00:00Z" }));
  register.inForce(protector("c", { annotations: { [RELEASED_ANNOTATION]: "NotRequired" } }));
  register.inForce(protector("a"));
  expect(known()).toEqual(["b", "c"]);
  await register.stop();
});

test("after an outage the register is listed again: a resumed stream may belong to another history", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  transport.lists.push(page("5", [segment(["a"], "4")]), page("9", []));
  transport.watches.push(stream, "refused", "refused", "refused", "refused", "refused", "refused");
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  stream.fail("reset");
  await time.advance(20_000);
  register.inForce(protector("a"));
  expect(register.has("a")).toBe(false);
  await register.stop();
});

test("a protector in force whose release is recorded counts as not released until the next list", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  transport.lists.push(page("5", [segment(["a"], "4")]), page("9", [segment(["a"], "4")]));
  transport.watches.push(new ScriptedStream(), new ScriptedStream(), new ScriptedStream());
  const told: (readonly string[])[] = [];
  const onReleased = (uids: readonly string[]): void => void told.push(uids);
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system", onReleased });
  register.start();
  await time.advance(100);
  // The core was restored to before the release, or the watch of protectors lags.
  register.inForce(protector("a"));
  expect(register.has("a")).toBe(false);
  await time.advance(5_000);
  expect([register.has("a"), told]).toEqual([true, [["a"], ["a"]]]);
  await register.stop();
});

test.each([
  ["the whole segment", []],
  ["an entry of it", [segment(["b"], "8")]],
])("a protector is in force again before the register is listed, which then lacks %s", async (_name, segments) => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  transport.lists.push(page("5", [segment(["a", "b"], "4")]), page("9", segments));
  transport.watches.push(stream, new ScriptedStream());
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  register.inForce(protector("a"));
  expect([register.has("a"), register.has("b")]).toEqual([false, true]);
  await time.advance(20_000);
  // Nobody has seen a protector with the UID "b" again.
  expect([register.has("a"), register.has("b")]).toEqual([false, true]);
  await register.stop();
});

test("a release that a segment holds is known, however many there are", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const uids = Array.from({ length: 100_001 }, (_, index) => `u${index}`);
  transport.lists.push(page("5", [segment(uids, "4")]));
  transport.watches.push(new ScriptedStream());
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  expect([register.has("u0"), register.has("u100000"), register.has("other")]).toEqual([true, true, false]);
  await register.stop();
});

test("the release of a protector ends those before it of its name, unless one of them is in force again", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const at = (minute: number): string => `2026-01-01T00:0${minute}:00Z`;
  const second = protector("second", { creationTimestamp: at(2) });
  const text = entryText("2026-01-01T00:05:00.000Z", second, "NotRequired");
  const metadata = { name: "podseidon-released-0", uid: "segment", resourceVersion: "4" };
  const older = entryText("2026-01-01T00:04:00.000Z", protector("older", { creationTimestamp: at(0) }), "NotRequired");
  transport.lists.push(page("5", [{ metadata, data: { second: text, older, other: "shop/api" } }]));
  transport.watches.push(new ScriptedStream());
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  // It was in force in its time, before its successor was released.
  register.inForce(protector("first", { creationTimestamp: at(1) }));
  register.start();
  await time.advance(100);
  const hasEnded = (uid: string, creationTimestamp?: string, name = "web"): boolean =>
    register.hasEnded(protector(uid, { name, ...(creationTimestamp === undefined ? {} : { creationTimestamp }) }));
  expect([hasEnded("first", at(1)), hasEnded("second", at(2)), hasEnded("other")]).toEqual([true, true, true]);
  // The successor, one of the same second, one of another name, and one of which nobody knows when it was made.
  expect([
    hasEnded("third", at(3)),
    hasEnded("same", at(2)),
    hasEnded("api", at(1), "api"),
    hasEnded("unknown"),
  ]).toEqual([false, false, false, false]);
  // A restored core has the first one again, and the list of its register is on its way.
  register.inForce(protector("first", { creationTimestamp: at(1) }));
  expect(hasEnded("first", at(1))).toBe(false);
  await register.stop();
});

test("a successor that an apiserver with a slower clock has made is not taken for an earlier one", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  // The first one was made by a clock that is 20 s ahead, was released, and had its successor two seconds later.
  const first = protector("first", { creationTimestamp: "2026-01-01T00:00:22Z" });
  const text = entryText("2026-01-01T00:00:03.000Z", first, "NotRequired");
  const metadata = { name: "podseidon-released-0", uid: "segment", resourceVersion: "4" };
  transport.lists.push(page("5", [{ metadata, data: { first: text } }]));
  transport.watches.push(new ScriptedStream());
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  // This process has not seen the successor in force: it has begun after its loss.
  expect(register.hasEnded(protector("second", { creationTimestamp: "2026-01-01T00:00:04Z" }))).toBe(false);
  expect(register.hasEnded(protector("zeroth", { creationTimestamp: "2025-12-31T23:59:53Z" }))).toBe(false);
  expect(register.hasEnded(protector("zeroth", { creationTimestamp: "2025-12-31T23:59:52Z" }))).toBe(true);
  await register.stop();
});

test("a successor of one made by an apiserver whose clock is hours ahead is not taken for an earlier one", async () => {
  const transport = new ScriptedTransport();
  const first = protector("first", { creationTimestamp: "2026-01-01T05:00:00Z" });
  const metadata = { name: "podseidon-released-0", uid: "segment", resourceVersion: "4" };
  const text = entryText("2026-01-01T00:01:00.000Z", first, "NotRequired");
  const register = new ReleaseRegister({ core: "core", transport, ports: new VirtualTime(), namespace: "system" });
  transport.lists.push(page("5", [{ metadata, data: { first: text } }]));
  await register.refresh({ timeoutMs: 1_000 });
  const hasEnded = (uid: string, creationTimestamp: string): boolean =>
    register.hasEnded(protector(uid, { creationTimestamp }));
  expect(hasEnded("second", "2026-01-01T00:01:02Z")).toBe(false);
  expect(hasEnded("zeroth", "2026-01-01T00:00:30Z")).toBe(true);
});

test("what the watch has not shown is known once the register is read", async () => {
  const transport = new ScriptedTransport();
  const fresh: (readonly string[])[] = [];
  const onReleased = (uids: readonly string[]): void => void fresh.push(uids);
  const time = new VirtualTime();
  const given = { core: "core", transport, ports: time, namespace: "system", onReleased };
  const register = new ReleaseRegister(given);
  transport.lists.push(page("9", [segment(["a"], "8")]));
  const read = (): Promise<boolean> => register.refresh({ timeoutMs: 1_000 });
  expect([await read(), register.hasEnded(protector("a")), fresh]).toEqual([true, true, [["a"]]]);
  expect(await read()).toBe(false);
});

test("a denial of the register is no answer while it may be one of an apiserver that starts", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  const readAfter = async (ms: number, answer: Parameters<typeof transport.lists.push>[0]): Promise<boolean> => {
    await time.advance(ms);
    transport.lists.push(answer);
    return await register.refresh({ timeoutMs: 1_000 });
  };
  const denial = statusAnswer(403);
  expect([await readAfter(0, denial), await readAfter(9_999, denial)]).toEqual([false, false]);
  // Without the permission no retry helps.
  expect([await readAfter(1, denial), await readAfter(60_000, denial)]).toEqual([true, true]);
  expect([await readAfter(60_001, denial), await readAfter(10_000, denial)]).toEqual([false, true]);
  expect([await readAfter(1, page("9", [])), await readAfter(1, denial)]).toEqual([true, false]);
  expect([await readAfter(9_999, "refused"), await readAfter(1, denial)]).toEqual([false, false]);
});

test("a register that grows because cells do not acknowledge it is read to its end", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  for (let pages = 0; pages < 101; pages++) transport.lists.push(page("9", [], "more"));
  transport.lists.push(page("9", [segment(["last"], "8")]));
  expect([await register.refresh({ timeoutMs: 1_000 }), register.has("last")]).toEqual([true, true]);
});

test.each([
  ["too long", page("9", [], "more"), 1_000],
  ["changed while it was read", statusAnswer(410), 1],
])("a register that is %s is not denied", async (_what, answer, pages) => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  for (const afterMs of [0, 10_000, 10_000]) {
    await time.advance(afterMs);
    for (let read = 0; read < pages; read++) transport.lists.push(answer);
    expect(await register.refresh({ timeoutMs: 1_000 })).toBe(false);
  }
});

test("a later protector of the name ends the earlier ones once a read or the watch shows its release", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  transport.lists.push(page("5", []));
  transport.watches.push(stream);
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  const made = (uid: string, minute: number): Pick<PodProtector, "metadata"> =>
    protector(uid, { creationTimestamp: `2026-01-01T00:0${minute}:00Z` });
  const released = (later: Pick<PodProtector, "metadata">, resourceVersion: string): object => ({
    metadata: { name: "podseidon-released-0", uid: "segment", resourceVersion },
    data: { [later.metadata.uid]: entryText("2026-01-01T00:09:00.000Z", later, "NotRequired") },
  });
  const ended = (): boolean[] => [register.hasEnded(made("first", 1)), register.hasEnded(made("second", 3))];
  expect(ended()).toEqual([false, false]);
  transport.lists.push(page("9", [released(made("read", 2), "8")]));
  await register.refresh({ timeoutMs: 1_000 });
  expect(ended()).toEqual([true, false]);
  stream.event("ADDED", released(made("watched", 4), "10"));
  await time.advance(10);
  expect(ended()).toEqual([true, true]);
  await register.stop();
});

test("of thousands of releases, each reads one segment again, not the whole register", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  const made = (uid: string, index: number, minute: number): Pick<PodProtector, "metadata"> =>
    protector(uid, { name: `web-${index}`, creationTimestamp: `2026-01-01T00:0${minute}:00Z` });
  const text = (index: number): string => entryText("2026-01-01T00:09:00.000Z", made("", index, 2), "NotRequired");
  const filled = (number: number, entries: number): object => {
    const metadata = { name: `podseidon-released-${number}`, uid: `s${number}`, resourceVersion: String(10 + entries) };
    const indexes = Array.from({ length: entries }, (_, entry) => 200 * number + entry);
    return { metadata, data: Object.fromEntries(indexes.map((index) => [`u${index}`, text(index)])) };
  };
  transport.lists.push(
    page(
      "9",
      Array.from({ length: 20 }, (_, number) => filled(number, 200)),
    ),
  );
  transport.watches.push(stream);
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  register.inForce(made("first", 4_000, 1));
  const dates = vi.spyOn(Date, "parse");
  for (let entries = 1; entries <= 100; entries++) {
    stream.event(entries === 1 ? "ADDED" : "MODIFIED", filled(20, entries));
    await time.advance(0);
    expect(register.hasEnded(made("earlier", 3_999 + entries, 1))).toBe(true);
  }
  // A hundred segments of 50 entries on average, where the register has 4,000.
  expect(dates.mock.calls.length).toBeLessThan(10_000);
  dates.mockRestore();
  // An entry that is taken out ends nothing any more.
  stream.event("MODIFIED", {
    metadata: { name: "podseidon-released-20", uid: "s20", resourceVersion: "200" },
    data: {},
  });
  await time.advance(0);
  expect(register.hasEnded(made("earlier", 4_000, 1))).toBe(false);
  await register.stop();
});

test.each([
  ["has it", ["a"], true],
  ["lacks it", [], false],
])("a release in doubt is settled by a read of the register that %s", async (_what, uids, isReleased) => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  transport.lists.push(page("5", [segment(["a"], "4")]), page("9", [segment(uids, "8")]));
  transport.watches.push(new ScriptedStream());
  const register = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  register.start();
  await time.advance(100);
  register.inForce(protector("a"));
  await register.refresh({ timeoutMs: 1_000 });
  expect(register.has("a")).toBe(isReleased);
  await register.stop();
});

/** The answer to the `nth` request arrives when `late` resolves. */
function answeringLate(transport: ScriptedTransport, nth: number, late: Promise<void>): Transport {
  return {
    request: async (request) => {
      const response = await transport.request(request);
      if (transport.requests.length === nth) await late;
      return response;
    },
    stream: (request) => transport.stream(request),
    close: () => transport.close(),
  };
}

/** The third answer comes when `late` resolves. */
async function startedLate(transport: ScriptedTransport, ports: VirtualTime) {
  const late = Promise.withResolvers<void>();
  const given = { core: "core", transport: answeringLate(transport, 3, late.promise), namespace: "system" };
  const register = new ReleaseRegister({ ...given, ports });
  register.start();
  await ports.advance(100);
  return { register, late };
}

test("a read of the register that was sent before a doubt does not settle it, however late its answer", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  transport.lists.push(page("5", [segment(["a"], "4")]));
  transport.watches.push(new ScriptedStream(), new ScriptedStream());
  const { register, late } = await startedLate(transport, time);
  transport.lists.push(page("5", [segment(["a"], "4")]), page("9", []));
  const read = register.refresh({ timeoutMs: 1_000 });
  await time.advance(10);
  // The core is restored to before the release, which the register's stream does not tell.
  register.inForce(protector("a"));
  late.resolve();
  await read;
  expect(register.has("a")).toBe(false);
  await time.advance(20_000);
  expect(register.has("a")).toBe(false);
  await register.stop();
});

test("a read of the register takes nothing back that the watch has delivered since", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  transport.lists.push(page("5", []), page("5", []));
  transport.watches.push(stream);
  const { register, late } = await startedLate(transport, time);
  const read = register.refresh({ timeoutMs: 1_000 });
  const second = protector("second", { creationTimestamp: "2026-01-01T00:02:00Z" });
  const metadata = { name: "podseidon-released-0", uid: "segment", resourceVersion: "6" };
  stream.event("ADDED", { metadata, data: { second: entryText("2026-01-01T00:05:00.000Z", second, "NotRequired") } });
  await time.advance(10);
  late.resolve();
  await read;
  expect(register.hasEnded(protector("first", { creationTimestamp: "2026-01-01T00:01:00Z" }))).toBe(true);
  await register.stop();
});

test("nor does a list of the watch: it is read once more", async () => {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  transport.lists.push(page("5", [segment(["a", "b"], "4")]), page("9", [segment(["b"], "8")]), page("9", []));
  transport.watches.push(new ScriptedStream(), new ScriptedStream());
  const { register, late } = await startedLate(transport, time);
  register.inForce(protector("a"));
  await time.runUntil(() => transport.requests.length === 3, 20_000);
  await time.advance(10);
  register.inForce(protector("b"));
  late.resolve();
  await time.advance(30_000);
  expect([register.has("a"), register.has("b")]).toEqual([false, false]);
  expect(transport.requests.filter((request) => request.startsWith("LIST"))).toHaveLength(3);
  await register.stop();
});
