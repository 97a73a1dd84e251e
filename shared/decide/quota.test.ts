import { describe, expect, test } from "vitest";
import {
  admit,
  makeCell,
  makePod,
  makeRequest,
  makeSpec,
  NOW_MS,
  type RequestOptions,
  SETTLE_MS,
} from "../../test/support/decide/fixtures.ts";
import { heldBucket, rangeBucket, stateOf, verdictLine } from "../../test/support/decide/quota-fixtures.ts";
import type { Bucket, CellStatus } from "../schema/podprotector.ts";
import { formatMs } from "../schema/time.ts";
import { type DisruptionRequest, decide } from "./quota.ts";
import { encodeStatus } from "./state/encode-status.ts";

/** Counted under another spec. */
const other = { specHash: "another" };

describe("quota of an available pod", () => {
  const cases: [string, number, Bucket[], string][] = [
    ["one more than the minimum is available", 3, [], "allow Reserved w=1 paid"],
    ["the minimum is available", 2, [], "Denial AtMinimum"],
    ["fewer than the minimum are available", 1, [], "Denial AtMinimum"],
    ["what is above the minimum is reserved", 3, [heldBucket("uid-other")], "Busy Reserved"],
    ["more is reserved than counted", 3, [rangeBucket(9)], "Busy Reserved"],
    ["the minimum is available and one reserved", 2, [heldBucket("uid-other")], "Denial AtMinimum"],
    ["what is reserved weighs nothing", 3, [heldBucket("uid-other", { counter: 0 })], "allow Reserved w=1 paid"],
    ["upstream reserved it in a range", 3, [rangeBucket(1)], "Busy Reserved"],
    ["in a plain bucket of upstream's", 3, [{ startTime: formatMs(NOW_MS), podUID: "uid-other" }], "Busy Reserved"],
    ["one of several is reserved", 4, [heldBucket("uid-other")], "allow Reserved w=1 paid"],
  ];
  test.each(cases)("%s", (_, available, buckets, expected) => {
    expect(verdictLine(decide(stateOf([makeCell("a", available, buckets)]), makeRequest(makePod("x"))))).toBe(expected);
  });

  test.each([
    [1, 1],
    [2, 1],
    [3, 2],
    [4, 2],
  ])("of %i, a caller that leaves half to others gets %i, and others the rest", (quota, share) => {
    const state = stateOf([makeCell("a", 2 + quota)], { minAvailable: 2 });
    const ask = (name: string, keepsShare: boolean): string =>
      verdictLine(admit(state, makeRequest(makePod(name), { keepsShare })));
    for (let index = 0; index < share; index++) expect(ask(`x${index}`, true)).toBe("allow Reserved w=1 paid");
    expect(ask("y", true)).toBe(share === quota ? "Busy Reserved" : "Busy OthersShare");
    expect(ask("x0", true)).toBe("allow Repeated w=1 paid");
    for (let index = share; index < quota; index++) expect(ask(`z${index}`, false)).toBe("allow Reserved w=1 paid");
    expect(ask("y", false)).toBe("Busy Reserved");
  });

  test("a caller that leaves half to others takes nothing of it for a pod that is subtracted already", () => {
    const state = stateOf([makeCell("a", 4, [heldBucket("uid-x", { paid: false })])], { minAvailable: 3 });
    const line = (pod: string): string => verdictLine(decide(state, makeRequest(makePod(pod), { keepsShare: true })));
    expect([line("x"), line("y")]).toEqual(["allow Reserved w=1 paid", "Busy Reserved"]);
  });

  test("what is reserved in a cell on hold enlarges no half that a caller leaves to others", () => {
    const cells = [makeCell("a", 4), makeCell("b", 9, [rangeBucket(9)], { hold: "Gone/1" })];
    const request = makeRequest(makePod("x"), { keepsShare: true });
    expect(decide(stateOf(cells), request)).toMatchObject({ allowed: true, reason: "Reserved" });
  });

  test("a cell that has been silent for hours is believed, until it is removed", () => {
    const silent = makeCell("b", 5, [], { heartbeatTime: formatMs(NOW_MS - 8 * 3_600_000) });
    const decided = (cells: CellStatus[]): string =>
      verdictLine(decide(stateOf(cells, { minAvailable: 5 }), makeRequest(makePod("x"))));
    expect(decided([makeCell("a", 5, [], {}, makeSpec({ minAvailable: 5 })), silent])).toBe("allow Reserved w=1 paid");
    expect(decided([makeCell("a", 5, [], {}, makeSpec({ minAvailable: 5 }))])).toBe("Denial AtMinimum");
  });

  test("a minimum of 0 promises nothing", () => {
    const state = stateOf([makeCell("a", 2)], { minAvailable: 0 });
    const verdicts = ["x", "y", "z"].map((name) => verdictLine(admit(state, makeRequest(makePod(name)))));
    const reserved = "allow Reserved w=1 paid";
    expect(verdicts).toEqual([reserved, reserved, "allow NothingPromised w=1"]);
  });

  test("a burst over two cells gets the quota and no more", () => {
    const state = stateOf([makeCell("a", 500), makeCell("b", 500)], { minAvailable: 800 });
    const verdicts = Array.from({ length: 1000 }, (_, index) =>
      verdictLine(admit(state, makeRequest(makePod(`p${index}`), { cell: index % 2 === 0 ? "a" : "b" }))),
    );
    expect(verdicts.filter((verdict) => verdict === "allow Reserved w=1 paid")).toHaveLength(200);
    expect(verdicts.filter((verdict) => verdict === "Busy Reserved")).toHaveLength(800);
  });

  test("a cell that reserves more than it has does not take from another", () => {
    const state = stateOf([makeCell("a", 1, [rangeBucket(50)]), makeCell("b", 3)]);
    expect(verdictLine(decide(state, makeRequest(makePod("x"), { cell: "b" })))).toBe("allow Reserved w=1 paid");
  });

  test("the facts name what the decision rests on", () => {
    const state = stateOf([makeCell("a", 3, [heldBucket("uid-other")]), makeCell("b", 1)]);
    const { facts } = decide(state, makeRequest(makePod("x")));
    expect(facts).toEqual({ minAvailable: 2, available: 4, unreliable: 0, reserved: 1, notReady: 0, estimated: 3 });
  });

  test("the facts name available pods that do not count", () => {
    const state = stateOf([makeCell("a", 3), makeCell("b", 2, [], { hold: "Gone/1" }), makeCell("c", 1, [], other)]);
    const { facts } = decide(state, makeRequest(makePod("x")));
    expect(facts).toEqual({ minAvailable: 2, available: 6, unreliable: 3, reserved: 0, notReady: 0, estimated: 3 });
  });

  describe("with pods that are counted and not Ready yet", () => {
    const ofOther = { allowedHealthCriteria: ["Ready" as const, "Running" as const] };
    const cases: [string, number, string, Bucket[], RequestOptions, string][] = [
      ["that are all to spare", 4, "2@1000", [], {}, "Busy NotReady"],
      ["of which some are to spare", 4, "1@1000", [], {}, "allow Reserved w=1 paid"],
      ["and a reservation", 4, "1@1000", [heldBucket("uid-other")], {}, "Busy NotReady"],
      ["and reservations of all to spare", 4, "1@1000", [rangeBucket(2)], {}, "Busy Reserved"],
      ["at another position", 4, "2@999", [], {}, "allow Reserved w=1 paid"],
      ["that nobody can read", 4, "some@1000", [], {}, "allow Reserved w=1 paid"],
      ["whose own reservation is paid for", 4, "2@1000", [heldBucket("uid-x")], {}, "allow Repeated w=1 paid"],
      ["and a minimum that is not met", 2, "2@1000", [], {}, "Denial AtMinimum"],
      ["asked by Ready", 4, "2@1000", [], { criterion: "Ready" }, "Busy NotReady"],
      ["asked by Running", 4, "2@1000", [], { criterion: "Running" }, "allow Reserved w=1 paid"],
    ];
    test.each(cases)("%s", (_, available, notReady, buckets, options, expected) => {
      const state = stateOf([makeCell("a", available, buckets, { notReady }, makeSpec(ofOther))], ofOther);
      expect(verdictLine(decide(state, makeRequest(makePod("x"), options)))).toBe(expected);
    });
  });
});

describe("which cells count", () => {
  const cases: [string, CellStatus[], string][] = [
    ["no entry", [makeCell("b", 9)], "Busy NotCounted"],
    [
      "an entry that only a webhook wrote",
      [makeCell("b", 9), { cellID: "a", admissionHistory: { buckets: [heldBucket("u")] } }],
      "Busy NotCounted",
    ],
    [
      "an entry with upstream's empty aggregation",
      [makeCell("b", 9), { cellID: "a", aggregation: { totalReplicas: 0, availableReplicas: 0, lastEventTime: null } }],
      "Busy NotCounted",
    ],
    ["on hold", [makeCell("a", 9, [], { hold: "Gone/1" })], "Busy OnHold"],
    [
      "another cell on hold contributes nothing",
      [makeCell("a", 2), makeCell("b", 9, [], { hold: "Gone/1" })],
      "Busy Reserved",
    ],
    [
      "another cell on hold is not needed",
      [makeCell("a", 3), makeCell("b", 9, [], { hold: "Gone/1" })],
      "allow Reserved w=1 paid",
    ],
    [
      "another cell with counts of no aggregator",
      [makeCell("a", 2), { cellID: "b", aggregation: { totalReplicas: 9, availableReplicas: 9 } }],
      "Busy Reserved",
    ],
    ["counted under another spec", [makeCell("a", 9, [], other)], "Busy Reserved"],
    [
      "counted under another spec, others suffice",
      [makeCell("a", 9, [], other), makeCell("b", 3)],
      "allow Reserved w=1 paid",
    ],
    [
      "counted by upstream",
      [makeCell("a", 3, [], { specHash: undefined, resourceVersion: undefined })],
      "allow Reserved w=1 paid",
    ],
  ];
  test.each(cases)("%s", (_, cells, expected) => {
    const clean = cells.map((cell) => JSON.parse(JSON.stringify(cell)) as CellStatus);
    expect(verdictLine(decide(stateOf(clean), makeRequest(makePod("x"))))).toBe(expected);
  });

  test.each([
    ["DELETE of an unavailable pod", { operation: "DELETE" }, { readyForSeconds: undefined }, "allow Unavailable"],
    ["EVICT of an unavailable pod", { operation: "EVICT" }, { readyForSeconds: undefined }, "Busy OnHold"],
    ["a terminating pod", { operation: "DELETE" }, { terminating: true }, "allow Terminating"],
  ] as const)("on hold, what needs no record passes and what needs one does not: %s", (_, request, pod, expected) => {
    const state = stateOf([makeCell("a", 9, [], { hold: "Gone/1" })]);
    expect(verdictLine(decide(state, makeRequest(makePod("x", pod), request)))).toBe(expected);
  });
});

describe("repeats", () => {
  const evict = { operation: "EVICT" as const };
  const cases: [string, number, Bucket[], RequestOptions, string][] = [
    ["paid and heavy: admitted whatever is left", 1, [heldBucket("uid-x")], {}, "allow Repeated w=1 paid"],
    ["a DELETE after a paid eviction", 1, [heldBucket("uid-x", evict)], {}, "allow Repeated w=1 paid"],
    ["an eviction after a paid DELETE", 1, [heldBucket("uid-x")], evict, "allow Repeated w=1 paid"],
    ["upstream's reservation", 1, [{ startTime: formatMs(NOW_MS), podUID: "uid-x" }], {}, "allow Repeated w=1 paid"],
    [
      "a heavy pin needs the estimate, and pays",
      3,
      [heldBucket("uid-x", { ...evict, counter: 1, paid: false })],
      evict,
      "allow Reserved w=1 paid",
    ],
    [
      "a heavy pin is not subtracted twice",
      4,
      [heldBucket("uid-x", { ...evict, paid: false }), heldBucket("uid-y")],
      evict,
      "allow Reserved w=1 paid",
    ],
    [
      "a heavy pin with too little left",
      2,
      [heldBucket("uid-x", { ...evict, paid: false })],
      evict,
      "Denial AtMinimum",
    ],
    [
      "an eviction's pin, then a DELETE: pays",
      3,
      [heldBucket("uid-x", { ...evict, paid: false })],
      {},
      "allow Reserved w=1 paid",
    ],
    [
      "an eviction's pin, then a DELETE, nothing left",
      3,
      [heldBucket("uid-x", { ...evict, paid: false }), heldBucket("uid-y")],
      {},
      "Busy Reserved",
    ],
    ["paid but without weight: needs quota again", 2, [heldBucket("uid-x", { counter: 0 })], {}, "Denial AtMinimum"],
    ["paid but without weight, quota left", 3, [heldBucket("uid-x", { counter: 0 })], {}, "allow Reserved w=1 paid"],
    [
      "a paid UPDATE does not pay for a DELETE",
      2,
      [heldBucket("uid-x", { operation: "UPDATE" })],
      {},
      "Denial AtMinimum",
    ],
    [
      "a paid UPDATE is subtracted once",
      3,
      [heldBucket("uid-x", { operation: "UPDATE" })],
      {},
      "allow Reserved w=1 paid",
    ],
    ["another pod of the same name", 2, [heldBucket("uid-x", { podUID: "uid-older" })], {}, "Denial AtMinimum"],
    [
      "first made two settle periods ago",
      9,
      [heldBucket("uid-x", { firstTime: formatMs(NOW_MS - 2 * SETTLE_MS - 1) })],
      {},
      "Busy RefreshedTooLong",
    ],
    [
      "first made just within two settle periods",
      1,
      [heldBucket("uid-x", { firstTime: formatMs(NOW_MS - 2 * SETTLE_MS) })],
      {},
      "allow Repeated w=1 paid",
    ],
    [
      "turning to the other operation does not restart the two settle periods",
      9,
      [heldBucket("uid-x", { ...evict, firstTime: formatMs(NOW_MS - 2 * SETTLE_MS - 1) })],
      {},
      "Busy RefreshedTooLong",
    ],
  ];
  test.each(cases)("%s", (_, available, buckets, request, expected) => {
    expect(verdictLine(decide(stateOf([makeCell("a", available, buckets)]), makeRequest(makePod("x"), request)))).toBe(
      expected,
    );
  });

  test("a repeat writes its nonce and keeps the larger version", () => {
    const state = stateOf([makeCell("a", 3)]);
    const admitted = (version: string): DisruptionRequest => {
      const request = makeRequest(makePod("x", { resourceVersion: version }));
      expect(admit(state, request).allowed).toBe(true);
      return request;
    };
    const nonces = [admitted("100"), admitted("300"), admitted("200")].map(({ nonce }) => nonce);
    const [stored] = encodeStatus(state, undefined).cells[0]?.admissionHistory?.buckets ?? [];
    expect(stored).toMatchObject({ podResourceVersion: "300", nonce: nonces.join(",") });
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
  });

  test("is recognised in a packed reservation too", () => {
    const cells = [makeCell("a", 3)];
    const state = stateOf(cells, { admissionHistoryConfig: { compactThreshold: 0 } });
    admit(state, makeRequest(makePod("x")));
    const status = encodeStatus(state, undefined);
    expect(status.cells[0]?.admissionHistory?.buckets?.[0]?.packed).toBeDefined();
    const read = stateOf(status.cells);
    expect(verdictLine(decide(read, makeRequest(makePod("x"))))).toBe("allow Repeated w=1 paid");
    expect(verdictLine(decide(read, makeRequest(makePod("x", { uid: "uid-newer" }))))).toBe("Busy Reserved");
  });
});

describe("pins", () => {
  const minReady = { minReadySeconds: 60 };
  const cutoff = { maturityCutoff: formatMs(NOW_MS - 60_000) };
  const spec = makeSpec(minReady);
  const immature = { readyForSeconds: 10 };

  const cases: [
    string,
    Partial<CellStatus["aggregation"] & object>,
    Parameters<typeof makePod>[1],
    RequestOptions,
    string,
  ][] = [
    ["Ready but not mature", cutoff, immature, {}, "allow PinnedImmature w=0"],
    [
      "an eviction of a pod that is Ready but not mature",
      cutoff,
      immature,
      { operation: "EVICT" },
      "allow PinnedImmature w=0",
    ],
    ["mature", cutoff, { readyForSeconds: 60 }, {}, "Denial AtMinimum"],
    [
      "a version that the snapshot does not know",
      cutoff,
      { ...immature, resourceVersion: "1001" },
      {},
      "Denial AtMinimum",
    ],
    [
      "exactly the version of the snapshot",
      cutoff,
      { ...immature, resourceVersion: "1000" },
      {},
      "allow PinnedImmature w=0",
    ],
    ["no cutoff published", {}, immature, {}, "Denial AtMinimum"],
    ["no position published", { ...cutoff, resourceVersion: "" }, immature, {}, "Denial AtMinimum"],
    ["versions that are no integers", { ...cutoff, resourceVersion: "abc" }, immature, {}, "Denial AtMinimum"],
    [
      "one shard has not reached the version",
      { ...cutoff, resourceVersion: "1000,99" },
      immature,
      {},
      "Denial AtMinimum",
    ],
    [
      "the first shard has not reached the version",
      { ...cutoff, resourceVersion: "99,1000" },
      immature,
      {},
      "Denial AtMinimum",
    ],
    [
      "every shard has reached the version",
      { ...cutoff, resourceVersion: "1000,100" },
      immature,
      {},
      "allow PinnedImmature w=0",
    ],
  ];
  test.each(cases)("maturity: %s", (_, aggregation, pod, request, expected) => {
    const state = stateOf([makeCell("a", 2, [], aggregation, spec)], minReady);
    expect(verdictLine(decide(state, makeRequest(makePod("x", pod), request)))).toBe(expected);
  });

  test("a cutoff that was published under another spec is not used", () => {
    const cells = [makeCell("a", 2, [], { ...cutoff, specHash: "another" }, spec), makeCell("b", 2, [], cutoff, spec)];
    expect(verdictLine(decide(stateOf(cells, minReady), makeRequest(makePod("x", immature))))).toBe("Busy Reserved");
  });

  test.each([
    ["known to the snapshot", "1000", "allow PinnedUnavailable w=0"],
    ["newer than the snapshot, which may count it", "1001", "allow PinnedUnavailable w=1"],
  ])("an eviction of an unavailable pod: %s", (_, resourceVersion, expected) => {
    const pod = makePod("x", { readyForSeconds: undefined, resourceVersion });
    expect(verdictLine(decide(stateOf([makeCell("a", 2)]), makeRequest(pod, { operation: "EVICT" })))).toBe(expected);
  });

  test("an eviction of an unavailable pod that a shard which lags may count", () => {
    const weighed = (position: string): string => {
      const state = stateOf([makeCell("a", 2, [], { resourceVersion: position })]);
      const pod = makePod("x", { readyForSeconds: undefined, resourceVersion: "1000" });
      return verdictLine(decide(state, makeRequest(pod, { operation: "EVICT" })));
    };
    expect(["999,1000", "1000,999"].map(weighed)).toEqual(Array(2).fill("allow PinnedUnavailable w=1"));
    expect(weighed("1000,1001")).toBe("allow PinnedUnavailable w=0");
  });

  test("a pin never makes a reservation lighter", () => {
    const state = stateOf([makeCell("a", 3, [heldBucket("uid-x")])]);
    admit(state, makeRequest(makePod("x", { readyForSeconds: undefined }), { operation: "EVICT" }));
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
  });

  test("a pin pays nothing: the DELETE that follows needs quota", () => {
    const state = stateOf([makeCell("a", 2)]);
    admit(state, makeRequest(makePod("x", { readyForSeconds: undefined }), { operation: "EVICT" }));
    expect(verdictLine(decide(state, makeRequest(makePod("x"))))).toBe("Denial AtMinimum");
  });
});
