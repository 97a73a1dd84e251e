import { describe, expect, test } from "vitest";
import { CapacityHistory, FleetHistory, MAX_POINTS, SLOT_MS, SLOTS } from "./history.ts";

const START_MS = Date.UTC(2026, 4, 1, 12);
const MINUTE_MS = 60_000;

type Entry = readonly [atSeconds: number, available: number, required?: number];

function recorded(entries: readonly Entry[]): readonly (readonly number[])[] {
  const history = new CapacityHistory(START_MS);
  for (const [atSeconds, available, required = 3] of entries)
    history.record(START_MS + atSeconds * 1000, { available, required, reserved: 0 });
  return history.points().map(({ atMs, available, required }) => [(atMs - START_MS) / 1000, available, required]);
}

describe("the history of a protector", () => {
  test.each<[string, readonly Entry[], readonly (readonly number[])[]]>([
    [
      "has what changed",
      [
        [0, 4],
        [20, 4],
        [40, 3],
      ],
      [
        [0, 4, 3],
        [40, 3, 3],
      ],
    ],
    [
      "has a change of the promise",
      [
        [0, 4],
        [20, 4, 4],
      ],
      [
        [0, 4, 3],
        [20, 4, 4],
      ],
    ],
    [
      "keeps a dip and what followed",
      [
        [0, 4],
        [1, 2],
        [2, 4],
      ],
      [
        [1, 2, 3],
        [2, 4, 3],
      ],
    ],
    [
      "keeps the tightest of a slot",
      [
        [0, 4],
        [16, 4],
        [17, 1],
        [18, 2],
        [19, 5],
      ],
      [
        [0, 4, 3],
        [17, 1, 3],
        [19, 5, 3],
      ],
    ],
    [
      "forgets what was before the hour, also when nothing changed since",
      [
        [0, 1],
        [100, 4],
        [7200, 4],
      ],
      [[100, 4, 3]],
    ],
    [
      "keeps what held before the hour",
      [
        [0, 4],
        [100, 3],
        [3700, 4],
        [3800, 3],
      ],
      [
        [100, 3, 3],
        [3700, 4, 3],
        [3800, 3, 3],
      ],
    ],
  ])("%s", (_, entries, expected) => {
    expect(recorded(entries)).toEqual(expected);
  });

  test("is bounded, however often it changes", () => {
    const history = new CapacityHistory(START_MS);
    for (let index = 0; index < 50_000; index++)
      history.record(START_MS + index * 1000, { available: index % 7, required: 3, reserved: 0 });
    const points = history.points();
    expect(points.length).toBeLessThanOrEqual(MAX_POINTS);
    expect(points.length).toBeGreaterThan(SLOTS);
    expect(points.at(-1)).toMatchObject({ atMs: START_MS + 49_999_000, available: 49_999 % 7 });
    expect(points.filter(({ available }) => available === 0).length).toBeGreaterThan(SLOTS / 2);
  });
});

describe("the history of the fleet", () => {
  const counts = (available: number, missing: number) => ({ available, required: 8, reserved: 0, missing });

  test("has the worst moment of a slot, and all its denials", () => {
    const fleet = new FleetHistory();
    fleet.record(START_MS, counts(10, 0), 1);
    fleet.record(START_MS + 1000, counts(7, 1), 0);
    fleet.record(START_MS + 2000, counts(10, 0), 2);
    expect(fleet.points).toEqual([{ atMs: START_MS, ...counts(7, 1), denied: 3 }]);
    fleet.record(START_MS + SLOT_MS, counts(10, 0), 0);
    expect(fleet.points.map(({ missing }) => missing)).toEqual([1, 0]);
  });

  test("is an hour long", () => {
    const fleet = new FleetHistory();
    for (let at = 0; at < 120 * MINUTE_MS; at += SLOT_MS) fleet.record(START_MS + at, counts(10, 0), 0);
    expect(fleet.points).toHaveLength(SLOTS);
  });

  test("is no longer when the machine slept meanwhile", () => {
    const fleet = new FleetHistory();
    fleet.record(START_MS, counts(7, 1), 5);
    fleet.record(START_MS + 120 * MINUTE_MS, counts(10, 0), 1);
    expect(fleet.points.map(({ missing, denied }) => [missing, denied])).toEqual([[0, 1]]);
  });
});
