import { describe, expect, it } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { sleep } from "./clock.ts";
import {
  DONE,
  failed,
  later,
  type ReconcileOutcome,
  type ReconcileWorkerOptions,
  runWorkers,
  untried,
} from "./reconcile.ts";
import { WorkQueue } from "./work-queue.ts";

function setup(): { time: VirtualTime; queue: WorkQueue } {
  const time = new VirtualTime();
  return {
    time,
    queue: new WorkQueue({ name: "test", ports: time, backoff: { initialMs: 100, maxMs: 1000, jitter: 0 } }),
  };
}

/** Reconciles one key with scripted outcomes (the last one repeats); resolves with the times of the tries. */
async function triesAt(script: readonly (ReconcileOutcome | Error)[], forMs: number): Promise<number[]> {
  const { time, queue } = setup();
  const at: number[] = [];
  const workers = runWorkers(
    queue,
    async () => {
      const outcome = script[Math.min(at.length, script.length - 1)];
      at.push(time.elapsedMs);
      if (outcome instanceof Error) throw outcome;
      return outcome ?? DONE;
    },
    { workers: 1, ports: time },
  );
  queue.add("a");
  await time.advance(forMs);
  await workers.stop();
  return at;
}

const broken = new Error("broken");

describe("reconcile loop", () => {
  it.each<{ name: string; script: (ReconcileOutcome | Error)[]; at: number[] }>([
    { name: "leaves a key that is done alone", script: [DONE], at: [0] },
    { name: "looks again later", script: [later(300), DONE], at: [0, 300] },
    { name: "backs off while it fails", script: [failed(broken, true)], at: [0, 100, 300, 700, 1500] },
    { name: "treats what is thrown as a retriable failure", script: [broken, DONE], at: [0, 100] },
    { name: "waits as long as the server asked", script: [failed(broken, true, 900), DONE], at: [0, 900] },
    { name: "does not repeat what no retry can help", script: [failed(broken, false)], at: [0] },
    {
      name: "starts small again after success",
      script: [failed(broken, true), failed(broken, true), later(500), failed(broken, true), DONE],
      at: [0, 100, 300, 800, 900],
    },
    {
      name: "goes on with its backoff after a try that asked no server",
      script: [failed(broken, true), failed(broken, true), untried(500), failed(broken, true), DONE],
      at: [0, 100, 300, 800, 1200],
    },
    {
      name: "starts small again when that was long ago",
      script: [failed(broken, true), failed(broken, true), untried(1000), failed(broken, true), DONE],
      at: [0, 100, 300, 1300, 1400],
    },
  ])("$name", async ({ script, at }) => {
    expect(await triesAt(script, 2400)).toEqual(at);
  });

  it("reconciles several keys at once, but each key alone", async () => {
    const { time, queue } = setup();
    const running = new Set<string>();
    let most = 0;
    const workers = runWorkers(
      queue,
      async (key) => {
        expect(running.has(key)).toBe(false);
        running.add(key);
        most = Math.max(most, running.size);
        await sleep(time, 50);
        running.delete(key);
        return DONE;
      },
      { workers: 3, ports: time },
    );
    for (const key of ["a", "b", "c", "d", "e"]) queue.add(key);
    await time.advance(10);
    for (const key of ["a", "b", "c"]) queue.add(key);
    await time.advance(500);
    expect(most).toBe(3);
    expect(queue.depth).toBe(0);
    await workers.stop();
  });

  it("tells the reconciler how often the key failed, and the observer each outcome", async () => {
    const { time, queue } = setup();
    const seen: number[] = [];
    const outcomes: string[] = [];
    const workers = runWorkers(
      queue,
      async (_key, { failures }) => {
        seen.push(failures);
        return seen.length < 3 ? failed(broken, true) : DONE;
      },
      { workers: 1, ports: time, onOutcome: (key, outcome) => outcomes.push(`${key} ${outcome.kind}`) },
    );
    queue.add("a");
    await time.advance(1000);
    expect(seen).toEqual([0, 1, 2]);
    expect(outcomes).toEqual(["a failed", "a failed", "a done"]);
    await workers.stop();
  });

  it("stops after the work in progress, or aborts it", async () => {
    for (const abort of [false, true]) {
      const { time, queue } = setup();
      let endedAtMs = -1;
      const workers = runWorkers(
        queue,
        async (_key, { signal }) => {
          await sleep(time, 1000, signal);
          endedAtMs = time.elapsedMs;
          return DONE;
        },
        { workers: 2, ports: time },
      );
      queue.add("a");
      await time.advance(100);
      let stopped = false;
      void workers.stop({ abort }).then(() => {
        stopped = true;
      });
      await time.settle();
      expect(stopped).toBe(abort);
      await time.advance(1000);
      expect(stopped).toBe(true);
      expect(endedAtMs).toBe(abort ? 100 : 1000);
    }
  });

  it("hands a violated invariant to the process instead of retrying", async () => {
    const { time, queue } = setup();
    const fatal: Error[] = [];
    const violation = Object.assign(new Error("counted twice"), { name: "InvariantError" });
    const options: ReconcileWorkerOptions<string> = {
      workers: 1,
      ports: time,
      onInvariantFailure: (error) => fatal.push(error),
    };
    const workers = runWorkers(queue, () => Promise.reject(violation), options);
    queue.add("a");
    await time.advance(0);
    expect(fatal).toEqual([violation]);
    await workers.stop();
  });

  it("gives way to I/O between slices of work that never waits", async () => {
    const { time, queue } = setup();
    // A clock that moves with each reading simulates work that takes processor time.
    let workedMs = 0;
    const ports = {
      ...time,
      timers: time.timers,
      random: time.random,
      clock: { nowMs: () => 0, monotonicMs: () => time.elapsedMs + workedMs },
    };
    let keysBeforeYield = 0;
    const workers = runWorkers(
      queue,
      async () => {
        workedMs += 1;
        if (time.elapsedMs === 0) keysBeforeYield += 1;
        return DONE;
      },
      { workers: 1, ports },
    );
    for (let index = 0; index < 100; index += 1) queue.add(`key-${index}`);
    await time.settle();
    expect(keysBeforeYield).toBe(11);
    expect(queue.depth).toBe(89);
    await time.advance(1);
    expect(queue.depth).toBe(0);
    await workers.stop();
  });
});
