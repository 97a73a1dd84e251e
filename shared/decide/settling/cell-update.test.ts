import { describe, expect, test } from "vitest";
import {
  type CellUpdateOptions,
  cellUpdate,
  makeCell,
  makePod,
  makeSpec,
  NOW_MS,
  SETTLE_MS,
} from "../../../test/support/decide/fixtures.ts";
import {
  listed,
  makeBucket,
  makeForeignBucket,
  packed,
  settledLine,
} from "../../../test/support/decide/settling-fixtures.ts";
import type { Pod } from "../../schema/pod.ts";
import type { Bucket, CellStatus } from "../../schema/podprotector.ts";
import { formatMs } from "../../schema/time.ts";
import type { CellUpdateInput } from "./cell-update.ts";
import { FirstSeenTimes } from "./first-seen.ts";

describe("fences", () => {
  const pods = [makePod("x"), makePod("y")];
  const cases: [string, Partial<CellStatus["aggregation"] & object>, string, number, string | undefined][] = [
    ["newer than what is stored", { resourceVersion: "1000" }, "1001", 0, undefined],
    ["equally new", { resourceVersion: "1000" }, "1000", 0, undefined],
    ["older", { resourceVersion: "1000" }, "999", 0, "StalePosition"],
    ["older as a number, newer as a text", { resourceVersion: "1000" }, "99", 0, "StalePosition"],
    ["one shard older", { resourceVersion: "1000,2000" }, "1500,1999", 0, "StalePosition"],
    ["every shard equally new", { resourceVersion: "1000,2000" }, "1500,2000", 0, undefined],
    ["more shards than before, all newer than the newest", { resourceVersion: "1000" }, "1000,1001", 0, undefined],
    ["more shards than before, one older", { resourceVersion: "1000,2000" }, "2000,2000,1999", 0, "StalePosition"],
    ["versions that can't be compared", { resourceVersion: "abc" }, "99", 0, undefined],
    ["an epoch that was not adopted", { resourceVersion: "1000", epoch: 3 }, "2000", 2, "StaleEpoch"],
    ["an epoch that was adopted", { resourceVersion: "1000", epoch: 3 }, "2000", 3, undefined],
  ];
  test.each(cases)("%s", (_, aggregation, position, adoptedEpoch, expected) => {
    const stored = makeCell("a", 9, [makeBucket()], aggregation);
    const result = cellUpdate({ stored, pods, position, adoptedEpoch });
    expect(result.stale).toBe(expected);
    expect(result.reasons.length > 0).toBe(expected === undefined);
  });

  test.each([
    ["that raises the epoch", 0, 1],
    ["whose epoch can't rise", Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  ])("lost history %s lets the position go back", (_, before, epoch) => {
    const stored = makeCell("a", 9, [], { resourceVersion: "1000", epoch: before });
    const history = { lost: "CellRestored" as const, epoch, hold: "CellRestored/t" };
    const result = cellUpdate({ stored, pods, position: "500", history, adoptedEpoch: epoch });
    expect(result.stale).toBeUndefined();
    expect(result.entry.aggregation).toMatchObject({ resourceVersion: "500", epoch, hold: "CellRestored/t" });
  });

  test("an epoch that was not adopted stays, also where this leader has noticed a loss itself", () => {
    const stored = makeCell("a", 3, [], { epoch: 5, resourceVersion: "1000" });
    const history = { lost: "CellRestored", epoch: 6, hold: "CellRestored/1" } as const;
    expect(cellUpdate({ stored, pods, history, adoptedEpoch: 4 })).toMatchObject({ stale: "StaleEpoch", reasons: [] });
  });
});

describe("hold", () => {
  test("ends when the snapshot reaches a LIST of a settle period after first sight; a new hold starts again", () => {
    const seen = new FirstSeenTimes();
    const at = (monotonicMs: number, hold: string, sentMs: number): string | undefined =>
      cellUpdate({ stored: makeCell("a", 0, [], { hold }), seen, monotonicMs, evidence: listed(sentMs) }).entry
        .aggregation?.hold;
    expect(at(0, "Gone/1", 0)).toBe("Gone/1");
    expect(at(70_000, "Gone/2", 70_000)).toBe("Gone/2");
    expect(at(80_000, "Gone/2", SETTLE_MS)).toBe("Gone/2");
    expect(at(150_000, "Gone/2", 70_000 + SETTLE_MS - 1)).toBe("Gone/2");
    expect(at(150_000, "Gone/2", 70_000 + SETTLE_MS)).toBeUndefined();
  });

  test("asks for evidence", () => {
    const { listDueMs } = cellUpdate({ stored: makeCell("a", 0, [], { hold: "Gone/1" }), monotonicMs: 5 });
    expect(listDueMs).toBe(5 + SETTLE_MS);
  });
});

describe("the evidence that is needed", () => {
  test("nothing without a reservation", () => {
    expect(cellUpdate({ pods: [makePod("x")] })).toMatchObject({ listDueMs: undefined, unsettled: [] });
  });

  test("a GET or a LIST for a pod that is alive, from a settle period after its newest admission on", () => {
    const seen = new FirstSeenTimes();
    const pods = [makePod("x")];
    cellUpdate({ stored: makeCell("a", 1, [makeBucket()]), pods, seen, monotonicMs: 10 });
    const { listDueMs, unsettled } = cellUpdate({
      stored: makeCell("a", 1, packed([makeBucket({ nonce: "n,m" })])),
      pods,
      seen,
      monotonicMs: 30,
    });
    const record = {
      uid: "uid-x",
      podName: "x",
      operation: "DELETE",
      firstSeenMs: 10,
      dueMs: 30 + SETTLE_MS,
      needsList: false,
    };
    expect({ listDueMs, unsettled }).toEqual({ listDueMs: undefined, unsettled: [record] });
  });

  test("a LIST at once for an absent pod without a known version", () => {
    const { listDueMs, unsettled } = cellUpdate({ stored: makeCell("a", 1, [makeForeignBucket()]), monotonicMs: 7 });
    expect({ listDueMs, unsettled }).toMatchObject({ listDueMs: 8, unsettled: [{ dueMs: 8, needsList: true }] });
  });
});

describe("when to write", () => {
  const spec = makeSpec();
  const pods = [makePod("x")];
  const reasons = (options: CellUpdateOptions): readonly string[] => cellUpdate({ pods, ...options }).reasons;

  test.each<[string, CellUpdateOptions, string[]]>([
    ["nothing changed, though the position moved", { stored: makeCell("a", 1), position: "2000" }, []],
    ["first count", { stored: undefined }, ["New", "Counts"]],
    ["first count of nothing", { stored: undefined, pods: [] }, ["Empty"]],
    ["another count", { stored: makeCell("a", 2) }, ["Counts"]],
    [
      "a count that upstream leaves out when it is 0",
      { stored: makeCell("a", 0, [], { readyReplicas: undefined }), pods: [] },
      [],
    ],
    ["a weight", { stored: makeCell("a", 1, [makeBucket({ counter: 0 })]) }, ["Weights"]],
    ["a settled record", { stored: makeCell("a", 1, [makeBucket({ podUID: "gone" })]) }, ["Settled"]],
    ["another spec", { stored: makeCell("a", 1, [], { specHash: "other" }) }, ["Spec"]],
    [
      "no position stored, on hold",
      { stored: makeCell("a", 1, [], { resourceVersion: undefined, hold: "Gone/1" }) },
      ["Fields"],
    ],
    ["a heartbeat", { stored: makeCell("a", 1), isHeartbeatDue: true }, ["Heartbeat"]],
    [
      "a new hold",
      { stored: makeCell("a", 1), history: { lost: "Gone", epoch: 1, hold: "Gone/1" }, adoptedEpoch: 1 },
      ["Epoch", "Hold"],
    ],
  ])("%s", (_, options, expected) => {
    const stored =
      options.stored === undefined ? undefined : (JSON.parse(JSON.stringify(options.stored)) as CellStatus);
    expect(reasons({ ...options, stored })).toEqual(expected);
  });

  test("maturity, as webhooks judge it", () => {
    const young = makeSpec({ minReadySeconds: 60 });
    const cell = (available: number, cutoffMs: number, resourceVersion = "1000"): CellStatus =>
      makeCell(
        "a",
        available,
        [],
        {
          totalReplicas: 2,
          readyReplicas: 2,
          scheduledReplicas: 2,
          runningReplicas: 2,
          maturityCutoff: formatMs(cutoffMs),
          resourceVersion,
        },
        young,
      );
    const [old, middle, fresh] = [
      makePod("x"),
      makePod("y", { readyForSeconds: 100 }),
      makePod("z", { readyForSeconds: 5 }),
    ];
    const at = (stored: CellStatus, pods: Pod[]): readonly string[] =>
      reasons({ stored, pods, spec: young, position: "2000" });
    expect(at(cell(1, NOW_MS - 60_000), [old, fresh])).toEqual([]);
    expect(at(cell(1, NOW_MS - 600_000), [old, fresh])).toEqual([]);
    // The number has stayed, because one pod matured while another went.
    expect(at(cell(1, NOW_MS - 150_000), [middle, fresh])).toEqual(["Maturity"]);
    // An immature pod has a version that the published position does not know.
    expect(at(cell(1, NOW_MS - 60_000, "99"), [old, fresh])).toEqual(["Maturity"]);
  });

  test("an immature pod that a lagging shard does not cover yet is awaited, and published once", () => {
    const young = makeSpec({ minReadySeconds: 60 });
    const pods = [makePod("x", { readyForSeconds: 5, resourceVersion: "150" })];
    const first = cellUpdate({ stored: makeCell("a", 1, [], {}, young), pods, spec: young, position: "1000,100" });
    const options = { stored: first.entry, pods, spec: young };
    const behind = cellUpdate({ ...options, position: "1000,149" });
    expect([behind.reasons, behind.awaitsPosition]).toEqual([[], true]);
    const known = cellUpdate({ ...options, position: "1000,150" });
    expect([known.reasons, known.awaitsPosition]).toEqual([["Maturity"], false]);
    const published = cellUpdate({ ...options, stored: known.entry, position: "1000,150" });
    expect([published.reasons, published.awaitsPosition]).toEqual([[], false]);
  });

  test("an update of its own result changes nothing", () => {
    const buckets = [
      makeBucket(),
      makeBucket({ podUID: "gone", podName: "gone", podResourceVersion: "9000" }),
      makeForeignBucket({ podUID: "uid-y" }),
    ];
    const options = { pods: [makePod("x"), makePod("y", { readyForSeconds: undefined })], spec };
    const first = cellUpdate({ ...options, stored: makeCell("a", 7, buckets) });
    expect(first.reasons).not.toEqual([]);
    const second = cellUpdate({ ...options, stored: first.entry });
    expect(second.reasons).toEqual([]);
    expect(second.entry).toEqual(first.entry);
  });
});

describe("the entry", () => {
  test("has counts, position, spec, epoch and times, and keeps unknown fields", () => {
    const stored = { ...makeCell("a", 1, [], { extra: 1 }), note: "kept", admissionHistory: { buckets: [], more: 2 } };
    const pods = [
      makePod("x"),
      makePod("y", { phase: "Pending", readyForSeconds: undefined, scheduled: false }),
      makePod("z", { terminating: true }),
    ];
    const { entry } = cellUpdate({ stored, pods, position: "1234", nowMs: NOW_MS, lastEventMs: NOW_MS - 5 });
    expect(entry).toMatchObject({
      note: "kept",
      admissionHistory: { more: 2 },
      aggregation: {
        extra: 1,
        totalReplicas: 2,
        availableReplicas: 1,
        readyReplicas: 1,
        scheduledReplicas: 1,
        runningReplicas: 1,
        resourceVersion: "1234",
        epoch: 0,
        heartbeatTime: formatMs(NOW_MS),
        lastEventTime: formatMs(NOW_MS - 5),
      },
    });
    expect(entry.aggregation?.maturityCutoff).toBeUndefined();
  });

  test("publishes the maturity cutoff in whole seconds, and when the next pod matures", () => {
    const spec = makeSpec({ minReadySeconds: 60 });
    const result = cellUpdate({
      spec,
      pods: [makePod("x", { readyForSeconds: 40 }), makePod("y", { readyForSeconds: 50 })],
      nowMs: NOW_MS + 999,
    });
    expect(result.entry.aggregation).toMatchObject({
      maturityCutoff: formatMs(NOW_MS - 60_000),
      availableReplicas: 0,
      readyReplicas: 2,
    });
    expect(result.nextMaturityMs).toBe(NOW_MS + 10_000);
    expect(cellUpdate({ spec, pods: [makePod("x")] }).nextMaturityMs).toBeUndefined();
  });
});

describe("upstream's algorithms", () => {
  const at = (offsetMs: number, rest: Partial<Bucket> = {}): Bucket =>
    makeBucket({ startTime: formatMs(NOW_MS + offsetMs), ...rest });
  const cases: [string, Bucket, string][] = [
    ["a bucket from before the last event", at(-1), "DELETE Clock"],
    ["a bucket from the moment of the last event", at(0), "keep DELETE w=1"],
    ["a bucket from after the last event", at(1), "keep DELETE w=1"],
    [
      "a range that ended before",
      { startTime: formatMs(NOW_MS - 9), endTime: formatMs(NOW_MS - 1), counter: 3 },
      "Clock",
    ],
    [
      "a range that ends after",
      { startTime: formatMs(NOW_MS - 9), endTime: formatMs(NOW_MS), counter: 3 },
      "keep range 3",
    ],
  ];
  test.each(cases)("%s", (_, one, expected) => {
    for (const algorithm of ["clock", "status"] as const) {
      expect(settledLine(cellUpdate({ algorithm, stored: makeCell("a", 1, [one]), pods: [makePod("x")] }))).toBe(
        expected,
      );
    }
  });

  test("publish no field that an upstream webhook drops, and keep the weights", () => {
    const result = cellUpdate({ algorithm: "clock", stored: makeCell("a", 0, [at(1)]) });
    expect(result.entry.aggregation).not.toHaveProperty("resourceVersion");
    expect(result.entry.aggregation).not.toHaveProperty("specHash");
    expect(settledLine(result)).toBe("keep DELETE w=1");
    expect(cellUpdate({ algorithm: "clock", stored: result.entry }).reasons).toEqual([]);
  });

  test("take back at once what the exact algorithm has published", () => {
    const result = cellUpdate({ algorithm: "clock", stored: makeCell("a", 1), pods: [makePod("x")] });
    expect(result.reasons).toEqual(["Spec", "Fields"]);
    expect(cellUpdate({ algorithm: "clock", stored: result.entry, pods: [makePod("x")] }).reasons).toEqual([]);
  });

  test("publish no maturity, and do not write again because of it", () => {
    const options = { algorithm: "clock" as const, spec: makeSpec({ minReadySeconds: 60 }), pods: [makePod("x")] };
    const { entry } = cellUpdate(options);
    expect(entry.aggregation).not.toHaveProperty("maturityCutoff");
    expect(cellUpdate({ ...options, stored: entry }).reasons).toEqual([]);
  });

  test("try with a heartbeat whether the core keeps these fields again, and still wait for the window", () => {
    const { entry } = cellUpdate({ algorithm: "clock", stored: makeCell("a", 0, [at(1)]) });
    const result = cellUpdate({ algorithm: "clock", stored: entry, isHeartbeatDue: true, probesFields: true });
    expect(result.reasons).toEqual(["Heartbeat"]);
    expect(result.entry.aggregation).toMatchObject({ resourceVersion: "1000", notReady: "0@1000" });
  });
});

describe("how many pods the workloads of the cell ask for", () => {
  const three = { workloads: 1, replicas: 3 };
  const none = { workloads: 0, replicas: 0 };
  const pods = [makePod("x")];
  test.each<[string, number | undefined, CellUpdateInput["expected"], readonly Pod[], number | undefined]>([
    ["is published", undefined, three, pods, 3],
    ["is published for a workload whose pods are all gone", undefined, three, [], 3],
    ["is 0 where nothing asks for pods, and there are none", undefined, none, [], 0],
    ["stays as it is while workloads are not listed", 3, "Unknown", pods, 3],
    ["follows a workload that is scaled to zero", 3, { workloads: 1, replicas: 0 }, [], 0],
    ["stays as it is when the workload is erased", 3, none, [], 3],
    ["is not known where the pods have another controller", undefined, none, pods, undefined],
    ["is taken back when no budget wants it any more", 3, undefined, pods, undefined],
  ])("%s", (_, before, expected, all, published) => {
    const aggregation = before === undefined ? {} : { expectedReplicas: before };
    const stored = makeCell("a", all.length, [], aggregation);
    const result = cellUpdate({ stored, pods: all, expected });
    expect(result.entry.aggregation?.expectedReplicas).toBe(published);
    expect(result.reasons).toEqual(before === published ? [] : ["Expected"]);
    expect(cellUpdate({ stored: result.entry, pods: all, expected }).reasons).toEqual([]);
  });

  test("stays as it is when the workload is erased and a pod appears", () => {
    const { entry } = cellUpdate({ stored: makeCell("a", 0, [], { expectedReplicas: 3 }), pods, expected: none });
    expect(entry.aggregation?.expectedReplicas).toBe(3);
  });

  test("stays 0 while workloads are not listed, though pods appear", () => {
    const stored = makeCell("a", 0, [], { expectedReplicas: 0 });
    expect(cellUpdate({ stored, pods, expected: "Unknown" }).entry.aggregation?.expectedReplicas).toBe(0);
  });

  // It is of other pods: those of a cell that has none of these would count for good.
  test.each<[string, CellUpdateInput["expected"], readonly Pod[], number | undefined]>([
    ["nothing asks for these", none, [], 0],
    ["these have another controller", none, pods, undefined],
    ["the workloads are not listed", "Unknown", pods, undefined],
  ])("of another selector is not kept where %s", (_, expected, all, published) => {
    const aggregation = { expectedReplicas: 30, specHash: "of another selector" };
    const { entry } = cellUpdate({ stored: makeCell("a", 3, [], aggregation), pods: all, expected });
    expect(entry.aggregation?.expectedReplicas).toBe(published);
  });

  test("stays as it is where no hash is published", () => {
    const stored = makeCell("a", 1, [], { expectedReplicas: 3 });
    const { entry } = cellUpdate({ algorithm: "clock", stored, pods, expected: none });
    expect(entry.aggregation).not.toHaveProperty("specHash");
    const again = cellUpdate({ algorithm: "clock", stored: entry, pods, expected: none });
    expect(again.entry.aggregation?.expectedReplicas).toBe(3);
  });

  // A budget is often there before its pods.
  test.each<[string, number, readonly Pod[], number | undefined]>([
    ["when pods of another controller come", 0, pods, undefined],
    ["and not for the last pods of a workload at zero that is gone", 2, pods, 0],
  ])("a 0 is taken back %s", (_, before, all, published) => {
    const { entry } = cellUpdate({
      stored: makeCell("a", before, [], { expectedReplicas: 0 }),
      ...{ pods: all, expected: none },
    });
    expect(entry.aggregation?.expectedReplicas).toBe(published);
    expect(cellUpdate({ stored: entry, pods: all, expected: none }).entry).toEqual(entry);
  });
});

test("counts that leave pods out by labels say so with their position, and are written again where they do not", () => {
  const spec = makeSpec({ unavailableLabelPrefix: "out/" });
  const pods = [makePod("x"), makePod("y", { labels: { app: "web", "out/now": "" } })];
  const first = cellUpdate({ spec, pods, position: "1000" });
  expect(first.entry.aggregation).toMatchObject({ totalReplicas: 2, availableReplicas: 1, leftOut: "out/@1000" });
  const again = cellUpdate({ spec, pods, position: "1001", stored: first.entry });
  expect(again.reasons).toEqual([]);
  // Written by an aggregator that does not know the field, and keeps it.
  const kept = { ...first.entry, aggregation: { ...first.entry.aggregation, resourceVersion: "1001" } };
  const repaired = cellUpdate({ spec, pods, position: "1002", stored: makeCell("a", 1, [], kept.aggregation, spec) });
  expect(repaired.reasons).toContain("Spec");
  expect(repaired.entry.aggregation?.leftOut).toBe("out/@1002");
  const without = cellUpdate({ pods, position: "1003", stored: repaired.entry });
  expect(without.reasons).toEqual(["Counts", "Spec"]);
  expect(without.entry.aggregation).not.toHaveProperty("leftOut");
});
