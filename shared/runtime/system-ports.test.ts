import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { systemPorts } from "./system-ports.ts";

const DAY_MS = 86_400_000;

describe("timers", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  test.each([
    ["none", 0],
    ["a second", 1000],
    ["the longest delay of Node's timers", 2 ** 31 - 1],
    ["a little more", 2 ** 31],
    ["a year", 365 * DAY_MS],
  ])("a delay of %s", (_, delayMs) => {
    let fired = 0;
    systemPorts.timers.after(delayMs, () => fired++);
    vi.advanceTimersByTime(Math.max(0, delayMs - 1));
    if (delayMs > 0) expect(fired).toBe(0);
    vi.advanceTimersByTime(1);
    expect(fired).toBe(1);
  });

  test("an infinite delay never fires, and a negative one fires at once", () => {
    let fired = 0;
    systemPorts.timers.after(Number.POSITIVE_INFINITY, () => fired++);
    vi.advanceTimersByTime(100 * DAY_MS);
    expect(fired).toBe(0);
    systemPorts.timers.after(-5, () => fired++);
    vi.advanceTimersByTime(0);
    expect(fired).toBe(1);
  });

  test("a long delay can be cancelled at any time", () => {
    let fired = 0;
    const timer = systemPorts.timers.after(60 * DAY_MS, () => fired++);
    vi.advanceTimersByTime(40 * DAY_MS);
    timer.cancel();
    vi.advanceTimersByTime(40 * DAY_MS);
    expect(fired).toBe(0);
  });
});
