import { describe, expect, it } from "vitest";
import { sleep } from "../../shared/runtime/clock.ts";
import { VirtualTime } from "../support/runtime/virtual-ports.ts";

describe("virtual time", () => {
  it("fires timers by time, then in the order they were set", async () => {
    const time = new VirtualTime();
    const fired: string[] = [];
    for (const [name, delayMs] of [
      ["c", 30],
      ["a", 10],
      ["b1", 20],
      ["b2", 20],
      ["z", 31],
    ] as const)
      time.timers.after(delayMs, () => fired.push(name));
    await time.advance(30);
    expect(fired).toEqual(["a", "b1", "b2", "c"]);
    expect(time.elapsedMs).toBe(30);
    expect(time.pendingTimers).toBe(1);
  });

  it("settles promises between timers", async () => {
    const time = new VirtualTime();
    const log: string[] = [];
    time.timers.after(1, () => void deep(50).then(() => log.push("promise of 1")));
    time.timers.after(1, () => log.push("second timer"));
    await time.advance(1);
    expect(log).toEqual(["promise of 1", "second timer"]);
  });

  it("runs timers that timers set, up to the end of the advance", async () => {
    const time = new VirtualTime();
    const at: number[] = [];
    const loop = async (): Promise<void> => {
      for (;;) {
        await sleep(time, 7);
        at.push(time.clock.monotonicMs());
      }
    };
    void loop();
    await time.advance(21);
    expect(at).toEqual([7, 14, 21]);
  });

  it("does not fire a cancelled timer", async () => {
    const time = new VirtualTime();
    const timer = time.timers.after(5, () => expect.unreachable());
    timer.cancel();
    timer.cancel();
    expect(time.pendingTimers).toBe(0);
    expect(time.nextTimerMs).toBeUndefined();
    await time.advance(10);
  });

  it("keeps order among many timers", async () => {
    const time = new VirtualTime({ seed: 7 });
    const expected: number[] = [];
    const fired: number[] = [];
    for (let count = 0; count < 500; count += 1) {
      const delayMs = Math.floor(time.random.fraction() * 1000);
      const timer = time.timers.after(delayMs, () => fired.push(delayMs));
      if (count % 3 === 0) timer.cancel();
      else expected.push(delayMs);
    }
    await time.advance(1000);
    expect(fired).toEqual(expected.sort((a, b) => a - b));
  });

  it("runs until a condition holds, or says that it does not", async () => {
    const time = new VirtualTime();
    let done = false;
    time.timers.after(40, () => {
      done = true;
    });
    expect(await time.runUntil(() => done, 30)).toBe(false);
    expect(time.elapsedMs).toBe(30);
    expect(await time.runUntil(() => done, 1000)).toBe(true);
    expect(time.elapsedMs).toBe(40);
  });

  it("rejects with what a timer throws", async () => {
    const time = new VirtualTime();
    time.timers.after(3, () => {
      throw new Error("from the timer");
    });
    await expect(time.advance(10)).rejects.toThrow("from the timer");
    expect(time.elapsedMs).toBe(3);
  });

  it("gives one history for one seed", () => {
    const draw = (seed: number): unknown[] => {
      const { random } = new VirtualTime({ seed });
      return [random.fraction(), random.token(), random.fraction()];
    };
    expect(draw(5)).toEqual(draw(5));
    expect(draw(5)).not.toEqual(draw(6));
    expect(draw(5)[1]).toMatch(/^[A-Za-z0-9_-]{8}$/);
  });
});

describe("a process under virtual time", () => {
  it("has a clock of its own", async () => {
    const time = new VirtualTime({ startMs: 1_000_000 });
    await time.advance(500);
    const ahead = time.process({ skewMs: 3000 });
    expect(ahead.clock.nowMs()).toBe(1_003_500);
    expect(ahead.clock.monotonicMs()).toBe(0);
    ahead.stepWallClock(-10_000);
    await time.advance(100);
    expect(ahead.clock.nowMs()).toBe(993_600);
    expect(ahead.clock.monotonicMs()).toBe(100);
  });

  it("fires no timer once killed, and late ones after a pause", async () => {
    const time = new VirtualTime();
    const killed = time.process();
    const paused = time.process();
    const fired: string[] = [];
    killed.timers.after(10, () => fired.push("killed"));
    const cancelledWhilePaused = paused.timers.after(10, () => fired.push("cancelled"));
    paused.timers.after(10, () => fired.push("paused"));
    killed.kill();
    paused.pause();
    await time.advance(20);
    expect(fired).toEqual([]);
    cancelledWhilePaused.cancel();
    paused.resume();
    expect(fired).toEqual(["paused"]);
  });
});

async function deep(levels: number): Promise<void> {
  if (levels > 0) await deep(levels - 1);
}
