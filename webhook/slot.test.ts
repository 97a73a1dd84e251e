import { describe, expect, test } from "vitest";
import { formatMs } from "../shared/decide/time.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import type { Pod } from "../shared/schema/pod.ts";
import { ProtectorStore, type WriteFault } from "../test/support/protector-store.ts";
import { VirtualTime } from "../test/support/virtual-ports.ts";
import { noncesOf, type ProtectorFixture, pod, protector, quietObserver, unready } from "./fixtures.ts";
import { Nonces } from "./nonces.ts";
import { ProtectorSlot } from "./slot.ts";
import type { LiveRead, Outcome, ReserveWork } from "./work.ts";

interface Setup {
  readonly time: VirtualTime;
  readonly store: ProtectorStore;
  readonly slot: ProtectorSlot;
}

const WATCH_LAG_MS = 3;

function slotOn(store: ProtectorStore, ports: Ports, tag = "self"): ProtectorSlot {
  const slot: ProtectorSlot = new ProtectorSlot({
    namespace: "default",
    name: "web",
    ports,
    calls: store.calls(ports),
    watched: store.watch(ports, WATCH_LAG_MS, () => slot.watchChanged()),
    observer: quietObserver,
    tag,
  });
  return slot;
}

function setup(minAvailable: number, fixture: ProtectorFixture = {}): Setup {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(minAvailable, fixture) });
  return { time, store, slot: slotOn(store, time) };
}

interface Asked {
  readonly work: ReserveWork;
  outcome: Outcome | undefined;
  /** Virtual time of the outcome. */
  atMs: number | undefined;
}

let tokens = 0;

function ask(
  time: VirtualTime,
  slot: ProtectorSlot,
  target: Pod,
  overrides: Partial<ReserveWork> = {},
  nonce = `self${String(tokens++).padStart(4, "0")}`,
): Asked {
  const nowMs = time.clock.nowMs();
  const work: ReserveWork = {
    kind: "reserve",
    request: {
      cell: "cell-1",
      operation: "DELETE",
      nonce,
      pod: target,
      forced: false,
      criterion: "Available",
      startTime: formatMs(nowMs),
      staleRefreshBefore: formatMs(nowMs - 150_000),
    },
    verdictOnly: false,
    podReadMs: undefined,
    reread: undefined,
    arrivedMs: time.clock.monotonicMs(),
    deadlineMs: time.clock.monotonicMs() + 9_500,
    gone: () => false,
    attempt: undefined,
    settle: (outcome) => {
      asked.outcome = outcome;
      asked.atMs = time.elapsedMs;
    },
    ...overrides,
  };
  const asked: Asked = { work, outcome: undefined, atMs: undefined };
  slot.submit(work);
  return asked;
}

function many(count: number): Pod[] {
  return Array.from({ length: count }, (_, index) => pod(`web-${index}`));
}

function tally(asked: readonly Asked[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of asked) {
    const key = outcome === undefined ? "pending" : outcome.kind;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

describe("one request", () => {
  test("is admitted by one write, without a wait", async () => {
    const { time, store, slot } = setup(8);
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: true, decision: { reason: "Reserved" } });
    expect(asked.atMs).toBe(4);
    expect(store).toMatchObject({ writes: 1, reads: 0 });
    expect(noncesOf(store.object).get("uid-web-0")).toEqual([asked.work.request.nonce]);
  });

  test("a refusal on a cached version is confirmed by a read, and not written", async () => {
    const { time, store, slot } = setup(10);
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "refused", decision: { verdict: "Denial", cause: "AtMinimum" } });
    expect(store).toMatchObject({ writes: 0, reads: 1 });
  });

  test("a cached version that is out of date refuses nobody", async () => {
    const { time, store, slot } = setup(10);
    store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 5 } }));
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: true });
  });

  test("a verdict alone writes nothing", async () => {
    const { time, store, slot } = setup(8);
    const asked = ask(time, slot, pod("web-0"), { verdictOnly: true });
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: false });
    expect(store.writes).toBe(0);
  });

  test("a caller that is gone before the write begins leaves nothing", async () => {
    const { time, store, slot } = setup(8);
    const asked = ask(time, slot, pod("web-0"), { gone: () => true });
    await time.advance(1_000);
    expect(asked.outcome).toEqual({ kind: "abandoned" });
    expect(store.writes).toBe(0);
  });

  test("a protector that is gone says so", async () => {
    const { time, store, slot } = setup(8);
    store.remove();
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(1_000);
    expect(asked.outcome).toEqual({ kind: "absent" });
  });

  test("an object that makes the decision throw costs its own request", async () => {
    const { time, slot } = setup(8);
    const broken = ask(time, slot, pod("web-0"), {});
    Object.defineProperty(broken.work.request.pod, "phase", {
      get: () => {
        throw new Error("a defect");
      },
    });
    const fine = ask(time, slot, pod("web-1"));
    await time.advance(1_000);
    expect(fine.outcome).toMatchObject({ kind: "allowed" });
    expect(broken.outcome).toMatchObject({ kind: "failed", tag: "defect" });
  });
});

describe("requests that arrive together", () => {
  test("share a write", async () => {
    const { time, store, slot } = setup(0);
    const asked = many(10).map((target) => ask(time, slot, target));
    await time.advance(1_000);
    expect(tally(asked)).toEqual({ allowed: 10 });
    expect(store).toMatchObject({ writes: 1, conflicts: 0, reads: 0 });
  });

  test("never more than the quota", async () => {
    const { time, store, slot } = setup(8);
    const asked = many(10).map((target) => ask(time, slot, target));
    await time.advance(1_000);
    expect(tally(asked)).toEqual({ allowed: 2, refused: 8 });
    expect([...noncesOf(store.object).keys()]).toHaveLength(2);
    const refusals = asked.filter(({ outcome }) => outcome?.kind === "refused");
    for (const { outcome } of refusals)
      expect(outcome).toMatchObject({ decision: { verdict: "Busy", cause: "Reserved" } });
    expect(store.reads).toBeLessThanOrEqual(1);
  });

  test("the same pod twice is one reservation with both nonces and the larger version", async () => {
    const { time, store, slot } = setup(9);
    const older = ask(time, slot, pod("web-0", { resourceVersion: "50" }));
    const newer = ask(time, slot, pod("web-0", { resourceVersion: "60" }));
    await time.advance(1_000);
    expect(tally([older, newer])).toEqual({ allowed: 2 });
    expect(noncesOf(store.object).get("uid-web-0")).toEqual([older.work.request.nonce, newer.work.request.nonce]);
    expect(store.object.status?.cells[0]?.admissionHistory?.buckets).toMatchObject([{ podResourceVersion: "60" }]);
  });

  test("a flood beyond the bound is told so at once", async () => {
    const { time, slot } = setup(0, { available: 10_000 });
    const asked = many(4_100).map((target) => ask(time, slot, target));
    expect(tally(asked)).toMatchObject({ overloaded: 100 });
    await time.advance(5_000);
    expect(tally(asked)).toEqual({ allowed: 4_000, overloaded: 100 });
  });
});

describe("a conflict", () => {
  test("is read and decided again at once", async () => {
    const { time, store, slot } = setup(8);
    store.put((object) => object);
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: true });
    expect(asked.atMs).toBe(4 + 2 + 4);
    expect(store).toMatchObject({ writes: 1, conflicts: 1, reads: 1 });
  });

  test("with someone who took the quota meanwhile refuses, and nothing is written", async () => {
    const { time, store, slot } = setup(8);
    store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 10 } }));
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "refused" });
    expect(noncesOf(store.object).size).toBe(0);
  });

  test("a refusal that rests on what was about to be written is decided again when that was not written", async () => {
    const { time, store, slot } = setup(9);
    store.put((object) => object);
    const first = ask(time, slot, pod("web-0"));
    const second = ask(time, slot, pod("web-1"));
    // Written, conflicted, read: from here on both are decided on a version that is newer than themselves.
    await time.advance(7);
    expect(store.conflicts).toBe(1);
    store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 5 } }));
    await time.advance(1_000);
    expect(store.conflicts).toBe(2);
    expect(tally([first, second])).toEqual({ allowed: 2 });
  });

  test("what is read replaces what was cached, although its version went back", async () => {
    const { time, store, slot } = setup(8);
    await time.advance(10);
    store.put((object) => object, "0");
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(WATCH_LAG_MS - 1);
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: true });
  });
});

describe("a write whose outcome is unknown", () => {
  test.each<[string, WriteFault, { writes: number }]>([
    ["was made: found by its nonce, not written twice", "lostAnswer", { writes: 1 }],
    ["was lost: written again", "lostRequest", { writes: 1 }],
    ["arrives late: one of the two is made", { lateByMs: 3_001 }, { writes: 1 }],
    ["was never sent: written again, without a read", "unsent", { writes: 1 }],
  ])("%s", async (_name, fault, expected) => {
    const { time, store, slot } = setup(9);
    store.faults.push(fault);
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(9_500);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: true });
    expect(store).toMatchObject(expected);
    expect(noncesOf(store.object).get("uid-web-0")).toEqual([asked.work.request.nonce]);
  });

  test("and may still be made, is not dropped when its caller leaves", async () => {
    const { time, store, slot } = setup(9);
    let isGone = false;
    store.faults.push({ lateByMs: 60_000 });
    const asked = ask(time, slot, pod("web-0"), { gone: () => isGone });
    await time.advance(10);
    isGone = true;
    await time.advance(9_500);
    expect(asked.outcome).toMatchObject({ kind: "allowed", written: true });
  });

  test("at the deadline is an error, never a refusal", async () => {
    const { time, store, slot } = setup(9);
    store.isDown = true;
    const asked = ask(time, slot, pod("web-0"), { deadlineMs: 2_000 });
    await time.advance(9_500);
    expect(asked.outcome).toMatchObject({ kind: "failed", tag: "deadline" });
    expect(asked.atMs).toBeLessThanOrEqual(2_000);
  });

  test("that the server refuses is an error that carries its message", async () => {
    const { time, store, slot } = setup(9);
    store.faults.push("rejected");
    const asked = ask(time, slot, pod("web-0"));
    await time.advance(9_500);
    expect(asked.outcome).toEqual({ kind: "failed", tag: "core-rejected", message: "no" });
  });
});

describe("deadlines", () => {
  test("a core that hangs: every request is answered before its own deadline, with an error", async () => {
    const { time, store, slot } = setup(0);
    store.isDown = true;
    const asked = [800, 2_000, 5_000, 9_000].map((deadlineMs, index) =>
      ask(time, slot, pod(`web-${index}`), { deadlineMs }),
    );
    await time.advance(20_000);
    for (const { outcome, atMs, work } of asked) {
      expect(["failed", "overloaded"]).toContain(outcome?.kind);
      expect(atMs).toBeLessThanOrEqual(work.deadlineMs);
    }
  });

  test("a request without time for a write is answered before it", async () => {
    const { time, store, slot } = setup(0);
    const first = ask(time, slot, pod("web-0"));
    const hurried = ask(time, slot, pod("web-1"), { deadlineMs: 5 });
    await time.advance(1_000);
    expect(first.outcome).toMatchObject({ kind: "allowed" });
    expect(hurried.outcome).toEqual({ kind: "overloaded", cause: "time" });
    expect(store.writes).toBe(1);
  });
});

describe("a roll-back", () => {
  const rollBack = ({ time, slot }: Setup, nonce: string): (() => Outcome | undefined) => {
    let outcome: Outcome | undefined;
    const arrivedMs = time.clock.monotonicMs();
    slot.submit({
      kind: "rollBack",
      cell: "cell-1",
      uid: "uid-web-0",
      operation: "DELETE",
      nonce,
      arrivedMs,
      deadlineMs: arrivedMs + 30_000,
      settle: (settled) => {
        outcome = settled;
      },
    });
    return () => outcome;
  };

  test("takes away what was written", async () => {
    const all = setup(8);
    const asked = ask(all.time, all.slot, pod("web-0"));
    await all.time.advance(1_000);
    const outcome = rollBack(all, asked.work.request.nonce);
    await all.time.advance(1_000);
    expect(outcome()).toEqual({ kind: "done" });
    expect(noncesOf(all.store.object).size).toBe(0);
  });

  test("of what is not there writes nothing", async () => {
    const all = setup(8);
    const outcome = rollBack(all, "none0000");
    await all.time.advance(1_000);
    expect(outcome()).toEqual({ kind: "done" });
    expect(all.store.writes).toBe(0);
  });
});

describe("the eviction of a pod that is not available", () => {
  const evict = (
    { time, slot }: Setup,
    reread: (timeoutMs: number) => Promise<LiveRead>,
    podReadMs: number,
    target = unready("web-0"),
  ): Asked => {
    const asked = ask(time, slot, target, { podReadMs, reread });
    return asked;
  };

  test.each([
    ["older than the counts is read again", -1, 1],
    ["newer than the counts is believed", 1, 0],
  ])("a live read %s", async (_name, afterMs, reads) => {
    const all = setup(10);
    const { time, slot, store } = all;
    await time.advance(100);
    store.put((object) => object);
    await time.advance(100);
    slot.newest();
    const sinceMs = slot.cellSinceMs("cell-1");
    let rereads = 0;
    const work = evict(
      all,
      async () => {
        rereads++;
        return { kind: "found", pod: unready("web-0"), sentMs: time.clock.monotonicMs() };
      },
      sinceMs + afterMs,
    );
    work.work.request = { ...work.work.request, operation: "EVICT" };
    await time.advance(1_000);
    expect(work.outcome).toMatchObject({ kind: "allowed", decision: { reason: "PinnedUnavailable" } });
    expect(rereads).toBe(reads);
  });

  test("that became available meanwhile needs quota", async () => {
    const all = setup(10);
    const { time } = all;
    const asked = evict(all, async () => ({ kind: "found", pod: pod("web-0"), sentMs: time.clock.monotonicMs() }), -1);
    asked.work.request = { ...asked.work.request, operation: "EVICT" };
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "refused", decision: { cause: "AtMinimum" } });
  });

  test("that is gone meanwhile is told so; a cell that does not answer is an error", async () => {
    const all = setup(10);
    const gone = evict(all, async () => ({ kind: "gone" }), -1);
    gone.work.request = { ...gone.work.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(gone.outcome).toEqual({ kind: "podGone" });
    const failed = evict(all, async () => ({ kind: "failed", message: "no route" }), -1);
    failed.work.request = { ...failed.work.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(failed.outcome).toEqual({ kind: "failed", tag: "cell-unavailable", message: "no route" });
  });
});

describe("replicas that compete for one protector", () => {
  /** Closed loop: `concurrency` clients, each sends its next request round robin as soon as it is answered. */
  async function compete(
    replicas: number,
    requests: number,
    concurrency: number,
    seed: number,
    writeMs = 5,
  ): Promise<ProtectorStore & { readonly longestMs: number }> {
    const time = new VirtualTime({ seed });
    const store = new ProtectorStore({ ports: time, object: protector(0, { available: requests }), writeMs });
    const nonces = Array.from({ length: replicas }, () => new Nonces(time.random));
    const slots = nonces.map(({ tag }) => slotOn(store, time.process(), tag));
    const pods = many(requests);
    let next = 0;
    let done = 0;
    let longestMs = 0;
    const send = (): void => {
      const index = next++;
      const target = pods[index];
      const slot = slots[index % replicas];
      if (target === undefined || slot === undefined) return;
      const sentMs = time.clock.monotonicMs();
      const settle = (outcome: Outcome): void => {
        expect(outcome.kind).toBe("allowed");
        done++;
        longestMs = Math.max(longestMs, time.clock.monotonicMs() - sentMs);
        // The way back to the client and here again.
        time.timers.after(1 + time.random.fraction(), send);
      };
      ask(time, slot, target, { settle }, nonces[index % replicas]?.next());
    };
    for (let client = 0; client < concurrency; client++) send();
    await time.runUntil(() => done === requests, 60_000);
    expect(done).toBe(requests);
    expect(noncesOf(store.object).size).toBeLessThanOrEqual(requests);
    return Object.assign(store, { longestMs });
  }

  test("who loses the first writes of a rush is not left behind", async () => {
    for (let seed = 1; seed <= 4; seed++) {
      const { longestMs } = await compete(3, 300, 100, seed, 40);
      // The conflicts of the first two rounds of all three, then a turn of each of the others.
      expect(longestMs).toBeLessThanOrEqual(12 * 40);
    }
  });

  test("3 replicas, 1,000 requests, 100 at a time: at most 60 writes and conflicts", async () => {
    for (let seed = 1; seed <= 10; seed++) {
      const { writes, conflicts } = await compete(3, 1_000, 100, seed);
      expect(writes + conflicts).toBeLessThanOrEqual(60);
    }
  });

  test("one replica never conflicts with itself", async () => {
    const { writes, conflicts, reads } = await compete(1, 1_000, 100, 1);
    expect({ conflicts, reads }).toEqual({ conflicts: 0, reads: 0 });
    expect(writes).toBeLessThanOrEqual(30);
  });

  test("10 replicas finish as well", async () => {
    const { writes, conflicts } = await compete(10, 1_000, 100, 1);
    expect(writes + conflicts).toBeLessThanOrEqual(250);
  });
});
