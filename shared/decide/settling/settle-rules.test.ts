import { describe, expect, test } from "vitest";
import {
  type CellUpdateOptions,
  cellUpdate,
  makeCell,
  makePod,
  makeSpec,
  NO_EVIDENCE,
  NOW_MS,
  type PodOptions,
  SETTLE_MS,
} from "../../../test/support/decide/fixtures.ts";
import {
  alive,
  listed,
  makeBucket,
  makeForeignBucket,
  packed,
  settledLine,
} from "../../../test/support/decide/settling-fixtures.ts";
import type { Pod } from "../../schema/pod.ts";
import type { Bucket } from "../../schema/podprotector.ts";
import { formatMs } from "../../schema/time.ts";
import { FirstSeenTimes } from "./first-seen.ts";
import type { Evidence } from "./settle-rules.ts";

describe("R1 dead", () => {
  const cases: [string, Bucket[], Pod[], string, CellUpdateOptions["evidence"], string][] = [
    ["terminating in S", [makeBucket()], [makePod("x", { terminating: true })], "100", undefined, "DELETE R1"],
    ["Succeeded in S", [makeBucket()], [makePod("x", { phase: "Succeeded" })], "100", undefined, "DELETE R1"],
    ["Failed in S", [makeBucket()], [makePod("x", { phase: "Failed" })], "100", undefined, "DELETE R1"],
    ["absent, S past the reviewed version", [makeBucket()], [], "101", undefined, "DELETE R1"],
    ["absent, S at the reviewed version", [makeBucket()], [], "100", undefined, "DELETE R1"],
    ["absent, the pod is newer than S", [makeBucket()], [], "99", undefined, "keep DELETE w=0"],
    [
      "absent, versions compare as numbers",
      [makeBucket({ podResourceVersion: "99" })],
      [],
      "100",
      undefined,
      "DELETE R1",
    ],
    ["another pod of the same name", [makeBucket()], [makePod("x", { uid: "uid-new" })], "101", undefined, "DELETE R1"],
    ["an eviction, too", [makeBucket({ operation: "EVICT" })], [], "101", undefined, "EVICT R1"],
    [
      "every record of the pod",
      [makeBucket(), makeBucket({ operation: "EVICT", counter: 0, nonce: "m" })],
      [],
      "101",
      undefined,
      "DELETE R1, EVICT R1",
    ],
    [
      "absent, and S is past one of the reviewed versions alone",
      [makeBucket(), makeBucket({ operation: "EVICT", counter: 0, nonce: "m", podResourceVersion: "900" })],
      [],
      "101",
      undefined,
      "keep DELETE+EVICT w=0",
    ],
    [
      "relabelled out of the protector and alive",
      [makeBucket()],
      [makePod("x", { labels: {} })],
      "100",
      undefined,
      "keep DELETE w=0",
    ],
    [
      "relabelled out of the protector and terminating",
      [makeBucket()],
      [makePod("x", { labels: {}, terminating: true })],
      "100",
      undefined,
      "DELETE R1",
    ],
    [
      "version unknown, absent, no LIST yet",
      [makeForeignBucket({ podName: "x" })],
      [],
      "5000",
      undefined,
      "keep EVICT w=0",
    ],
    [
      "version unknown, absent, a LIST of after first sight",
      [makeForeignBucket({ podName: "x" })],
      [],
      "5000",
      listed(1),
      "EVICT R1",
    ],
    [
      "version unknown, absent, a LIST of before",
      [makeForeignBucket({ podName: "x" })],
      [],
      "5000",
      listed(0),
      "keep EVICT w=0",
    ],
    [
      "versions are no integers, absent",
      [makeBucket({ podResourceVersion: "x1" })],
      [],
      "s9",
      undefined,
      "keep DELETE w=0",
    ],
    [
      "versions are no integers, absent after a LIST",
      [makeBucket({ podResourceVersion: "x1" })],
      [],
      "s9",
      listed(1),
      "DELETE R1",
    ],
    [
      "versions are no integers, terminating",
      [makeBucket({ podResourceVersion: "x1" })],
      [makePod("x", { terminating: true })],
      "s9",
      undefined,
      "DELETE R1",
    ],
    [
      "alive in a shard that is behind, while another has the next pod of its name",
      [makeBucket()],
      [makePod("x", { uid: "uid-next", resourceVersion: "150" }), makePod("x", { resourceVersion: "100" })],
      "200",
      undefined,
      "keep DELETE w=1",
    ],
    [
      "the cell went back behind the reviewed version, after a LIST",
      [makeBucket({ podResourceVersion: "900" })],
      [],
      "500",
      listed(1),
      "DELETE R1",
    ],
  ];
  test.each(cases)("%s", (_, buckets, pods, position, evidence = NO_EVIDENCE, expected) => {
    const options = { pods, position, evidence };
    expect(settledLine(cellUpdate({ ...options, stored: makeCell("a", 1, buckets, { resourceVersion: "50" }) }))).toBe(
      expected,
    );
    expect(
      settledLine(cellUpdate({ ...options, stored: makeCell("a", 1, packed(buckets), { resourceVersion: "50" }) })),
    ).toBe(expected);
  });
});

describe("R2 superseded", () => {
  const cases: [string, Partial<Bucket>, PodOptions, string][] = [
    ["alive at a newer version", {}, { resourceVersion: "101" }, "DELETE R2"],
    ["alive at the reviewed version", {}, { resourceVersion: "100" }, "keep DELETE w=1"],
    ["alive at an older version: S lags", {}, { resourceVersion: "99" }, "keep DELETE w=1"],
    ["unready at a newer version", {}, { resourceVersion: "101", readyForSeconds: undefined }, "DELETE R2"],
    ["an eviction is not bound to the version", { operation: "EVICT" }, { resourceVersion: "101" }, "keep EVICT w=1"],
    ["an update is one of the newer versions", { operation: "UPDATE" }, { resourceVersion: "101" }, "keep UPDATE w=1"],
    ["version unknown", { podResourceVersion: undefined }, { resourceVersion: "101" }, "keep DELETE w=1"],
    ["the reviewed version is no integer", { podResourceVersion: "v" }, { resourceVersion: "101" }, "keep DELETE w=1"],
    ["the pod's version is no integer", {}, { resourceVersion: "v999" }, "keep DELETE w=1"],
  ];
  test.each(cases)("%s", (_, rest, pod, expected) => {
    const buckets = [JSON.parse(JSON.stringify(makeBucket(rest))) as Bucket];
    const options = { pods: [makePod("x", pod)], position: "200" };
    expect(settledLine(cellUpdate({ ...options, stored: makeCell("a", 1, buckets, { resourceVersion: "50" }) }))).toBe(
      expected,
    );
    expect(
      settledLine(cellUpdate({ ...options, stored: makeCell("a", 1, packed(buckets), { resourceVersion: "50" }) })),
    ).toBe(expected);
  });

  test("of two records it settles the DELETE alone", () => {
    const buckets = [makeBucket(), makeBucket({ operation: "EVICT", counter: 0, nonce: "m" })];
    const result = cellUpdate({ pods: [makePod("x", { resourceVersion: "101" })], stored: makeCell("a", 1, buckets) });
    expect(settledLine(result)).toBe("DELETE R2, keep EVICT w=1");
  });
});

describe("R3 not executed", () => {
  const pods = [makePod("x")];
  const due = 10 + SETTLE_MS;
  const cases: [string, Bucket, Pod[], Evidence, string][] = [
    ["no evidence", makeBucket(), pods, NO_EVIDENCE, "keep DELETE w=1"],
    ["alive by a GET sent a settle period after first sight", makeBucket(), pods, alive(due), "DELETE R3"],
    ["alive by a GET sent a moment too early", makeBucket(), pods, alive(due - 1), "keep DELETE w=1"],
    ["alive in a snapshot that has reached such a LIST", makeBucket(), pods, listed(due), "DELETE R3"],
    ["a LIST sent a moment too early", makeBucket(), pods, listed(due - 1), "keep DELETE w=1"],
    ["an eviction", makeBucket({ operation: "EVICT" }), pods, alive(due), "EVICT R3"],
    ["upstream's bucket", makeForeignBucket({ podName: "x" }), pods, listed(due), "EVICT R3"],
    ["unready and alive", makeBucket(), [makePod("x", { readyForSeconds: undefined })], alive(due), "DELETE R3"],
    ["gone by the GET, S has not seen it: waits for R1", makeBucket(), pods, NO_EVIDENCE, "keep DELETE w=1"],
    ["newer than S, alive by a GET", makeBucket({ podResourceVersion: "9000" }), [], alive(due), "DELETE R3"],
    ["newer than S, no GET", makeBucket({ podResourceVersion: "9000" }), [], NO_EVIDENCE, "keep DELETE w=0"],
  ];
  test.each(cases)("%s", (_, one, snapshot, evidence, expected) => {
    const seen = new FirstSeenTimes();
    const stored = makeCell("a", 1, [one]);
    cellUpdate({ stored, pods: snapshot, seen, monotonicMs: 10 });
    expect(settledLine(cellUpdate({ stored, pods: snapshot, seen, monotonicMs: due + 500, evidence }))).toBe(expected);
  });

  test("time alone, and the age of the bucket, settle nothing", () => {
    const stored = makeCell("a", 1, [makeBucket({ startTime: "2020-01-01T00:00:00Z" })]);
    const seen = new FirstSeenTimes();
    cellUpdate({ stored, pods, seen, monotonicMs: 0 });
    expect(settledLine(cellUpdate({ stored, pods, seen, monotonicMs: 9e9, nowMs: NOW_MS + 9e9 }))).toBe(
      "keep DELETE w=1",
    );
  });

  test("a repeat restarts the settle period, whichever component made it", () => {
    const seen = new FirstSeenTimes();
    const at = (monotonicMs: number, one: Bucket, sentMs: number): string =>
      settledLine(cellUpdate({ stored: makeCell("a", 1, [one]), pods, seen, monotonicMs, evidence: listed(sentMs) }));
    at(0, makeBucket(), 0);
    at(50_000, makeBucket({ nonce: "n,second" }), 50_000);
    expect(at(80_000, makeBucket({ nonce: "n,second" }), SETTLE_MS)).toBe("keep DELETE w=1");
    expect(at(130_000, makeBucket({ nonce: "n,second" }), 50_000 + SETTLE_MS)).toBe("DELETE R3");
    at(200_000, makeForeignBucket({ podName: "x" }), 0);
    const refreshed = makeForeignBucket({ podName: "x", startTime: formatMs(NOW_MS) });
    at(250_000, refreshed, 0);
    expect(at(280_000, refreshed, 200_000 + SETTLE_MS)).toBe("keep EVICT w=1");
    expect(at(330_000, refreshed, 250_000 + SETTLE_MS)).toBe("EVICT R3");
  });

  test("a new leader starts the settle period again", () => {
    const stored = makeCell("a", 1, [makeBucket()]);
    const evidence = listed(SETTLE_MS);
    expect(
      settledLine(cellUpdate({ stored, pods, seen: new FirstSeenTimes(), monotonicMs: SETTLE_MS, evidence })),
    ).toBe("keep DELETE w=1");
  });

  test("a failed write does not start the settle period again", () => {
    const seen = new FirstSeenTimes();
    const options = { stored: makeCell("a", 1, [makeBucket()]), pods, seen };
    cellUpdate({ ...options, monotonicMs: 0 });
    for (const monotonicMs of [SETTLE_MS, SETTLE_MS + 1]) {
      expect(settledLine(cellUpdate({ ...options, monotonicMs, evidence: listed(SETTLE_MS) }))).toBe("DELETE R3");
    }
  });

  test("an admission that was settled and comes again has its own settle period", () => {
    const seen = new FirstSeenTimes();
    cellUpdate({ stored: makeCell("a", 1, [makeBucket()]), pods, seen, monotonicMs: 0 });
    cellUpdate({ stored: makeCell("a", 1), pods, seen, monotonicMs: 1 });
    expect(seen.size).toBe(0);
    const again = {
      stored: makeCell("a", 1, [makeBucket()]),
      pods,
      seen,
      monotonicMs: 100_000,
      evidence: listed(SETTLE_MS),
    };
    expect(settledLine(cellUpdate(again))).toBe("keep DELETE w=1");
  });
});

describe("time-ranged buckets", () => {
  const range = (counter: number): Bucket => ({ startTime: formatMs(NOW_MS - 9), endTime: formatMs(NOW_MS), counter });

  test("count until a LIST of a settle period after first sight is reached; growth starts again", () => {
    const seen = new FirstSeenTimes();
    const at = (monotonicMs: number, counter: number, sentMs: number): string =>
      settledLine(
        cellUpdate({ stored: makeCell("a", 5, [range(counter)]), seen, monotonicMs, evidence: listed(sentMs) }),
      );
    expect(at(0, 2, 0)).toBe("keep range 2");
    expect(at(60_000, 3, 60_000)).toBe("keep range 3");
    expect(at(80_000, 3, SETTLE_MS)).toBe("keep range 3");
    expect(at(140_000, 3, 60_000 + SETTLE_MS)).toBe("R3");
  });

  test("an unreadable packed text is settled in the same way, so that it does not stay for ever", () => {
    const seen = new FirstSeenTimes();
    const stored = makeCell("a", 5, [{ ...range(4), packed: "9;?" }]);
    expect(settledLine(cellUpdate({ stored, seen, monotonicMs: 0, evidence: listed(1) }))).toBe("keep range 4");
    expect(settledLine(cellUpdate({ stored, seen, monotonicMs: SETTLE_MS, evidence: listed(SETTLE_MS) }))).toBe("R3");
  });
});

describe("updates", () => {
  const update = makeBucket({ operation: "UPDATE", podGeneration: 3 });
  const cases: [string, PodOptions, number | undefined, Evidence, string][] = [
    ["not committed, no evidence", { generation: 3 }, 3, NO_EVIDENCE, "keep UPDATE w=1"],
    ["not committed, by a LIST of a settle period later", { generation: 3 }, 3, listed(SETTLE_MS), "UPDATE R3"],
    ["a GET says nothing about the change", { generation: 3 }, 3, alive(SETTLE_MS), "keep UPDATE w=1"],
    ["committed, the status lags", { generation: 4 }, 3, NO_EVIDENCE, "keep UPDATE w=1"],
    ["committed, the status lags for ever", { generation: 4 }, 3, listed(SETTLE_MS), "keep UPDATE w=1"],
    ["committed, restarting", { generation: 4, readyForSeconds: undefined }, 3, listed(SETTLE_MS), "keep UPDATE w=0"],
    ["ended, not ready again yet", { generation: 4, readyForSeconds: undefined }, 4, NO_EVIDENCE, "keep UPDATE w=0"],
    ["ended, and never ready again", { generation: 4, readyForSeconds: undefined }, 4, listed(SETTLE_MS), "UPDATE R3"],
    ["ended, in a pod that is no longer counted", { generation: 4, labels: {} }, 4, listed(SETTLE_MS), "UPDATE R3"],
    ["committed and available again", { generation: 4 }, 4, NO_EVIDENCE, "UPDATE UpdateDone"],
    ["dead", { generation: 4, terminating: true }, undefined, NO_EVIDENCE, "UPDATE R1"],
  ];
  test.each(cases)("%s", (_, pod, settled, evidence, expected) => {
    const seen = new FirstSeenTimes();
    const options = {
      stored: makeCell("a", 1, [update]),
      pods: [makePod("x", pod)],
      seen,
      settledGeneration: () => settled,
    };
    cellUpdate({ ...options, monotonicMs: 0 });
    expect(settledLine(cellUpdate({ ...options, monotonicMs: SETTLE_MS, evidence }))).toBe(expected);
  });

  test("a second change that was never committed settles only once the first has ended", () => {
    const seen = new FirstSeenTimes();
    const second = makeBucket({ operation: "UPDATE", podGeneration: 4, nonce: "first,second" });
    const options = { stored: makeCell("a", 1, [second]), pods: [makePod("x", { generation: 4 })], seen };
    cellUpdate({ ...options, monotonicMs: 0 });
    const later = { ...options, monotonicMs: SETTLE_MS, evidence: listed(SETTLE_MS) };
    expect(settledLine(cellUpdate({ ...later, settledGeneration: () => undefined }))).toBe("keep UPDATE w=1");
    expect(settledLine(cellUpdate({ ...later, settledGeneration: () => 4 }))).toBe("UPDATE R3");
  });

  test("a resize that the kubelet declines is settled by evidence, a deferred one stays", () => {
    const seen = new FirstSeenTimes();
    const options = { stored: makeCell("a", 1, [update]), pods: [makePod("x", { generation: 4 })], seen };
    const declined = { ...options, declinedGeneration: () => 4 };
    expect(settledLine(cellUpdate({ ...declined, monotonicMs: 0 }))).toBe("keep UPDATE w=1");
    const later = { monotonicMs: SETTLE_MS, evidence: listed(SETTLE_MS) };
    expect(settledLine(cellUpdate({ ...options, ...later }))).toBe("keep UPDATE w=1");
    expect(settledLine(cellUpdate({ ...declined, declinedGeneration: () => 3, ...later }))).toBe("keep UPDATE w=1");
    expect(settledLine(cellUpdate({ ...declined, ...later }))).toBe("UPDATE R3");
  });

  test("a change that no status confirms is settled by availability after five settle periods, and not before", () => {
    const seen = new FirstSeenTimes();
    const ready = [makePod("x", { generation: 4 })];
    const options = { stored: makeCell("a", 1, [update]), pods: ready, seen, unconfirmedGeneration: () => 4 };
    const inPeriods = (periods: number) => ({
      monotonicMs: periods * SETTLE_MS,
      evidence: listed(periods * SETTLE_MS),
    });
    cellUpdate({ ...options, monotonicMs: 0 });
    expect(settledLine(cellUpdate({ ...options, ...inPeriods(4.9) }))).toBe("keep UPDATE w=1");
    const unready = [makePod("x", { generation: 4, readyForSeconds: undefined })];
    expect(settledLine(cellUpdate({ ...options, ...inPeriods(1000), pods: unready }))).toBe("keep UPDATE w=0");
    // The kubelet has not seen the change: its restart is still to come.
    expect(settledLine(cellUpdate({ ...options, ...inPeriods(1000), unconfirmedGeneration: () => 3 }))).toBe(
      "keep UPDATE w=1",
    );
    expect(settledLine(cellUpdate({ ...options, ...inPeriods(5) }))).toBe("UPDATE R3");
  });

  test("the first change of a pod without a generation makes it 1, which does not say that it is done", () => {
    const seen = new FirstSeenTimes();
    const stored = makeCell("a", 1, [makeBucket({ operation: "UPDATE", podGeneration: 0 })]);
    const pods = [makePod("x", { generation: 1 })];
    const options = { stored, pods, seen, settledGeneration: () => 1 };
    expect(settledLine(cellUpdate({ ...options, monotonicMs: 0 }))).toBe("keep UPDATE w=1");
    const late = (atMs: number) => ({ monotonicMs: atMs, evidence: listed(atMs) });
    expect(settledLine(cellUpdate({ ...options, ...late(4.9 * SETTLE_MS) }))).toBe("keep UPDATE w=1");
    expect(settledLine(cellUpdate({ ...options, ...late(5 * SETTLE_MS) }))).toBe("UPDATE R3");
    const uncommitted = { ...options, pods: [makePod("x", { generation: 0 })], settledGeneration: () => 0 };
    expect(settledLine(cellUpdate({ ...uncommitted, ...late(SETTLE_MS) }))).toBe("UPDATE R3");
    const ofNewPod = makeCell("a", 1, [makeBucket({ operation: "UPDATE", podGeneration: 1 })]);
    expect(settledLine(cellUpdate({ ...options, ...late(SETTLE_MS), stored: ofNewPod }))).toBe("UPDATE R3");
  });

  test("a change that no status confirms is settled where the protector no longer counts its pod", () => {
    const seen = new FirstSeenTimes();
    const others = [makePod("x", { generation: 4, labels: {} })];
    const options = { stored: makeCell("a", 1, [update]), pods: others, seen, unconfirmedGeneration: () => 4 };
    cellUpdate({ ...options, monotonicMs: 0 });
    const atMs = 5 * SETTLE_MS;
    expect(settledLine(cellUpdate({ ...options, monotonicMs: atMs, evidence: listed(atMs) }))).toBe("UPDATE R3");
  });

  test("neither record's rule clears the other's", () => {
    const both = [update, makeBucket({ counter: 0 })];
    const options = { stored: makeCell("a", 1, both), pods: [makePod("x", { generation: 4, resourceVersion: "101" })] };
    expect(settledLine(cellUpdate({ ...options, settledGeneration: () => 3 }))).toBe("DELETE R2, keep UPDATE w=1");
    const done = { ...options, pods: [makePod("x", { generation: 4 })], settledGeneration: () => 4 };
    expect(settledLine(cellUpdate(done))).toBe("UPDATE UpdateDone, keep DELETE w=1");
  });
});

describe("weights follow availability", () => {
  const spec = makeSpec({ minReadySeconds: 30 });
  const cases: [string, Partial<Bucket>, PodOptions, string][] = [
    ["available", { counter: 0 }, {}, "keep EVICT w=1"],
    ["unready: kept, it may become ready again", {}, { readyForSeconds: undefined }, "keep EVICT w=0"],
    ["immature", {}, { readyForSeconds: 29 }, "keep EVICT w=0"],
    ["mature", { counter: 0 }, { readyForSeconds: 30 }, "keep EVICT w=1"],
    ["relabelled out of the counted pods", {}, { labels: {} }, "keep EVICT w=0"],
  ];
  test.each(cases)("%s", (_, rest, pod, expected) => {
    const stored = makeCell("a", 1, [makeBucket({ operation: "EVICT", ...rest })], {}, spec);
    const result = cellUpdate({ spec, stored, pods: [makePod("x", pod)] });
    expect(settledLine(result)).toBe(expected);
  });
});
