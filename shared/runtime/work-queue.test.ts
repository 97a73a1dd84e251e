import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { type QueueEvent, type QueueOptions, WorkQueue } from "./work-queue.ts";

function queueOf(options: Partial<QueueOptions> = {}): { queue: WorkQueue; time: VirtualTime; events: QueueEvent[] } {
  const time = new VirtualTime();
  const events: QueueEvent[] = [];
  const queue = new WorkQueue({ name: "test", ports: time, onEvent: (event) => events.push(event), ...options });
  return { queue, time, events };
}

function takeAll(queue: WorkQueue): string[] {
  const keys: string[] = [];
  for (let key = queue.tryTake(); key !== undefined; key = queue.tryTake()) {
    keys.push(key);
    queue.done(key);
  }
  return keys;
}

describe("work queue", () => {
  it("hands out keys first in, first out, each once", () => {
    const { queue } = queueOf();
    for (const key of ["a", "b", "a", "c", "b"]) expect(queue.add(key)).toBe(true);
    expect(queue.depth).toBe(3);
    expect(takeAll(queue)).toEqual(["a", "b", "c"]);
  });

  it("takes many keys without a walk past those that were taken, which made 200,000 keys take 13 s", () => {
    const { queue } = queueOf();
    for (let key = 0; key < 1_000; key++) queue.add(`${key}`);
    // Each of these walks begins at the first place of the Map, also at one that is empty by now.
    const ways = (["entries", "keys", "values", Symbol.iterator] as const).map((way) => vi.spyOn(Map.prototype, way));
    let walks = 0;
    try {
      expect(takeAll(queue)).toHaveLength(1_000);
      walks = ways.reduce((sum, way) => sum + way.mock.calls.length, 0);
    } finally {
      for (const way of ways) way.mockRestore();
    }
    expect(walks).toBeLessThan(10);
  });

  it("gives a key to one worker at a time and does not lose an add during work", () => {
    const { queue } = queueOf();
    queue.add("a");
    expect(queue.tryTake()).toBe("a");
    queue.add("a");
    queue.add("b");
    expect(queue.tryTake()).toBe("b");
    expect(queue.tryTake()).toBeUndefined();
    queue.done("b");
    queue.done("a");
    expect(queue.tryTake()).toBe("a");
    queue.done("a");
    expect(queue.tryTake()).toBeUndefined();
  });

  it("puts a busy key behind the others", () => {
    const { queue } = queueOf();
    queue.add("busy");
    queue.tryTake();
    queue.add("busy");
    queue.add("other");
    queue.done("busy");
    expect(takeAll(queue)).toEqual(["other", "busy"]);
  });

  it("wakes a waiting worker", async () => {
    const { queue } = queueOf();
    const first = queue.take();
    const second = queue.take();
    queue.add("a");
    queue.add("b");
    expect(await first).toBe("a");
    expect(await second).toBe("b");
    expect(queue.processing).toBe(2);
  });

  it.each([
    { name: "the earlier, when it came first", delays: [100, 500], at: 100 },
    { name: "the earlier, when it came later", delays: [500, 100], at: 100 },
  ])("keeps of two delays $name", async ({ delays, at }) => {
    const { queue, time } = queueOf();
    for (const delayMs of delays) queue.addAfter("a", delayMs);
    expect(queue.delayed).toBe(1);
    await time.advance(at - 1);
    expect(queue.tryTake()).toBeUndefined();
    await time.advance(1);
    expect(takeAll(queue)).toEqual(["a"]);
    await time.advance(1000);
    expect(takeAll(queue)).toEqual([]);
  });

  it("does not let a plain add cancel a delayed one", async () => {
    const { queue, time } = queueOf();
    queue.addAfter("a", 100);
    queue.add("a");
    expect(takeAll(queue)).toEqual(["a"]);
    await time.advance(100);
    expect(takeAll(queue)).toEqual(["a"]);
  });

  it("adds at once for a delay of zero, and cuts a delay beyond the limit of timers", async () => {
    const { queue, time } = queueOf();
    queue.addAfter("now", 0);
    expect(takeAll(queue)).toEqual(["now"]);
    queue.addAfter("far", Number.MAX_SAFE_INTEGER);
    await time.advance(24 * 60 * 60 * 1000);
    expect(takeAll(queue)).toEqual(["far"]);
  });

  it("backs off a failing key and forgets on success", async () => {
    const { queue, time, events } = queueOf({ backoff: { initialMs: 100, maxMs: 1000, jitter: 0 } });
    for (const delayMs of [100, 200, 400]) {
      queue.addRateLimited("a");
      await time.advance(delayMs - 1);
      expect(queue.tryTake()).toBeUndefined();
      await time.advance(1);
      expect(takeAll(queue)).toEqual(["a"]);
    }
    expect(queue.failures("a")).toBe(3);
    queue.forget("a");
    expect(queue.failures("a")).toBe(0);
    queue.addRateLimited("a");
    expect(events.filter((event) => event.kind === "retried").map((event) => event.delayMs)).toEqual([
      100, 200, 400, 100,
    ]);
  });

  it("does not count a key as failing after a try that asked no server, whose backoff goes on", () => {
    const { queue, events } = queueOf({ backoff: { initialMs: 100, maxMs: 1000, jitter: 0 } });
    queue.ease("a");
    queue.addRateLimited("a");
    expect(queue.failing).toBe(1);
    queue.ease("a");
    expect(queue.failing).toBe(0);
    queue.addRateLimited("a");
    expect(queue.failing).toBe(1);
    expect(events.filter((event) => event.kind === "retried").map((event) => event.delayMs)).toEqual([100, 200]);
  });

  it("honours a server's Retry-After as the least delay", async () => {
    const { queue, time } = queueOf({ backoff: { initialMs: 100, maxMs: 1000, jitter: 0 } });
    queue.addRateLimited("a", 3000);
    await time.advance(2999);
    expect(queue.tryTake()).toBeUndefined();
    await time.advance(1);
    expect(queue.tryTake()).toBe("a");
  });

  it("does not let events overtake the backoff, unless told", async () => {
    const { queue, time } = queueOf({ backoff: { initialMs: 1000, maxMs: 1000, jitter: 0 } });
    queue.addRateLimited("a");
    queue.add("a");
    queue.addAfter("a", 10);
    await time.advance(999);
    expect(queue.tryTake()).toBeUndefined();
    await time.advance(1);
    expect(takeAll(queue)).toEqual(["a"]);
    queue.addRateLimited("a");
    queue.addNow("a");
    expect(takeAll(queue)).toEqual(["a"]);
    expect(time.pendingTimers).toBe(0);
    queue.add("a");
    expect(takeAll(queue)).toEqual(["a"]);
  });

  it("takes a plain delay again after it has passed, and counts no delay meanwhile", async () => {
    const { queue, time } = queueOf();
    for (let round = 0; round < 2; round += 1) {
      queue.addAfter("a", 100);
      expect(queue.delayed).toBe(1);
      await time.advance(100);
      expect(queue.delayed).toBe(0);
      expect(takeAll(queue)).toEqual(["a"]);
    }
  });

  it("hands a key to a worker that waits, and to no other", async () => {
    const { queue } = queueOf();
    const waiting = queue.take();
    queue.add("a");
    expect(await waiting).toBe("a");
    expect([queue.depth, queue.processing, queue.tryTake()]).toEqual([0, 1, undefined]);
  });

  it("takes keys that it knows when it is full", async () => {
    const { queue, time } = queueOf({ maxKeys: 1, backoff: { initialMs: 1000, maxMs: 1000, jitter: 0 } });
    queue.add("a");
    queue.tryTake();
    queue.add("b");
    expect([queue.add("c"), queue.add("b"), queue.add("a")]).toEqual([false, true, true]);
    queue.done("a");
    expect(takeAll(queue)).toEqual(["b", "a"]);
    queue.add("a");
    queue.tryTake();
    queue.add("b");
    expect(queue.addRateLimited("a")).toBe(true);
    queue.done("a");
    expect(takeAll(queue)).toEqual(["b"]);
    await time.advance(1000);
    expect(takeAll(queue)).toEqual(["a"]);
  });

  it("does not let an add during failing work overtake the backoff", async () => {
    const { queue, time } = queueOf({ backoff: { initialMs: 1000, maxMs: 1000, jitter: 0 } });
    queue.add("a");
    queue.tryTake();
    queue.add("a");
    queue.addRateLimited("a");
    queue.done("a");
    expect(queue.tryTake()).toBeUndefined();
    await time.advance(1000);
    expect(takeAll(queue)).toEqual(["a"]);
  });

  it("lets a backoff replace a shorter plain delay", async () => {
    const { queue, time } = queueOf({ backoff: { initialMs: 1000, maxMs: 1000, jitter: 0 } });
    queue.addAfter("a", 10);
    queue.addRateLimited("a");
    await time.advance(999);
    expect(queue.tryTake()).toBeUndefined();
    await time.advance(1);
    expect(queue.tryTake()).toBe("a");
  });

  it("tries at most ten times in the first ten seconds of an outage, events or not", async () => {
    const { queue, time } = queueOf();
    let tries = 0;
    queue.add("a");
    for (let atMs = 0; atMs < 10_000; atMs += 5) {
      const key = queue.tryTake();
      if (key !== undefined) {
        tries += 1;
        queue.addRateLimited(key);
        queue.done(key);
      }
      queue.add("a");
      await time.advance(5);
    }
    expect(tries).toBeGreaterThan(5);
    expect(tries).toBeLessThanOrEqual(10);
  });

  it("is bounded, and reports refused adds", () => {
    const { queue, events } = queueOf({ maxKeys: 3 });
    expect([queue.add("a"), queue.addAfter("b", 10), queue.add("c"), queue.add("d"), queue.addAfter("e", 10)]).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
    expect(queue.add("a")).toBe(true);
    expect(events.filter((event) => event.kind === "refused")).toHaveLength(2);
  });

  it("stops: hands out no keys, wakes waiting workers, leaves no timer", async () => {
    const { queue, time } = queueOf();
    const waiting = queue.take();
    queue.addAfter("b", 10);
    queue.addRateLimited("c");
    queue.stop();
    expect(await waiting).toBeUndefined();
    expect(await queue.take()).toBeUndefined();
    expect([queue.add("a"), queue.addAfter("a", 5), queue.addRateLimited("a")]).toEqual([false, false, false]);
    expect([time.pendingTimers, queue.delayed, queue.failing, queue.depth]).toEqual([0, 0, 0, 0]);
  });

  it("takes out a key that waits, in whatever way, and none in processing", async () => {
    const { queue, time } = queueOf();
    queue.add("ready");
    queue.addAfter("later", 10);
    queue.addRateLimited("failed");
    expect(["ready", "later", "failed", "unknown"].map((key) => queue.drop(key))).toEqual([true, true, true, true]);
    await time.advance(60_000);
    expect([queue.tryTake(), queue.failing, queue.delayed, time.pendingTimers]).toEqual([undefined, 0, 0, 0]);
    queue.add("ready");
    expect([queue.tryTake(), queue.drop("ready"), queue.processing]).toEqual(["ready", false, 1]);
  });

  it("reports waiting and working times", async () => {
    const { queue, time, events } = queueOf();
    queue.add("a");
    await time.advance(30);
    expect(queue.longestWaitMs()).toBe(30);
    queue.tryTake();
    await time.advance(12);
    expect(queue.longestWorkMs()).toBe(12);
    queue.done("a");
    expect(queue.longestWorkMs()).toBe(0);
    expect(events).toEqual([
      { kind: "queued", depth: 1 },
      { kind: "taken", waitedMs: 30, depth: 0 },
      { kind: "done", workedMs: 12 },
    ]);
  });

  it("loses no add and never processes a key twice at once, in any order of operations", async () => {
    const key = fc.constantFrom("a", "b", "c");
    const operation = fc.oneof(
      fc.record({ do: fc.constantFrom("add", "addNow", "fail", "forget", "take"), key }),
      fc.record({ do: fc.constant("after"), key, ms: fc.integer({ min: 0, max: 300 }) }),
      fc.record({ do: fc.constantFrom("done", "failDone"), key }),
      fc.record({ do: fc.constant("wait"), ms: fc.integer({ min: 0, max: 400 }) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { maxLength: 60 }), async (operations) => {
        const { queue, time } = queueOf();
        const working = new Set<string>();
        /** Keys added since they were last taken: the queue must hand out each of them. */
        const owed = new Set<string>();
        const take = (): string | undefined => {
          const taken = queue.tryTake();
          if (taken === undefined) return undefined;
          expect(working.has(taken)).toBe(false);
          working.add(taken);
          owed.delete(taken);
          return taken;
        };
        for (const step of operations) {
          const name = "key" in step ? step.key : "";
          const ms = "ms" in step ? step.ms : 0;
          if (step.do === "add" || step.do === "addNow") owed.add(name);
          if (step.do === "add") queue.add(name);
          if (step.do === "addNow") queue.addNow(name);
          if (step.do === "after") queue.addAfter(name, ms);
          if (step.do === "after") owed.add(name);
          if (step.do === "fail" || (step.do === "failDone" && working.has(name))) {
            queue.addRateLimited(name);
            owed.add(name);
          }
          if (step.do === "forget") queue.forget(name);
          if (step.do === "take") take();
          if ((step.do === "done" || step.do === "failDone") && working.delete(name)) queue.done(name);
          if (step.do === "wait") await time.advance(ms);
        }
        for (const name of working) queue.done(name);
        working.clear();
        // Backoffs and delays of this script end within a minute.
        for (let rounds = 0; rounds < 10 && owed.size > 0; rounds += 1) {
          await time.advance(15_000);
          for (let taken = take(); taken !== undefined; taken = take()) {
            working.delete(taken);
            queue.done(taken);
          }
        }
        expect([...owed]).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });
});
