import { describe, expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { noncesOf, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore, type WriteFault } from "../../test/support/webhook/protector-store.ts";
import { ask, setup, tally, WATCH_LAG_MS, writerOn } from "../../test/support/webhook/writer-harness.ts";
import type { ProtectorEvent } from "./protector-event.ts";

describe("a conflict", () => {
  test("is read and decided again at once", async () => {
    const { time, store, writer } = setup(8);
    store.put((object) => object);
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
    expect(asked.atMs).toBe(4 + 2 + 4);
    expect(store).toMatchObject({ writes: 1, conflicts: 1, reads: 1 });
  });

  test("with a writer that took the quota denies, and nothing is written", async () => {
    const { time, store, writer } = setup(8);
    store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 10 } }));
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "denied" });
    expect(noncesOf(store.object).size).toBe(0);
  });

  test("a denial that rests on a write that failed is decided again", async () => {
    const { time, store, writer } = setup(9);
    store.put((object) => object);
    const first = ask(time, writer, pod("web-0"));
    const second = ask(time, writer, pod("web-1"));
    // After the conflict and the read, both are decided on a version that is newer than themselves.
    await time.advance(7);
    expect(store.conflicts).toBe(1);
    store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 5 } }));
    await time.advance(1_000);
    expect(store.conflicts).toBe(2);
    expect(tally([first, second])).toEqual({ allowed: 2 });
  });

  test("a read replaces the cached version, although its version is lower", async () => {
    const { time, store, writer } = setup(8);
    await time.advance(10);
    store.put((object) => object, "0");
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(WATCH_LAG_MS - 1);
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
  });
});

describe("a write whose answer is late, of a core that answers no read in time", () => {
  async function decideWith(lateByMs: number, since?: "isFailing" | "isRecovering") {
    const time = new VirtualTime();
    const store = new ProtectorStore({ ports: time, object: protector(8) });
    let isOut = false;
    const outage = since === undefined ? {} : { [since]: () => isOut };
    const writer = writerOn(store, time, "self", undefined, outage);
    store.faults.push({ lateByMs });
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(2);
    [store.isDown, isOut] = [true, true];
    await time.advance(10_000);
    return { asked, store };
  }

  test.each<[string, number, number]>([
    ["has shown it before the writer gives up", 500, 3_020],
    ["shows it later", 4_000, 4_004],
  ])("is stored when the watch %s", async (_name, lateByMs, latestMs) => {
    const { asked, store } = await decideWith(lateByMs);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
    expect(asked.atMs).toBeLessThanOrEqual(latestMs);
    expect(store.writes).toBe(1);
  });

  test.each([
    ["a call has failed since", "isFailing"],
    ["the core has just come back", "isRecovering"],
  ] as const)("is not known where %s: the core may have been restored", async (_name, since) => {
    const { asked } = await decideWith(4_000, since);
    expect(asked.decision).toMatchObject({ kind: "failed", tag: "deadline" });
  });
});

describe("after a call that failed", () => {
  test.each<[string, boolean, object, number]>([
    ["a connection's break is over with the first read", false, { kind: "allowed", written: true }, 1],
    ["a core that was out of reach for longer may be restored", true, { kind: "overloaded", cause: "recovering" }, 0],
  ])("nothing is reserved before a read: %s", async (_name, isOutage, decision, writes) => {
    const time = new VirtualTime();
    const store = new ProtectorStore({ ports: time, object: protector(8) });
    let [isFailing, isRecovering] = [true, false];
    const purposes: string[] = [];
    const writer = writerOn(
      store,
      time,
      "self",
      (event) => {
        if (event.kind !== "read") return;
        purposes.push(event.purpose);
        [isFailing, isRecovering] = [false, isOutage];
      },
      { isFailing: () => isFailing, isRecovering: () => isRecovering },
    );
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject(decision);
    expect(purposes).toEqual(["outage"]);
    expect(store.writes).toBe(writes);
  });

  test("nor beside a roll-back", async () => {
    const time = new VirtualTime();
    const store = new ProtectorStore({ ports: time, object: protector(8) });
    let isFailing = false;
    const calls: string[] = [];
    const tell = (event: ProtectorEvent): void => {
      if (event.kind !== "read" && event.kind !== "wrote") return;
      calls.push(event.kind);
      isFailing = false;
    };
    const writer = writerOn(store, time, "self", tell, { isFailing: () => isFailing });
    const { pending } = ask(time, writer, pod("web-1"));
    await time.advance(1_000);
    isFailing = true;
    const { nonce, cell, operation } = pending.request;
    const times = { arrivedMs: time.clock.monotonicMs(), deadlineMs: time.clock.monotonicMs() + 30_000 };
    writer.submit({ kind: "rollBack", uid: "uid-web-1", cell, operation, nonce, ...times });
    ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(calls).toEqual(["wrote", "read", "wrote"]);
    expect(noncesOf(store.object).size).toBe(1);
  });

  test("what needs no quota does not wait for the core", async () => {
    const time = new VirtualTime();
    const store = new ProtectorStore({ ports: time, object: protector(8) });
    store.isDown = true;
    const writer = writerOn(store, time, "self", undefined, { isFailing: () => true });
    const asked = ask(time, writer, { ...pod("web-0"), terminating: true });
    await time.advance(1);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: false });
  });
});

describe("while a core answers reads and fails each write", () => {
  const error = new Error('PUT: HTTP 500: Internal error occurred: failed calling webhook "policy.example.com"');
  const busy = { kind: "unavailable", error: new Error("PUT: HTTP 500: no space"), sent: true, status: 500 } as const;
  const foreign = { ...busy, error, sent: false } as const;

  test.each([
    ["by a webhook that is down", foreign, "core-unavailable"],
    ["by its storage", busy, "deadline"],
  ])("%s, it gets at most ten writes of a protector in ten seconds, whoever reads it", async (_name, failure, tag) => {
    const { time, store, writer } = setup(9);
    store.writesFail = failure;
    const asked = ask(time, writer, pod("web-0"));
    for (let times = 0; times < 90; times++) {
      // Its denial needs a read.
      store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: times % 2 === 0 ? 9 : 8 } }));
      ask(time, writer, pod(`web-${times}`), { decideOnly: true });
      await time.advance(100);
    }
    expect(store.failedWrites).toBeLessThanOrEqual(10);
    await time.advance(1_000);
    const message = expect.stringContaining(failure.error.message);
    expect(asked.decision).toMatchObject({ kind: "failed", tag, message });
    store.writesFail = undefined;
    const after = ask(time, writer, pod("web-1"));
    await time.advance(3_000);
    expect(after.decision).toMatchObject({ kind: "allowed", written: true });
  });
});

test("after a write that a core answered, its next failure costs milliseconds, and is not told before", async () => {
  const { time, store, writer } = setup(0);
  store.faults.push("unsent", "unsent", "unsent", "unsent");
  const first = ask(time, writer, pod("web-0"));
  await time.advance(5_000);
  expect(first.decision).toMatchObject({ kind: "allowed", written: true });
  const hurried = ask(time, writer, pod("web-1"), { deadlineMs: time.clock.monotonicMs() + 1 });
  await time.advance(10);
  expect(hurried.decision).toEqual({ kind: "overloaded", cause: "time" });
  store.faults.push("unsent");
  const second = ask(time, writer, pod("web-2"));
  await time.advance(50);
  expect(second.decision).toMatchObject({ kind: "allowed", written: true });
});

describe("a write with an unknown result", () => {
  test.each<[string, WriteFault, { writes: number }]>([
    ["was made: found by its nonce, and not written twice", "lostResponse", { writes: 1 }],
    ["was lost: written again", "lostRequest", { writes: 1 }],
    ["arrives late: one of the two is made", { lateByMs: 3_001 }, { writes: 1 }],
    ["was never sent: written again, without a read", "unsent", { writes: 1 }],
  ])("%s, and is told like any other", async (_name, fault, expected) => {
    const { time, store } = setup(9);
    const told: unknown[] = [];
    const writer = writerOn(store, time, "self", (event) => {
      if (event.kind === "committed") told.push(...event.batch.decisions.keys());
    });
    store.faults.push(fault);
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(9_500);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
    expect(store).toMatchObject(expected);
    expect(noncesOf(store.object).get("uid-web-0")).toEqual([asked.pending.request.nonce]);
    expect(told).toEqual([asked.pending]);
  });

  test.each<[string, WriteFault, object]>([
    ["was made is found by a read, and not written twice", "lostResponse", { kind: "allowed", written: true }],
    ["was lost can't be made any more once the version has changed", "lostRequest", { kind: "denied" }],
  ])("that %s, while the watch shows nothing", async (_name, fault, decision) => {
    const time = new VirtualTime();
    const store = new ProtectorStore({ ports: time, object: protector(9) });
    const writer = writerOn(store, time, "self", undefined, { watched: store.watch(time, 60_000, () => undefined) });
    store.faults.push(fault);
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(100);
    if (fault === "lostRequest") store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 10 } }));
    await time.advance(9_500);
    expect(asked.decision).toMatchObject(decision);
    expect(store.writes).toBe(fault === "lostResponse" ? 1 : 0);
  });

  test("that may still be made is not dropped when its caller disconnects", async () => {
    const { time, store, writer } = setup(9);
    let isGone = false;
    store.faults.push({ lateByMs: 60_000 });
    const asked = ask(time, writer, pod("web-0"), { isCallerGone: () => isGone });
    await time.advance(10);
    isGone = true;
    await time.advance(9_500);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
  });

  test("fails at the deadline, and never denies", async () => {
    const { time, store, writer } = setup(9);
    store.isDown = true;
    const asked = ask(time, writer, pod("web-0"), { deadlineMs: 2_000 });
    await time.advance(9_500);
    expect(asked.decision).toMatchObject({ kind: "failed", tag: "deadline" });
    expect(asked.atMs).toBeLessThanOrEqual(2_000);
  });

  test("that the server rejects fails with the server's message", async () => {
    const { time, store, writer } = setup(9);
    store.faults.push("rejected");
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(9_500);
    expect(asked.decision).toEqual({ kind: "failed", tag: "core-rejected", message: "no" });
  });
});

test.each(["ignored", "emptied"] as const)("a write that is answered with 200 and %s allows nothing", async (fault) => {
  const { time, store, writer } = setup(9);
  store.faults.push(fault);
  const asked = ask(time, writer, pod("web-0"));
  await time.advance(9_500);
  expect(noncesOf(store.object).size).toBe(0);
  expect(asked.decision).toMatchObject({ kind: "failed", tag: "core-rejected" });
  const repeated = ask(time, writer, pod("web-0"));
  await time.advance(1_000);
  expect(repeated.decision).toMatchObject({ kind: "allowed", written: true });
});

describe("deadlines", () => {
  test("when a core hangs, every request fails before its own deadline", async () => {
    const { time, store, writer } = setup(0);
    store.isDown = true;
    const asked = [800, 2_000, 5_000, 9_000].map((deadlineMs, index) =>
      ask(time, writer, pod(`web-${index}`), { deadlineMs }),
    );
    await time.advance(20_000);
    for (const { decision, atMs, pending } of asked) {
      expect(["failed", "overloaded"]).toContain(decision?.kind);
      expect(atMs).toBeLessThanOrEqual(pending.deadlineMs);
    }
  });

  test("a request without time for a write is settled before it", async () => {
    const { time, store, writer } = setup(0);
    const first = ask(time, writer, pod("web-0"));
    const hurried = ask(time, writer, pod("web-1"), { deadlineMs: 5 });
    await time.advance(1_000);
    expect(first.decision).toMatchObject({ kind: "allowed" });
    expect(hurried.decision).toEqual({ kind: "overloaded", cause: "time" });
    expect(store.writes).toBe(1);
  });
});
