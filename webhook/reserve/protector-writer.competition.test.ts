import { describe, expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { noncesOf, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { ask, many, writerOn } from "../../test/support/webhook/writer-harness.ts";
import { Nonces } from "./nonces.ts";
import type { ProtectorWriter } from "./protector-writer.ts";
import type { ProtectorDecision } from "./verdict.ts";

describe("replicas that compete for one protector", () => {
  /** Closed loop: each of `concurrency` clients sends its next request, round robin, after its response. */
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
    const slots = nonces.map(({ tag }) => writerOn(store, time.process(), tag));
    const pods = many(requests);
    let next = 0;
    let done = 0;
    let longestMs = 0;
    const send = (): void => {
      const index = next++;
      const target = pods[index];
      const writer = slots[index % replicas];
      if (target === undefined || writer === undefined) return;
      const sentMs = time.clock.monotonicMs();
      const settle = (decision: ProtectorDecision): void => {
        expect(decision.kind).toBe("allowed");
        done++;
        longestMs = Math.max(longestMs, time.clock.monotonicMs() - sentMs);
        // The way back to the client and here again.
        time.timers.after(1 + time.random.fraction(), send);
      };
      ask(time, writer, target, { settle }, nonces[index % replicas]?.next());
    };
    for (let client = 0; client < concurrency; client++) send();
    await time.runUntil(() => done === requests, 60_000);
    expect(done).toBe(requests);
    expect(noncesOf(store.object).size).toBeLessThanOrEqual(requests);
    return Object.assign(store, { longestMs });
  }

  test("a replica that loses the first writes of a rush catches up", async () => {
    for (let seed = 1; seed <= 4; seed++) {
      const { longestMs } = await compete(3, 300, 100, seed, 40);
      // The conflicts of the first two batches of all three, then a turn of each of the others.
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

test("one deletion that two webhook configurations ask about uses quota once", async () => {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(9) });
  const asked = ["oneA", "twoB"].map((tag) => ask(time, writerOn(store, time, tag), pod("web-0"), {}, `${tag}0001`));
  await time.advance(1_000);
  for (const { decision } of asked) expect(decision?.kind).toBe("allowed");
  expect(noncesOf(store.object)).toEqual(new Map([["uid-web-0", expect.arrayContaining(["oneA0001", "twoB0001"])]]));
  const other = ask(time, writerOn(store, time, "oneA"), pod("web-1"));
  await time.advance(1_000);
  expect(other.decision).toMatchObject({ kind: "denied", decision: { cause: "Reserved" } });
});

test("an own write that the watch shows before its response makes nobody a rival", async () => {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(0), latencyMs: 50 });
  const writer = writerOn(store, time);
  const times: (number | undefined)[] = [];
  for (const target of many(4)) {
    const asked = ask(time, writer, target);
    const sentMs = time.elapsedMs;
    await time.runUntil(() => asked.decision !== undefined, 1_000);
    times.push((asked.atMs ?? 0) - sentMs);
  }
  expect(new Set(times)).toEqual(new Set([102]));
});

test("who waits for a turn writes earlier for a request that arrives meanwhile and can't wait so long", async () => {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(0), writeMs: 100 });
  const writers = ["aaaa", "bbbb", "cccc"].map((tag) => writerOn(store, time, tag));
  // All write at once, so that each knows the others. Who has written last comes last the next time.
  let last: ProtectorWriter | undefined;
  for (const [index, writer] of writers.entries())
    ask(time, writer, pod(`web-${index}`), {
      settle: () => {
        last = writer;
      },
    });
  await time.runUntil(() => store.writes === writers.length && writers.every(({ idle }) => idle), 10_000);
  if (last === undefined) throw new Error("nobody has written");
  const patient = ask(time, last, pod("web-3"));
  await time.advance(5);
  const urgent = ask(time, last, pod("web-4"), { deadlineMs: time.clock.monotonicMs() + 400 });
  await time.advance(2_000);
  expect(urgent.decision).toMatchObject({ kind: "allowed", written: true });
  expect(patient.atMs).toBe(urgent.atMs);
});
