import { describe, expect, test } from "vitest";
import { type ProcessPorts, VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { StallDetector } from "./stall-detector.ts";

const LEAST_MS = 1_000;

async function standstills(play: (time: VirtualTime, process: ProcessPorts) => Promise<void>): Promise<number[]> {
  const time = new VirtualTime();
  const process = time.process();
  const woke: number[] = [];
  const standstill: StallDetector = new StallDetector(process, LEAST_MS, () => woke.push(standstill.wokeMs));
  standstill.start();
  await time.advance(3_000);
  await play(time, process);
  await time.advance(3_000);
  standstill.stop();
  return woke;
}

async function stop(time: VirtualTime, process: ProcessPorts, ms: number): Promise<void> {
  process.pause();
  await time.advance(ms);
  process.resume();
}

describe("a process that stalls", () => {
  test.each<[string, (time: VirtualTime, process: ProcessPorts) => Promise<void>, number[]]>([
    ["reports no stall without one", async () => {}, []],
    ["notices the stall when it goes on", (time, process) => stop(time, process, 5_000), [8_000]],
    ["ignores a shorter stall", (time, process) => stop(time, process, 400), []],
    ["notices that its machine slept", async (_, process) => process.stepWallClock(60_000), [3_500]],
    ["ignores a clock that is set back", async (_, process) => process.stepWallClock(-60_000), []],
  ])("%s", async (_, play, expected) => {
    expect(await standstills(play)).toEqual(expected);
  });

  test("shows the stall before its timers run", async () => {
    const time = new VirtualTime();
    const standstill = new StallDetector(time, LEAST_MS, () => {});
    expect(standstill.wokeMs).toBe(Number.NEGATIVE_INFINITY);
    await time.advance(2_000);
    expect(standstill.wokeMs).toBe(2_000);
  });

  test("shares one timer among all detectors, and has none without any", async () => {
    const time = new VirtualTime();
    const told: string[] = [];
    const looking = ["a", "b", "c"].map((name) => new StallDetector(time, LEAST_MS, () => told.push(name)));
    for (const one of looking) one.start();
    await time.advance(1_000);
    expect(time.pendingTimers).toBe(1);
    looking[1]?.stop();
    expect(time.pendingTimers).toBe(1);
    await time.advance(1_000);
    expect(told).toEqual([]);
    for (const one of looking) one.stop();
    expect(time.pendingTimers).toBe(0);
    looking[0]?.start();
    expect(time.pendingTimers).toBe(1);
  });
});
