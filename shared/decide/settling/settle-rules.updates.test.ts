import { describe, expect, test } from "vitest";
import {
  cellUpdate,
  makeCell,
  makePod,
  makeSpec,
  NO_EVIDENCE,
  type PodOptions,
  SETTLE_MS,
} from "../../../test/support/decide/fixtures.ts";
import { listed, makeBucket, makeForeignBucket, settledLine } from "../../../test/support/decide/settling-fixtures.ts";
import { FirstSeenTimes } from "./first-seen.ts";

describe("the record of a change", () => {
  test("stays while its pod is newer than the snapshot", () => {
    const update = makeBucket({ operation: "UPDATE", podGeneration: 1, podResourceVersion: "9000" });
    const result = cellUpdate({ stored: makeCell("a", 1, [update]), settledGeneration: () => 9 });
    expect(settledLine(result)).toBe("keep UPDATE w=0");
    expect(result.unsettled).toMatchObject([{ needsList: true, dueMs: SETTLE_MS }]);
  });

  test("asks for a LIST where its pod is present, too: a GET does not settle it", () => {
    const stored = makeCell("a", 1, [makeBucket({ operation: "UPDATE", podGeneration: 1 })]);
    const { listDueMs, unsettled } = cellUpdate({ stored, pods: [makePod("x")] });
    expect(listDueMs).toBe(SETTLE_MS);
    expect(unsettled).toMatchObject([{ needsList: true, dueMs: SETTLE_MS }]);
  });

  test.each<[string, PodOptions, string]>([
    ["settled by a LIST where its pod is available", {}, "UPDATE R3"],
    ["kept where its pod is not available", { readyForSeconds: undefined }, "keep UPDATE w=0"],
  ])("without a generation is %s, whatever generation the pod's status reports", (_, pod, expected) => {
    const stored = makeCell("a", 1, [makeBucket({ operation: "UPDATE" })]);
    for (const settled of [undefined, 1]) {
      const seen = new FirstSeenTimes();
      const options = { stored, pods: [makePod("x", pod)], seen, settledGeneration: () => settled };
      cellUpdate({ ...options, monotonicMs: 0 });
      const later = cellUpdate({ ...options, monotonicMs: SETTLE_MS, evidence: listed(SETTLE_MS) });
      expect(settledLine(later)).toBe(expected);
    }
  });

  test.each([
    [1, 1],
    [0, 2],
  ])("from generation %i of a pod of generation %i ends once a status has it", (podGeneration, generation) => {
    const options = {
      stored: makeCell("a", 1, [makeBucket({ operation: "UPDATE", podGeneration })]),
      pods: [makePod("x", { generation, labels: {} })],
      seen: new FirstSeenTimes(),
      settledGeneration: () => generation,
    };
    cellUpdate({ ...options, monotonicMs: 0 });
    const later = { monotonicMs: SETTLE_MS, evidence: listed(SETTLE_MS) };
    expect(settledLine(cellUpdate({ ...options, ...later }))).toBe("UPDATE R3");
  });

  test("that no status confirms is settled after five periods of a pod that counts without being Ready", () => {
    const spec = makeSpec({ healthCriterion: "Running" });
    const options = {
      spec,
      stored: makeCell("a", 1, [makeBucket({ operation: "UPDATE", podGeneration: 3 })], {}, spec),
      pods: [makePod("x", { generation: 4, readyForSeconds: undefined })],
      seen: new FirstSeenTimes(),
      unconfirmedGeneration: () => 4,
    };
    cellUpdate({ ...options, monotonicMs: 0 });
    const at = (periods: number) => ({ monotonicMs: periods * SETTLE_MS, evidence: listed(periods * SETTLE_MS) });
    expect(settledLine(cellUpdate({ ...options, ...at(4.9) }))).toBe("keep UPDATE w=1");
    expect(settledLine(cellUpdate({ ...options, ...at(5) }))).toBe("UPDATE R3");
  });
});

test("no change of its pod ends the record of a deletion, though the bucket has a generation", () => {
  const stored = makeCell("a", 1, [makeBucket({ podGeneration: 3 })]);
  const pods = [makePod("x", { generation: 4 })];
  const result = cellUpdate({ stored, pods, settledGeneration: () => 4, evidence: NO_EVIDENCE });
  expect(settledLine(result)).toBe("keep DELETE w=1");
});

test("a record without a version asks for no evidence before a settle period while its pod is present", () => {
  const { listDueMs, unsettled } = cellUpdate({
    stored: makeCell("a", 1, [makeForeignBucket()]),
    pods: [makePod("x")],
  });
  expect(listDueMs).toBeUndefined();
  expect(unsettled).toMatchObject([{ needsList: false, dueMs: SETTLE_MS }]);
});

describe("a pod with one version that is known", () => {
  const foreign = makeForeignBucket({ operation: "EVICT", podName: "x", counter: 0 });
  const absent = (podResourceVersion: string) =>
    cellUpdate({ stored: makeCell("a", 1, [makeBucket({ podResourceVersion }), foreign]), position: "101" });

  test("is dead by this version, for its other records too", () => {
    expect(settledLine(absent("100"))).toBe("DELETE R1, EVICT R1");
  });

  test("waits for a settle period where the snapshot has not reached it", () => {
    expect(absent("900").unsettled).toMatchObject([{ dueMs: SETTLE_MS }, { dueMs: SETTLE_MS }]);
  });
});

test("what waits names its pod, and the earliest LIST of all is asked for", () => {
  const later = makeBucket({ podResourceVersion: "9000" });
  const sooner = makeForeignBucket({ podUID: "uid-y", podName: "y" });
  const present = makeForeignBucket({ podUID: "uid-z" });
  for (const buckets of [
    [later, sooner, present],
    [present, sooner, later],
  ]) {
    const { unsettled, listDueMs } = cellUpdate({ stored: makeCell("a", 1, buckets), pods: [makePod("z")] });
    expect(new Set(unsettled.map(({ podName }) => podName))).toEqual(new Set(["x", "y", "z"]));
    expect(listDueMs).toBe(1);
  }
});
