import { describe, expect, test } from "vitest";
import { WritePacing } from "./write-pacing.ts";

const ROUND_TRIP_MS = 5;
/** Three round trips and the lag of the watch. */
const TURN_MS = 3 * ROUND_TRIP_MS + 4;

function turns(tag = "me"): WritePacing {
  return new WritePacing(tag, { fraction: () => 0 });
}

describe("when it is this replica's turn", () => {
  test("at once without competitors", () => {
    const mine = turns();
    expect(mine.waitMs(0)).toBe(0);
    mine.wrote(10, ROUND_TRIP_MS, 1);
    expect(mine.waitMs(10)).toBe(0);
  });

  test("after a batch, a pause in which a competitor that always lost can write", () => {
    const mine = turns();
    for (const atMs of [10, 30, 50]) mine.wrote(atMs, ROUND_TRIP_MS, 11);
    expect(mine.waitMs(50)).toBe(5);
    expect(mine.waitMs(55)).toBe(0);
  });

  test("after the first batches of a rush, a pause in which a competitor that lost can try again", () => {
    const lookOutMs = 1.5 * ROUND_TRIP_MS + 4;
    const mine = turns();
    mine.wrote(10, ROUND_TRIP_MS, 11);
    expect(mine.waitMs(10)).toBe(lookOutMs);
    mine.wrote(30, ROUND_TRIP_MS, 11);
    expect(mine.waitMs(30)).toBe(lookOutMs);
    mine.wrote(50, ROUND_TRIP_MS, 11);
    expect(mine.waitMs(50)).toBe(5);
    mine.wrote(900, ROUND_TRIP_MS, 11);
    expect(mine.waitMs(900)).toBe(lookOutMs);
    mine.wrote(920, ROUND_TRIP_MS, 1);
    expect(mine.waitMs(920)).toBe(0);
  });

  test("the first write sets the length of a turn", () => {
    const mine = turns();
    mine.wrote(100, 40, 11);
    expect(mine.waitMs(100)).toBe(1.5 * 40 + 4);
    const slow = turns();
    slow.wrote(100, 900, 11);
    expect(slow.waitMs(100)).toBe(1.5 * 60 + 4);
  });

  test.each([
    ["next in the order: at once", "me", "aa", ["zz"], 0],
    ["one before it in the order: a turn later", "me", "zz", ["aa"], 1],
    ["alone with the last writer: at once", "me", "zz", [], 0],
  ])("%s", (_name, tag, last, others, turnsToWait) => {
    const mine = turns(tag);
    for (const other of others) mine.competitorWrote(other, 50, true);
    mine.competitorWrote(last, 100, true);
    expect(mine.waitMs(100)).toBe(turnsToWait * TURN_MS);
  });

  test("after an own write all competitors come first", () => {
    const mine = turns();
    mine.competitorWrote("aa", 50, true);
    mine.competitorWrote("zz", 60, true);
    mine.wrote(100, ROUND_TRIP_MS, 5);
    expect(mine.waitMs(100)).toBe(2 * TURN_MS);
    mine.competitorWrote("zz", 110, true);
    expect(mine.waitMs(110)).toBe(TURN_MS);
    mine.competitorWrote("aa", 120, true);
    expect(mine.waitMs(120)).toBe(0);
  });

  test("a competitor that misses three turns is left out until it writes again", () => {
    const mine = turns();
    mine.competitorWrote("zz", 0, true);
    for (const atMs of [100, 200, 300]) {
      mine.wrote(atMs, ROUND_TRIP_MS, 1);
    }
    mine.wrote(310, ROUND_TRIP_MS, 1);
    expect(mine.waitMs(310)).toBe(0);
    mine.competitorWrote("zz", 320, true);
    mine.wrote(330, ROUND_TRIP_MS, 1);
    expect(mine.waitMs(330)).toBe(TURN_MS);
  });

  test("a competitor that was quiet for long no longer counts", () => {
    const mine = turns();
    mine.competitorWrote("zz", 0, true);
    mine.wrote(10, ROUND_TRIP_MS, 1);
    expect(mine.waitMs(501)).toBe(0);
  });

  test("a competitor that writes only while this replica is idle gets no turn", () => {
    const mine = turns();
    mine.competitorWrote("zz", 0, false);
    mine.wrote(10, ROUND_TRIP_MS, 1);
    expect(mine.waitMs(10)).toBe(0);
  });
});

describe("a cache that is often stale is refreshed first", () => {
  test("after two conflicts in a row, until it is current again", () => {
    const mine = turns();
    expect(mine.readsFirst).toBe(false);
    mine.conflicted(ROUND_TRIP_MS);
    mine.conflicted(ROUND_TRIP_MS);
    expect(mine.readsFirst).toBe(true);
    mine.cacheWas("current");
    mine.cacheWas("current");
    expect(mine.readsFirst).toBe(false);
  });
});

test("a competitor whose turn has not come has missed none", () => {
  const mine = turns("bb");
  mine.competitorWrote("cc", 10, true);
  for (const atMs of [20, 40, 60, 80]) {
    // The turn after that of "aa" is the own one.
    mine.competitorWrote("aa", atMs, true);
    mine.wrote(atMs + 10, ROUND_TRIP_MS, 5);
  }
  expect(mine.waitMs(90)).toBe(2 * TURN_MS);
});
