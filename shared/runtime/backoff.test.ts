import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Backoff } from "./backoff.ts";

const never = { fraction: () => 0 };
const almostOne = { fraction: () => 1 - Number.EPSILON };

describe("backoff", () => {
  it.each([
    {
      name: "doubles up to the cap",
      options: { initialMs: 100, maxMs: 1000 },
      random: never,
      delays: [100, 200, 400, 800, 1000, 1000],
    },
    {
      name: "grows by its factor",
      options: { initialMs: 1, maxMs: 50, factor: 5 },
      random: never,
      delays: [1, 5, 25, 50],
    },
    {
      name: "is shortened by jitter",
      options: { initialMs: 100, maxMs: 400, jitter: 0.5 },
      random: almostOne,
      delays: [50, 100, 200, 200],
    },
    {
      name: "ignores chance without jitter",
      options: { initialMs: 100, maxMs: 400, jitter: 0 },
      random: almostOne,
      delays: [100, 200, 400],
    },
  ])("$name", ({ options, random, delays }) => {
    const backoff = new Backoff(options, random);
    expect(delays.map(() => Math.round(backoff.nextMs()))).toEqual(delays);
  });

  it("starts with the first delay after a reset", () => {
    const backoff = new Backoff({ initialMs: 100, maxMs: 1000 }, never);
    backoff.nextMs();
    backoff.nextMs();
    expect(backoff.failures).toBe(2);
    backoff.reset();
    expect(backoff.failures).toBe(0);
    expect(backoff.nextMs()).toBe(100);
  });

  it("never exceeds the cap and never reaches zero", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1000 }),
        fc.integer({ min: 1000, max: 60_000 }),
        fc.double({ min: 0, max: 0.9, noNaN: true }),
        (initialMs, maxMs, jitter) => {
          const backoff = new Backoff({ initialMs, maxMs, jitter }, { fraction: () => 0.999 });
          for (let tries = 0; tries < 40; tries += 1) {
            const delayMs = backoff.nextMs();
            expect(delayMs).toBeLessThanOrEqual(maxMs);
            expect(delayMs).toBeGreaterThan(0);
          }
        },
      ),
    );
  });

  it.each([
    { initialMs: 0, maxMs: 10 },
    { initialMs: 10, maxMs: 5 },
    { initialMs: 10, maxMs: 50, factor: 0.5 },
    { initialMs: 10, maxMs: 50, jitter: 2 },
    { initialMs: Number.NaN, maxMs: 50 },
  ])("rejects options whose delays would be zero or shrink: %o", (options) => {
    expect(() => new Backoff(options, never)).toThrow(RangeError);
  });
});
