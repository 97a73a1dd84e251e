import { describe, expect, test } from "vitest";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { Board, MAX_REFUSALS } from "./board.ts";
import { parseProtectorEvent } from "./refusals.ts";

function protector(name: string, available: number, heartbeatMs = NOW_MS): PodProtector {
  const cell = makeCell("east", available, [], { totalReplicas: 4, heartbeatTime: formatMs(heartbeatMs) });
  const made = makeProtector([cell]);
  return { ...made, metadata: { ...made.metadata, name, uid: `uid-${name}` } };
}

function refusal(id: string, count: number, reason = "DisruptionRefused") {
  return parseProtectorEvent({
    metadata: { uid: id, resourceVersion: "1", namespace: "default", name: id },
    involvedObject: { kind: "PodProtector", namespace: "default", name: "web" },
    ...{ reason, message: "no", count, firstTimestamp: formatMs(NOW_MS), lastTimestamp: formatMs(NOW_MS) },
  });
}

describe("an update", () => {
  test("has the rows that differ, and no others", () => {
    const board = new Board(NOW_MS);
    for (const name of ["a", "b", "c"]) board.changed(0, undefined, protector(name, 4));
    expect(board.update(NOW_MS, []).rows?.map(({ name }) => name)).toEqual(["a", "b", "c"]);
    board.changed(0, undefined, protector("a", 4));
    board.changed(0, undefined, protector("b", 1));
    expect(board.update(NOW_MS, []).rows).toMatchObject([{ name: "b", state: "below minimum", available: 1 }]);
    expect(board.update(NOW_MS, [])).toEqual({ atMs: NOW_MS });
  });

  test("names what is gone, once", () => {
    const board = new Board(NOW_MS);
    const gone = protector("a", 4);
    board.changed(0, undefined, gone);
    board.update(NOW_MS, []);
    board.changed(0, gone, undefined);
    expect(board.update(NOW_MS, []).gone).toEqual(["0/default/a"]);
    board.changed(0, gone, undefined);
    expect(board.update(NOW_MS, []).gone).toBeUndefined();
  });

  test("says that a cell has become stale although nothing was written", () => {
    const board = new Board(NOW_MS);
    for (let index = 0; index < 100; index++) board.changed(0, undefined, protector(`p${index}`, 4));
    board.update(NOW_MS, []);
    const later = NOW_MS + 160_000;
    const found = Array.from({ length: 25 }, () => board.update(later, []).rows ?? []).flat();
    expect(new Set(found.map(({ name }) => name)).size).toBe(100);
    expect(found.every(({ state }) => state === "cell stale")).toBe(true);
  });

  test.each([-180_000, 180_000])("takes times by the clock of the core, which is %d ms ahead", (aheadMs) => {
    const here = (ofCore: number): number => ofCore - aheadMs;
    const board = new Board(here(NOW_MS), () => aheadMs);
    board.changed(0, undefined, protector("web", 4, NOW_MS - 10_000));
    board.event(0, undefined, refusal("new", 1), true);
    const { rows, cells, refusals } = board.update(here(NOW_MS), []);
    expect([rows, cells, refusals]).toMatchObject([
      [{ state: "ok" }],
      [{ newestMs: here(NOW_MS - 10_000), stale: 0 }],
      [{ lastMs: here(NOW_MS) }],
    ]);
    expect(board.detail("0/default/web", here(NOW_MS))?.cells).toMatchObject([{ state: "ok" }]);
  });

  test("has the sums of cells and of all protectors", () => {
    const board = new Board(NOW_MS);
    board.changed(0, undefined, protector("a", 4, NOW_MS - 20_000));
    board.changed(0, undefined, protector("b", 1, NOW_MS - 10_000));
    const { cells, point } = board.update(NOW_MS, []);
    expect(cells).toMatchObject([
      { cell: "east", protectors: 2, available: 5, newestMs: NOW_MS - 10_000, oldestMs: NOW_MS - 20_000, stale: 0 },
    ]);
    expect(point).toMatchObject({ available: 5, required: 4, missing: 1, denied: 0 });
  });
});

test("the number of reservations is that of all, of which the page gets the oldest", () => {
  const board = new Board(NOW_MS);
  const buckets = Array.from({ length: 150 }, (_, index) => {
    return { startTime: formatMs(NOW_MS), podUID: `u${index}`, podName: `p${index}`, podResourceVersion: "1001" };
  });
  board.changed(0, undefined, makeProtector([makeCell("east", 200, buckets)]));
  const { reservations } = board.update(NOW_MS, []);
  expect([reservations?.all, reservations?.oldest.length]).toEqual([150, 100]);
});

describe("refusals", () => {
  test("are told when they happen and when their Event counts up; those from before do not count as of now", () => {
    const board = new Board(NOW_MS);
    board.event(0, undefined, refusal("old", 7), false);
    expect(board.update(NOW_MS, [])).toMatchObject({ refusals: [{ id: "old", count: 7 }], point: { denied: 0 } });
    board.event(0, refusal("old", 7), refusal("old", 9), true);
    board.event(0, undefined, refusal("new", 1), true);
    board.event(0, undefined, refusal("bypass", 3, "ProtectionBypassed"), true);
    board.event(0, undefined, refusal("other", 3, "Accepted"), true);
    const { refusals, point } = board.update(NOW_MS + 2000, []);
    expect(refusals?.map(({ id, what, count }) => [id, what, count])).toEqual([
      ["old", "denied", 9],
      ["new", "denied", 1],
      ["bypass", "allowed by a bypass", 3],
    ]);
    expect(point?.denied).toBe(3);
  });

  test("of the end of a quarter of a minute count there", () => {
    const board = new Board(NOW_MS);
    board.update(NOW_MS + 14_000, []);
    board.event(0, undefined, refusal("late", 1), true);
    expect(board.update(NOW_MS + 14_500, []).point).toBeUndefined();
    expect(board.update(NOW_MS + 15_000, []).point).toMatchObject({ atMs: NOW_MS, denied: 1 });
    expect(board.update(NOW_MS + 16_500, []).point).toMatchObject({ atMs: NOW_MS + 15_000, denied: 0 });
  });

  test("are the newest, and bounded", () => {
    const board = new Board(NOW_MS);
    for (let index = 0; index < 3 * MAX_REFUSALS; index++) board.event(0, undefined, refusal(`e${index}`, 1), true);
    const all = [...board.parts(NOW_MS, [])].flatMap(({ refusals = [] }) => refusals);
    expect(all).toHaveLength(MAX_REFUSALS);
    expect(all.at(-1)?.id).toBe(`e${3 * MAX_REFUSALS - 1}`);
  });
});

test("a new page gets everything, in parts of some rows", () => {
  const board = new Board(NOW_MS);
  for (let index = 0; index < 1000; index++) board.changed(0, undefined, protector(`p${index}`, 4));
  board.update(NOW_MS, []);
  const parts = [...board.parts(NOW_MS, [])];
  expect(parts.flatMap(({ rows = [] }) => rows)).toHaveLength(1000);
  expect(Math.max(...parts.map(({ rows = [] }) => rows.length))).toBeLessThanOrEqual(250);
});
