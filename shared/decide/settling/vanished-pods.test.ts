import { describe, expect, test } from "vitest";
import { makeCell, makePod, makeProtector, makeSpec, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { makeBucket, packed } from "../../../test/support/decide/settling-fixtures.ts";
import type { CellStatus, Operation } from "../../schema/podprotector.ts";
import { formatMs } from "../../schema/time.ts";
import { specFacts } from "../availability/spec-facts.ts";
import { updateConditions } from "../state/conditions.ts";
import { parseProtector } from "../state/protector-state.ts";
import { needsRecord, VANISHED_FOR_MS, vanishedFields, vanishedPods } from "./vanished-pods.ts";

const X = { uid: "uid-x", name: "x" };
const FACTS = specFacts(makeSpec());

test.each<[string, CellStatus | undefined, number]>([
  ["has no record of it", makeCell("a", 2), 1],
  ["has a record of it", makeCell("a", 2, [makeBucket()]), 0],
  ["has a packed record of it", makeCell("a", 2, packed([makeBucket()])), 0],
  ["has a record of another pod", makeCell("a", 2, [makeBucket({ podUID: "uid-y", podName: "y" })]), 1],
  ["has a range, which may be of it", makeCell("a", 2, [{ startTime: formatMs(NOW_MS), counter: 1 }]), 0],
  ["is on hold", makeCell("a", 2, [], { hold: "CellRestored/1-x" }), 0],
  ["was counted by another spec", makeCell("a", 2, [], { specHash: "other" }), 0],
  ["was never counted", { cellID: "a" }, 0],
  ["is absent", undefined, 0],
])("a pod that is gone has vanished where the entry %s", (_, stored, expected) => {
  expect(vanishedPods([X], stored, FACTS)).toHaveLength(expected);
});

test("a pod counts by the criterion of its protector", () => {
  const unready = makePod("x", { readyForSeconds: undefined });
  expect(needsRecord(unready, makeSpec(), NOW_MS)).toBe(false);
  expect(needsRecord(unready, makeSpec({ healthCriterion: "Running" }), NOW_MS)).toBe(true);
  expect(needsRecord(makePod("x", { mirror: true }), makeSpec(), NOW_MS)).toBe(false);
  expect(needsRecord(makePod("x", { readyForSeconds: 5 }), makeSpec({ minReadySeconds: 60 }), NOW_MS)).toBe(false);
});

test.each<[Operation[], boolean]>([
  [["DELETE", "EVICT"], true],
  [["DELETE"], false],
  [["EVICT"], false],
])("a pod of a protector of %j is recorded whatever ends it: %s", (protectedOperations, expected) => {
  expect(needsRecord(makePod("x"), makeSpec({ protectedOperations }), NOW_MS)).toBe(expected);
});

test.each([
  ["true", false],
  ["false", true],
])("a pod whose annotation no-protect says %s is recorded like any other: %s", (value, expected) => {
  const annotations = { "pub.kruise.io/no-protect": value };
  expect(needsRecord({ ...makePod("x"), annotations }, makeSpec(), NOW_MS)).toBe(expected);
});

describe("what the status says", () => {
  const first = vanishedFields(undefined, 2, NOW_MS);
  const aggregation = { ...makeCell("a", 2).aggregation, totalReplicas: 2, availableReplicas: 2, ...first };

  test("adds up for an hour, and ends", () => {
    expect(first).toEqual({ vanishedPods: 2, vanishedTime: formatMs(NOW_MS) });
    expect(vanishedFields(aggregation, 1, NOW_MS + 5_000)).toEqual({
      ...{ vanishedPods: 3, vanishedTime: formatMs(NOW_MS + 5_000) },
    });
    expect(vanishedFields(aggregation, 0, NOW_MS + VANISHED_FOR_MS)).toEqual(first);
    expect(vanishedFields(aggregation, 0, NOW_MS + VANISHED_FOR_MS + 1)).toEqual({});
    expect(vanishedFields(aggregation, 1, NOW_MS + VANISHED_FOR_MS + 1)).toMatchObject({ vanishedPods: 1 });
    const most = { ...aggregation, vanishedPods: 2 ** 31 - 1 };
    // The apiserver takes no larger number, and the counts beside it would not be stored.
    expect(vanishedFields(most, 1, NOW_MS + 5_000)).toMatchObject({ vanishedPods: 2 ** 31 - 1 });
  });

  test("is a condition that names the cells", () => {
    const at = (nowMs: number, cells: CellStatus[], previous: ReturnType<typeof updateConditions> = []) =>
      updateConditions({
        ...{ state: parseProtector(makeProtector(cells)), previous, generation: 1, nowMs },
        ...{ staleAfterMs: 60_000, problems: [] },
      }).filter(({ type }) => type === "PodsVanished");
    const cells = [makeCell("a", 2, [], first), makeCell("b", 2)];
    const said = at(NOW_MS, cells);
    expect(said).toMatchObject([{ status: "True", reason: "WithoutDeletion" }]);
    expect(said[0]?.message).toMatch(/: 2 in cell a, the last at 2026-05-01T12:00:00[.0]*Z$/);
    expect(at(NOW_MS + VANISHED_FOR_MS + 1, cells, said)).toMatchObject([{ status: "False", reason: "NoneVanished" }]);
    expect(at(NOW_MS, [makeCell("a", 2)])).toEqual([]);
  });
});
