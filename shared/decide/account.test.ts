import { describe, expect, test } from "vitest";
import type { Pod } from "../schema/pod.ts";
import type { Bucket, CellStatus } from "../schema/podprotector.ts";
import type { AccountResult } from "./account.ts";
import { Ledger } from "./ledger.ts";
import { SeenTimes } from "./seen.ts";
import type { Evidence } from "./settle.ts";
import {
  type AccountOptions,
  account,
  bucketsOf,
  makeCell,
  makePod,
  makeSpec,
  NO_EVIDENCE,
  NOW_MS,
  type PodOptions,
  SETTLE_MS,
} from "./test-fixtures.ts";
import { formatMs } from "./time.ts";

const bucket = (rest: Partial<Bucket> = {}): Bucket => ({
  startTime: formatMs(NOW_MS - 1000),
  podUID: "uid-x",
  podName: "x",
  podResourceVersion: "100",
  operation: "DELETE",
  nonce: "n",
  paid: true,
  ...rest,
});

/** Upstream's: nothing but what its types know. */
const foreign = (rest: Partial<Bucket> = {}): Bucket => ({
  startTime: formatMs(NOW_MS - 1000),
  podUID: "uid-x",
  ...rest,
});

const listed = (reachedSentMs: number): Evidence => ({ ...NO_EVIDENCE, reachedSentMs });
const alive = (sentMs: number): Evidence => ({
  ...NO_EVIDENCE,
  aliveSentMs: (uid) => (uid === "uid-x" ? sentMs : undefined),
});

/** What becomes of the history, as one line: dropped rules, then the weights that stay. */
function line(result: AccountResult): string {
  const rules = result.dropped.map(({ rule, operation }) => (operation === undefined ? rule : `${operation} ${rule}`));
  const ledger = Ledger.parse(bucketsOf(result.entry));
  const kept = [...ledger.reservations()].map(
    ({ weight, records }) => `keep ${[...records.keys()].join("+")} w=${weight}`,
  );
  const ranges = ledger.ranges.map(({ weight }) => `keep range ${weight}`);
  return [...rules, ...kept, ...ranges].join(", ") || "empty";
}

/** Packs what can be packed, so that each case is also tried without a readable UID. */
function packed(buckets: readonly Bucket[]): Bucket[] {
  return Ledger.parse(buckets).encode(0);
}

describe("R1 dead (design 5.2)", () => {
  const cases: [string, Bucket[], Pod[], string, AccountOptions["evidence"], string][] = [
    ["terminating in S", [bucket()], [makePod("x", { terminating: true })], "100", undefined, "DELETE R1"],
    ["Succeeded in S", [bucket()], [makePod("x", { phase: "Succeeded" })], "100", undefined, "DELETE R1"],
    ["Failed in S", [bucket()], [makePod("x", { phase: "Failed" })], "100", undefined, "DELETE R1"],
    ["absent, S past the reviewed version", [bucket()], [], "101", undefined, "DELETE R1"],
    ["absent, S at the reviewed version", [bucket()], [], "100", undefined, "DELETE R1"],
    ["absent, the pod is newer than S", [bucket()], [], "99", undefined, "keep DELETE w=0"],
    ["absent, versions compare as numbers", [bucket({ podResourceVersion: "99" })], [], "100", undefined, "DELETE R1"],
    ["another pod of the same name", [bucket()], [makePod("x", { uid: "uid-new" })], "101", undefined, "DELETE R1"],
    ["an eviction, too", [bucket({ operation: "EVICT" })], [], "101", undefined, "EVICT R1"],
    [
      "every record of the pod",
      [bucket(), bucket({ operation: "EVICT", counter: 0, nonce: "m" })],
      [],
      "101",
      undefined,
      "DELETE R1, EVICT R1",
    ],
    [
      "absent, and S is past one of the reviewed versions",
      [bucket(), bucket({ operation: "EVICT", counter: 0, nonce: "m", podResourceVersion: "900" })],
      [],
      "101",
      undefined,
      "DELETE R1, EVICT R1",
    ],
    [
      "relabelled out of the protector and alive",
      [bucket()],
      [makePod("x", { labels: {} })],
      "100",
      undefined,
      "keep DELETE w=0",
    ],
    [
      "relabelled out of the protector and terminating",
      [bucket()],
      [makePod("x", { labels: {}, terminating: true })],
      "100",
      undefined,
      "DELETE R1",
    ],
    ["version unknown, absent, no LIST yet", [foreign({ podName: "x" })], [], "5000", undefined, "keep EVICT w=0"],
    [
      "version unknown, absent, a LIST of after first sight",
      [foreign({ podName: "x" })],
      [],
      "5000",
      listed(1),
      "EVICT R1",
    ],
    ["version unknown, absent, a LIST of before", [foreign({ podName: "x" })], [], "5000", listed(0), "keep EVICT w=0"],
    [
      "versions are no integers, absent",
      [bucket({ podResourceVersion: "x1" })],
      [],
      "s9",
      undefined,
      "keep DELETE w=0",
    ],
    [
      "versions are no integers, absent after a LIST",
      [bucket({ podResourceVersion: "x1" })],
      [],
      "s9",
      listed(1),
      "DELETE R1",
    ],
    [
      "versions are no integers, terminating",
      [bucket({ podResourceVersion: "x1" })],
      [makePod("x", { terminating: true })],
      "s9",
      undefined,
      "DELETE R1",
    ],
    [
      "the cell went back behind the reviewed version, after a LIST",
      [bucket({ podResourceVersion: "900" })],
      [],
      "500",
      listed(1),
      "DELETE R1",
    ],
  ];
  test.each(cases)("%s", (_, buckets, pods, position, evidence = NO_EVIDENCE, expected) => {
    const options = { pods, position, evidence };
    expect(line(account({ ...options, stored: makeCell("a", 1, buckets, { resourceVersion: "50" }) }))).toBe(expected);
    expect(line(account({ ...options, stored: makeCell("a", 1, packed(buckets), { resourceVersion: "50" }) }))).toBe(
      expected,
    );
  });
});

describe("R2 superseded (design 5.2)", () => {
  const cases: [string, Partial<Bucket>, PodOptions, string][] = [
    ["alive at a newer version", {}, { resourceVersion: "101" }, "DELETE R2"],
    ["alive at the reviewed version", {}, { resourceVersion: "100" }, "keep DELETE w=1"],
    ["alive at an older version: S lags", {}, { resourceVersion: "99" }, "keep DELETE w=1"],
    ["unready at a newer version", {}, { resourceVersion: "101", readyForSeconds: undefined }, "DELETE R2"],
    ["an eviction is not bound to the version", { operation: "EVICT" }, { resourceVersion: "101" }, "keep EVICT w=1"],
    ["an update is one of the newer versions", { operation: "UPDATE" }, { resourceVersion: "101" }, "keep UPDATE w=1"],
    ["version unknown", { podResourceVersion: undefined }, { resourceVersion: "101" }, "keep DELETE w=1"],
    ["the reviewed version is no integer", { podResourceVersion: "v" }, { resourceVersion: "101" }, "keep DELETE w=1"],
    ["the pod's version is no integer", {}, { resourceVersion: "v" }, "keep DELETE w=1"],
  ];
  test.each(cases)("%s", (_, rest, pod, expected) => {
    const buckets = [JSON.parse(JSON.stringify(bucket(rest))) as Bucket];
    const options = { pods: [makePod("x", pod)], position: "200" };
    expect(line(account({ ...options, stored: makeCell("a", 1, buckets, { resourceVersion: "50" }) }))).toBe(expected);
    expect(line(account({ ...options, stored: makeCell("a", 1, packed(buckets), { resourceVersion: "50" }) }))).toBe(
      expected,
    );
  });

  test("of two records it settles the DELETE alone", () => {
    const buckets = [bucket(), bucket({ operation: "EVICT", counter: 0, nonce: "m" })];
    const result = account({ pods: [makePod("x", { resourceVersion: "101" })], stored: makeCell("a", 1, buckets) });
    expect(line(result)).toBe("DELETE R2, keep EVICT w=1");
  });
});

describe("R3 not executed (design 5.2)", () => {
  const pods = [makePod("x")];
  const due = 10 + SETTLE_MS;
  const cases: [string, Bucket, Pod[], Evidence, string][] = [
    ["no evidence", bucket(), pods, NO_EVIDENCE, "keep DELETE w=1"],
    ["alive by a GET sent a settle period after first sight", bucket(), pods, alive(due), "DELETE R3"],
    ["alive by a GET sent a moment too early", bucket(), pods, alive(due - 1), "keep DELETE w=1"],
    ["alive in a snapshot that has reached such a LIST", bucket(), pods, listed(due), "DELETE R3"],
    ["a LIST sent a moment too early", bucket(), pods, listed(due - 1), "keep DELETE w=1"],
    ["an eviction", bucket({ operation: "EVICT" }), pods, alive(due), "EVICT R3"],
    ["upstream's bucket", foreign({ podName: "x" }), pods, listed(due), "EVICT R3"],
    ["unready and alive", bucket(), [makePod("x", { readyForSeconds: undefined })], alive(due), "DELETE R3"],
    ["gone by the GET, S has not seen it: waits for R1", bucket(), pods, NO_EVIDENCE, "keep DELETE w=1"],
    ["newer than S, alive by a GET", bucket({ podResourceVersion: "9000" }), [], alive(due), "DELETE R3"],
    ["newer than S, no GET", bucket({ podResourceVersion: "9000" }), [], NO_EVIDENCE, "keep DELETE w=0"],
  ];
  test.each(cases)("%s", (_, one, snapshot, evidence, expected) => {
    const seen = new SeenTimes();
    const stored = makeCell("a", 1, [one]);
    account({ stored, pods: snapshot, seen, monotonicMs: 10 });
    expect(line(account({ stored, pods: snapshot, seen, monotonicMs: due + 500, evidence }))).toBe(expected);
  });

  test("time alone, and the age of the bucket, settle nothing", () => {
    const stored = makeCell("a", 1, [bucket({ startTime: "2020-01-01T00:00:00Z" })]);
    const seen = new SeenTimes();
    account({ stored, pods, seen, monotonicMs: 0 });
    expect(line(account({ stored, pods, seen, monotonicMs: 9e9, nowMs: NOW_MS + 9e9 }))).toBe("keep DELETE w=1");
  });

  test("a repeat restarts the settle period, whichever component made it", () => {
    const seen = new SeenTimes();
    const at = (monotonicMs: number, one: Bucket, sentMs: number): string =>
      line(account({ stored: makeCell("a", 1, [one]), pods, seen, monotonicMs, evidence: listed(sentMs) }));
    at(0, bucket(), 0);
    at(50_000, bucket({ nonce: "n,second" }), 50_000);
    expect(at(80_000, bucket({ nonce: "n,second" }), SETTLE_MS)).toBe("keep DELETE w=1");
    expect(at(130_000, bucket({ nonce: "n,second" }), 50_000 + SETTLE_MS)).toBe("DELETE R3");
    at(200_000, foreign({ podName: "x" }), 0);
    const refreshed = foreign({ podName: "x", startTime: formatMs(NOW_MS) });
    at(250_000, refreshed, 0);
    expect(at(280_000, refreshed, 200_000 + SETTLE_MS)).toBe("keep EVICT w=1");
    expect(at(330_000, refreshed, 250_000 + SETTLE_MS)).toBe("EVICT R3");
  });

  test("a new leader starts the settle period again", () => {
    const stored = makeCell("a", 1, [bucket()]);
    const evidence = listed(SETTLE_MS);
    expect(line(account({ stored, pods, seen: new SeenTimes(), monotonicMs: SETTLE_MS, evidence }))).toBe(
      "keep DELETE w=1",
    );
  });

  test("a failed write does not start the settle period again", () => {
    const seen = new SeenTimes();
    const options = { stored: makeCell("a", 1, [bucket()]), pods, seen };
    account({ ...options, monotonicMs: 0 });
    for (const monotonicMs of [SETTLE_MS, SETTLE_MS + 1]) {
      expect(line(account({ ...options, monotonicMs, evidence: listed(SETTLE_MS) }))).toBe("DELETE R3");
    }
  });

  test("an admission that was settled and comes again has a settle period of its own", () => {
    const seen = new SeenTimes();
    account({ stored: makeCell("a", 1, [bucket()]), pods, seen, monotonicMs: 0 });
    account({ stored: makeCell("a", 1), pods, seen, monotonicMs: 1 });
    expect(seen.size).toBe(0);
    const again = {
      stored: makeCell("a", 1, [bucket()]),
      pods,
      seen,
      monotonicMs: 100_000,
      evidence: listed(SETTLE_MS),
    };
    expect(line(account(again))).toBe("keep DELETE w=1");
  });
});

describe("time-ranged buckets (design 5.5)", () => {
  const range = (counter: number): Bucket => ({ startTime: formatMs(NOW_MS - 9), endTime: formatMs(NOW_MS), counter });

  test("count until a LIST of a settle period after first sight is reached, and growing starts it again", () => {
    const seen = new SeenTimes();
    const at = (monotonicMs: number, counter: number, sentMs: number): string =>
      line(account({ stored: makeCell("a", 5, [range(counter)]), seen, monotonicMs, evidence: listed(sentMs) }));
    expect(at(0, 2, 0)).toBe("keep range 2");
    expect(at(60_000, 3, 60_000)).toBe("keep range 3");
    expect(at(80_000, 3, SETTLE_MS)).toBe("keep range 3");
    expect(at(140_000, 3, 60_000 + SETTLE_MS)).toBe("R3");
  });

  test("an unreadable packed text is settled in the same way, so that nothing is stuck", () => {
    const seen = new SeenTimes();
    const stored = makeCell("a", 5, [{ ...range(4), packed: "9;?" }]);
    expect(line(account({ stored, seen, monotonicMs: 0, evidence: listed(1) }))).toBe("keep range 4");
    expect(line(account({ stored, seen, monotonicMs: SETTLE_MS, evidence: listed(SETTLE_MS) }))).toBe("R3");
  });
});

describe("updates (design 10)", () => {
  const update = bucket({ operation: "UPDATE", podGeneration: 3 });
  const cases: [string, PodOptions, number | undefined, Evidence, string][] = [
    ["not committed, no evidence", { generation: 3 }, 3, NO_EVIDENCE, "keep UPDATE w=1"],
    ["not committed, by a LIST of a settle period later", { generation: 3 }, 3, listed(SETTLE_MS), "UPDATE R3"],
    ["a GET says nothing about the change", { generation: 3 }, 3, alive(SETTLE_MS), "keep UPDATE w=1"],
    ["committed, the status lags", { generation: 4 }, 3, NO_EVIDENCE, "keep UPDATE w=1"],
    ["committed, the status lags for ever", { generation: 4 }, 3, listed(SETTLE_MS), "keep UPDATE w=1"],
    ["committed, restarting", { generation: 4, readyForSeconds: undefined }, 4, listed(SETTLE_MS), "keep UPDATE w=0"],
    ["committed and available again", { generation: 4 }, 4, NO_EVIDENCE, "UPDATE UpdateDone"],
    ["dead", { generation: 4, terminating: true }, undefined, NO_EVIDENCE, "UPDATE R1"],
  ];
  test.each(cases)("%s", (_, pod, settled, evidence, expected) => {
    const seen = new SeenTimes();
    const options = {
      stored: makeCell("a", 1, [update]),
      pods: [makePod("x", pod)],
      seen,
      settledGeneration: () => settled,
    };
    account({ ...options, monotonicMs: 0 });
    expect(line(account({ ...options, monotonicMs: SETTLE_MS, evidence }))).toBe(expected);
  });

  test("neither record's rule clears the other's", () => {
    const both = [update, bucket({ counter: 0 })];
    const options = { stored: makeCell("a", 1, both), pods: [makePod("x", { generation: 4, resourceVersion: "101" })] };
    expect(line(account({ ...options, settledGeneration: () => 3 }))).toBe("DELETE R2, keep UPDATE w=1");
    const done = { ...options, pods: [makePod("x", { generation: 4 })], settledGeneration: () => 4 };
    expect(line(account(done))).toBe("UPDATE UpdateDone, keep DELETE w=1");
  });
});

describe("weights follow availability (design 5.2)", () => {
  const spec = makeSpec({ minReadySeconds: 30 });
  const cases: [string, Partial<Bucket>, PodOptions, string][] = [
    ["available", { counter: 0 }, {}, "keep EVICT w=1"],
    ["unready: kept, it may become ready again", {}, { readyForSeconds: undefined }, "keep EVICT w=0"],
    ["immature", {}, { readyForSeconds: 29 }, "keep EVICT w=0"],
    ["mature", { counter: 0 }, { readyForSeconds: 30 }, "keep EVICT w=1"],
    ["relabelled out of the counted pods", {}, { labels: {} }, "keep EVICT w=0"],
  ];
  test.each(cases)("%s", (_, rest, pod, expected) => {
    const stored = makeCell("a", 1, [bucket({ operation: "EVICT", ...rest })], {}, spec);
    const result = account({ spec, stored, pods: [makePod("x", pod)] });
    expect(line(result)).toBe(expected);
  });
});

describe("fences (design 5.2, 5.4)", () => {
  const pods = [makePod("x"), makePod("y")];
  const cases: [string, Partial<CellStatus["aggregation"] & object>, string, number, string | undefined][] = [
    ["newer than what is stored", { resourceVersion: "1000" }, "1001", 0, undefined],
    ["as new", { resourceVersion: "1000" }, "1000", 0, undefined],
    ["older", { resourceVersion: "1000" }, "999", 0, "StalePosition"],
    ["older as a number, newer as a text", { resourceVersion: "1000" }, "99", 0, "StalePosition"],
    ["one shard older", { resourceVersion: "1000,2000" }, "1500,1999", 0, "StalePosition"],
    ["every shard as new", { resourceVersion: "1000,2000" }, "1500,2000", 0, undefined],
    ["more shards than before, all newer than the newest", { resourceVersion: "1000" }, "1000,1001", 0, undefined],
    ["more shards than before, one older", { resourceVersion: "1000,2000" }, "2000,2000,1999", 0, "StalePosition"],
    ["versions that can't be compared", { resourceVersion: "abc" }, "99", 0, undefined],
    ["an epoch that was not adopted", { resourceVersion: "1000", epoch: 3 }, "2000", 2, "StaleEpoch"],
    ["an epoch that was adopted", { resourceVersion: "1000", epoch: 3 }, "2000", 3, undefined],
  ];
  test.each(cases)("%s", (_, aggregation, position, adoptedEpoch, expected) => {
    const stored = makeCell("a", 9, [bucket()], aggregation);
    const result = account({ stored, pods, position, adoptedEpoch });
    expect(result.refused).toBe(expected);
    expect(result.write).toBe(expected === undefined);
  });

  test("a raised epoch lets the position go back", () => {
    const stored = makeCell("a", 9, [], { resourceVersion: "1000" });
    const history = { lost: "CellRestored" as const, epoch: 1, hold: "CellRestored/t" };
    const result = account({ stored, pods, position: "500", history, adoptedEpoch: 1 });
    expect(result.refused).toBeUndefined();
    expect(result.entry.aggregation).toMatchObject({ resourceVersion: "500", epoch: 1, hold: "CellRestored/t" });
  });
});

describe("hold (design 5.4)", () => {
  test("ends with a LIST of a settle period after first sight that the snapshot has reached, and a new one starts it again", () => {
    const seen = new SeenTimes();
    const at = (monotonicMs: number, hold: string, sentMs: number): string | undefined =>
      account({ stored: makeCell("a", 0, [], { hold }), seen, monotonicMs, evidence: listed(sentMs) }).entry.aggregation
        ?.hold;
    expect(at(0, "Gone/1", 0)).toBe("Gone/1");
    expect(at(70_000, "Gone/2", 70_000)).toBe("Gone/2");
    expect(at(80_000, "Gone/2", SETTLE_MS)).toBe("Gone/2");
    expect(at(150_000, "Gone/2", 70_000 + SETTLE_MS - 1)).toBe("Gone/2");
    expect(at(150_000, "Gone/2", 70_000 + SETTLE_MS)).toBeUndefined();
  });

  test("asks for evidence", () => {
    const { wants } = account({ stored: makeCell("a", 0, [], { hold: "Gone/1" }), monotonicMs: 5 });
    expect(wants).toMatchObject({ evidenceAtMs: 5 + SETTLE_MS, listAtMs: 5 + SETTLE_MS });
  });
});

describe("what is wanted", () => {
  test("nothing when nothing waits", () => {
    expect(account({ pods: [makePod("x")] }).wants).toEqual({
      evidenceAtMs: undefined,
      listAtMs: undefined,
      records: [],
    });
  });

  test("a GET or a LIST for a pod that is alive, from a settle period after its newest admission on", () => {
    const seen = new SeenTimes();
    const pods = [makePod("x")];
    account({ stored: makeCell("a", 1, [bucket()]), pods, seen, monotonicMs: 10 });
    const { wants } = account({
      stored: makeCell("a", 1, packed([bucket({ nonce: "n,m" })])),
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
    expect(wants).toEqual({ evidenceAtMs: 30 + SETTLE_MS, listAtMs: undefined, records: [record] });
  });

  test("a LIST at once for a pod that is absent and of which no version is known", () => {
    const { wants } = account({ stored: makeCell("a", 1, [foreign()]), monotonicMs: 7 });
    expect(wants).toMatchObject({ evidenceAtMs: 8, listAtMs: 8 });
  });
});

describe("when to write", () => {
  const spec = makeSpec();
  const pods = [makePod("x")];
  const reasons = (options: AccountOptions): readonly string[] => account({ pods, ...options }).reasons;

  test.each<[string, AccountOptions, string[]]>([
    ["nothing changed, though the position moved", { stored: makeCell("a", 1), position: "2000" }, []],
    ["first count", { stored: undefined }, ["New", "Counts"]],
    ["first count of nothing", { stored: undefined, pods: [] }, ["Empty"]],
    ["another count", { stored: makeCell("a", 2) }, ["Counts"]],
    [
      "a count that upstream leaves out when it is 0",
      { stored: makeCell("a", 0, [], { readyReplicas: undefined }), pods: [] },
      [],
    ],
    ["a weight", { stored: makeCell("a", 1, [bucket({ counter: 0 })]) }, ["Weights"]],
    ["a settled record", { stored: makeCell("a", 1, [bucket({ podUID: "gone" })]) }, ["Settled"]],
    ["another spec", { stored: makeCell("a", 1, [], { specHash: "other" }) }, ["Spec"]],
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

  test("what webhooks judge maturity by", () => {
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

  test("accounting for what was accounted for changes nothing", () => {
    const buckets = [
      bucket(),
      bucket({ podUID: "gone", podName: "gone", podResourceVersion: "9000" }),
      foreign({ podUID: "uid-y" }),
    ];
    const options = { pods: [makePod("x"), makePod("y", { readyForSeconds: undefined })], spec };
    const first = account({ ...options, stored: makeCell("a", 7, buckets) });
    expect(first.write).toBe(true);
    const second = account({ ...options, stored: first.entry });
    expect(second.reasons).toEqual([]);
    expect(second.entry).toEqual(first.entry);
  });
});

describe("the entry", () => {
  test("says counts, position, spec, epoch and times, and keeps what it does not know", () => {
    const stored = { ...makeCell("a", 1, [], { extra: 1 }), note: "kept", admissionHistory: { buckets: [], more: 2 } };
    const pods = [
      makePod("x"),
      makePod("y", { phase: "Pending", readyForSeconds: undefined, scheduled: false }),
      makePod("z", { terminating: true }),
    ];
    const { entry } = account({ stored, pods, position: "1234", nowMs: NOW_MS, lastEventMs: NOW_MS - 5 });
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
    const result = account({
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
  });
});

describe("upstream's algorithms (design 5.6)", () => {
  const at = (offsetMs: number, rest: Partial<Bucket> = {}): Bucket =>
    bucket({ startTime: formatMs(NOW_MS + offsetMs), ...rest });
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
      expect(line(account({ algorithm, stored: makeCell("a", 1, [one]), pods: [makePod("x")] }))).toBe(expected);
    }
  });

  test("publish nothing that an upstream webhook would drop, and leave weights alone", () => {
    const result = account({ algorithm: "clock", stored: makeCell("a", 0, [at(1)]) });
    expect(result.entry.aggregation).not.toHaveProperty("resourceVersion");
    expect(result.entry.aggregation).not.toHaveProperty("specHash");
    expect(line(result)).toBe("keep DELETE w=1");
    expect(account({ algorithm: "clock", stored: result.entry }).write).toBe(false);
  });
});
