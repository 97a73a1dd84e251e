import { describe, expect, test } from "vitest";
import { noncesOf, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import type { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { ask, many, setup, tally, writerOn } from "../../test/support/webhook/writer-harness.ts";

describe("one request", () => {
  test("is allowed by one write, without a wait", async () => {
    const { time, store, writer } = setup(8);
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true, decision: { reason: "Reserved" } });
    expect(asked.atMs).toBe(4);
    expect(store).toMatchObject({ writes: 1, reads: 0 });
    expect(noncesOf(store.object).get("uid-web-0")).toEqual([asked.pending.request.nonce]);
  });

  test("a denial on a cached version is confirmed by a read, and writes nothing", async () => {
    const { time, store, writer } = setup(10);
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "denied", decision: { kind: "Denial", cause: "AtMinimum" } });
    expect(store).toMatchObject({ writes: 0, reads: 1 });
  });

  test("a stale cached version denies nothing", async () => {
    const { time, store, writer } = setup(10);
    store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 5 } }));
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
  });

  test("a request for the decision alone writes nothing", async () => {
    const { time, store, writer } = setup(8);
    const asked = ask(time, writer, pod("web-0"), { decideOnly: true });
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: false });
    expect(store.writes).toBe(0);
  });

  test("a caller that disconnects before the write leaves no reservation", async () => {
    const { time, store, writer } = setup(8);
    const asked = ask(time, writer, pod("web-0"), { isCallerGone: () => true });
    await time.advance(1_000);
    expect(asked.decision).toEqual({ kind: "abandoned" });
    expect(store.writes).toBe(0);
  });

  test("a deleted protector is reported as absent", async () => {
    const { time, store, writer } = setup(8);
    store.remove();
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toEqual({ kind: "absent" });
  });

  test("a decision that throws fails its own request only", async () => {
    const { time, writer } = setup(8);
    const broken = ask(time, writer, pod("web-0"), {});
    Object.defineProperty(broken.pending.request.pod, "phase", {
      get: () => {
        throw new Error("a defect");
      },
    });
    const fine = ask(time, writer, pod("web-1"));
    await time.advance(1_000);
    expect(fine.decision).toMatchObject({ kind: "allowed" });
    expect(broken.decision).toMatchObject({ kind: "failed", tag: "defect" });
  });

  test("a defect between decision and write fails all that wait, at once, and later requests go on", async () => {
    const { time, store } = setup(8);
    let crashes = 0;
    const writer = writerOn(store, time, "self", ({ kind }) => {
      if (kind === "wrote" && crashes === 0) throw new Error("a defect");
      if (kind === "crashed") crashes++;
    });
    const broken = ask(time, writer, pod("web-0"));
    await time.advance(100);
    expect([crashes, broken.decision]).toMatchObject([1, { kind: "failed", tag: "defect" }]);
    const fine = ask(time, writer, pod("web-1"));
    await time.advance(100);
    expect(fine.decision).toMatchObject({ kind: "allowed" });
  });
});

describe("where the pods to spare are counted and not Ready yet", () => {
  const notReady = { aggregation: { notReady: "2@100" } };
  const countAll = (store: ProtectorStore): void =>
    store.put((object) => ({ ...object, status: protector(8).status ?? object.status }));

  test("a request waits for the count that says that they are, and is then allowed", async () => {
    const { time, store, writer } = setup(8, notReady);
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(500);
    expect(asked.decision).toBeUndefined();
    countAll(store);
    await time.advance(20);
    expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
  });

  test("it is busy after 1.5 s, and before its deadline", async () => {
    const { time, store, writer } = setup(8, notReady);
    const asked = ask(time, writer, pod("web-0"));
    const urgent = ask(time, writer, pod("web-1"), { deadlineMs: time.clock.monotonicMs() + 300 });
    await time.advance(10_000);
    for (const { decision } of [asked, urgent])
      expect(decision).toMatchObject({ kind: "denied", decision: { kind: "Busy", cause: "NotReady" } });
    expect(urgent.atMs).toBeLessThan(300);
    expect(asked.atMs).toBeGreaterThanOrEqual(1_500);
    expect(asked.atMs).toBeLessThan(1_600);
    expect(store).toMatchObject({ writes: 0 });
    expect(store.reads).toBeLessThanOrEqual(2);
  });

  test("it holds up nobody, and no more than 50 wait", async () => {
    const { time, store, writer } = setup(8, notReady);
    const asked = many(60).map((target) => ask(time, writer, target));
    await time.advance(200);
    expect(asked.filter(({ decision }) => decision === undefined)).toHaveLength(50);
    const repeated = ask(time, writer, unready("sick"), {}, "self9999");
    const evicted = unready("sick-too");
    const pinned = ask(time, writer, evicted, {
      request: { ...repeated.pending.request, pod: evicted, nonce: "self9998", operation: "EVICT" },
    });
    await time.advance(50);
    expect(repeated.decision).toMatchObject({ kind: "allowed" });
    expect(pinned.decision).toMatchObject({ kind: "allowed", written: true });
    countAll(store);
    await time.advance(2_000);
    expect(tally(asked)).toEqual({ allowed: 2, denied: 58 });
  });
});

describe("requests that arrive together", () => {
  test("share a write", async () => {
    const { time, store, writer } = setup(0);
    const asked = many(10).map((target) => ask(time, writer, target));
    await time.advance(1_000);
    expect(tally(asked)).toEqual({ allowed: 10 });
    expect(store).toMatchObject({ writes: 1, conflicts: 0, reads: 0 });
  });

  test("get no more than the quota", async () => {
    const { time, store, writer } = setup(8);
    const asked = many(10).map((target) => ask(time, writer, target));
    await time.advance(1_000);
    expect(tally(asked)).toEqual({ allowed: 2, denied: 8 });
    expect([...noncesOf(store.object).keys()]).toHaveLength(2);
    const refusals = asked.filter(({ decision }) => decision?.kind === "denied");
    for (const { decision } of refusals)
      expect(decision).toMatchObject({ decision: { kind: "Busy", cause: "Reserved" } });
    expect(store.reads).toBeLessThanOrEqual(1);
  });

  test("for the same pod share one reservation with both nonces and the larger version", async () => {
    const { time, store, writer } = setup(9);
    const older = ask(time, writer, pod("web-0", { resourceVersion: "50" }));
    const newer = ask(time, writer, pod("web-0", { resourceVersion: "60" }));
    await time.advance(1_000);
    expect(tally([older, newer])).toEqual({ allowed: 2 });
    expect(noncesOf(store.object).get("uid-web-0")).toEqual([older.pending.request.nonce, newer.pending.request.nonce]);
    expect(store.object.status?.cells[0]?.admissionHistory?.buckets).toMatchObject([{ podResourceVersion: "60" }]);
  });

  test("a denial does not wait for a batch without a write", async () => {
    const { time, store, writer } = setup(10);
    const denied = ask(time, writer, pod("web-0"));
    for (let sick = 0; sick < 300; sick++) {
      const target = unready(`sick-${sick}`);
      const nonce = `sick${String(sick).padStart(4, "0")}`;
      ask(time, writer, target, { request: { ...denied.pending.request, pod: target, nonce, operation: "EVICT" } });
      await time.advance(3);
    }
    expect(store.writes).toBeGreaterThan(200);
    expect(denied.decision).toMatchObject({ kind: "denied", decision: { kind: "Denial", cause: "AtMinimum" } });
    expect(denied.atMs).toBeLessThan(20);
  });

  test("beyond the bound are busy at once", async () => {
    const { time, writer } = setup(0, { available: 10_000 });
    const asked = many(4_100).map((target) => ask(time, writer, target));
    expect(tally(asked)).toMatchObject({ overloaded: 100 });
    await time.advance(5_000);
    expect(tally(asked)).toEqual({ allowed: 4_000, overloaded: 100 });
  });
});
