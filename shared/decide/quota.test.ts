import { describe, expect, test } from "vitest";
import type { Bucket, CellStatus, PodProtectorSpec } from "../schema/podprotector.ts";
import {
  cloneState,
  type Decision,
  type DisruptionRequest,
  decide,
  encodeStatus,
  HARD_CAP_BYTES,
  holdCell,
  holdsNonce,
  PIN_CAP_BYTES,
  type ProtectorState,
  parseProtector,
  rollback,
} from "./quota.ts";
import {
  admit,
  makeCell,
  makePod,
  makeProtector,
  makeRequest,
  makeSpec,
  NOW_MS,
  type RequestOptions,
  SETTLE_MS,
} from "./test-fixtures.ts";
import { formatMs } from "./time.ts";

function stateOf(cells: CellStatus[], spec: Partial<PodProtectorSpec> = {}): ProtectorState {
  return parseProtector(makeProtector(cells, spec));
}

/** Verdict, reason or cause, and what is written, as one line. */
function line(decision: Decision): string {
  if (!decision.allowed) return `${decision.verdict} ${decision.cause}`;
  const { write } = decision;
  return `allow ${decision.reason}${write === "none" ? "" : ` w=${write.weight}${write.paid ? " paid" : ""}`}`;
}

const bucket = (uid: string, rest: Partial<Bucket> = {}): Bucket => ({
  startTime: formatMs(NOW_MS - 1000),
  podUID: uid,
  podName: uid.replace("uid-", ""),
  podResourceVersion: "90",
  operation: "DELETE",
  nonce: "before",
  paid: true,
  ...rest,
});
const range = (counter: number): Bucket => ({
  startTime: formatMs(NOW_MS - 2000),
  endTime: formatMs(NOW_MS - 1000),
  counter,
});

describe("quota of an available pod (design 5.3)", () => {
  const cases: [string, number, Bucket[], string][] = [
    ["one more than the minimum is available", 3, [], "allow Reserved w=1 paid"],
    ["the minimum is available", 2, [], "Denial AtMinimum"],
    ["fewer than the minimum are available", 1, [], "Denial AtMinimum"],
    ["what is above the minimum is reserved", 3, [bucket("uid-other")], "Busy Reserved"],
    ["more is reserved than there is", 3, [range(9)], "Busy Reserved"],
    ["the minimum is available and one reserved", 2, [bucket("uid-other")], "Denial AtMinimum"],
    ["what is reserved weighs nothing", 3, [bucket("uid-other", { counter: 0 })], "allow Reserved w=1 paid"],
    ["upstream reserved it in a range", 3, [range(1)], "Busy Reserved"],
    [
      "upstream reserved it in a plain bucket",
      3,
      [{ startTime: formatMs(NOW_MS), podUID: "uid-other" }],
      "Busy Reserved",
    ],
    ["one of several is reserved", 4, [bucket("uid-other")], "allow Reserved w=1 paid"],
  ];
  test.each(cases)("%s", (_, available, buckets, expected) => {
    expect(line(decide(stateOf([makeCell("a", available, buckets)]), makeRequest(makePod("x"))))).toBe(expected);
  });

  test("a minimum of 0 admits as many as are counted, not more", () => {
    const state = stateOf([makeCell("a", 2)], { minAvailable: 0 });
    const verdicts = ["x", "y", "z"].map((name) => line(admit(state, makeRequest(makePod(name)))));
    expect(verdicts).toEqual(["allow Reserved w=1 paid", "allow Reserved w=1 paid", "Busy Reserved"]);
  });

  test("a burst gets what there is and no more, over two cells", () => {
    const state = stateOf([makeCell("a", 500), makeCell("b", 500)], { minAvailable: 800 });
    const verdicts = Array.from({ length: 1000 }, (_, index) =>
      line(admit(state, makeRequest(makePod(`p${index}`), { cell: index % 2 === 0 ? "a" : "b" }))),
    );
    expect(verdicts.filter((verdict) => verdict === "allow Reserved w=1 paid")).toHaveLength(200);
    expect(verdicts.filter((verdict) => verdict === "Busy Reserved")).toHaveLength(800);
  });

  test("a cell that reserves more than it has does not take from another", () => {
    const state = stateOf([makeCell("a", 1, [range(50)]), makeCell("b", 3)]);
    expect(line(decide(state, makeRequest(makePod("x"), { cell: "b" })))).toBe("allow Reserved w=1 paid");
  });

  test("the facts say what the decision rests on", () => {
    const state = stateOf([makeCell("a", 3, [bucket("uid-other")]), makeCell("b", 1)]);
    const { facts } = decide(state, makeRequest(makePod("x")));
    expect(facts).toEqual({ minAvailable: 2, available: 4, reserved: 1, estimated: 3 });
  });
});

describe("which cells count (design 5.3, 5.4)", () => {
  const other = { specHash: "another" };
  const cases: [string, CellStatus[], string][] = [
    ["no entry", [makeCell("b", 9)], "Busy NotCounted"],
    [
      "an entry that only a webhook wrote",
      [makeCell("b", 9), { cellID: "a", admissionHistory: { buckets: [bucket("u")] } }],
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
      "another cell on hold is not missed",
      [makeCell("a", 3), makeCell("b", 9, [], { hold: "Gone/1" })],
      "allow Reserved w=1 paid",
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
    expect(line(decide(stateOf(clean), makeRequest(makePod("x"))))).toBe(expected);
  });

  test.each([
    ["DELETE of an unavailable pod", { operation: "DELETE" }, { readyForSeconds: undefined }, "allow Unavailable"],
    ["EVICT of an unavailable pod", { operation: "EVICT" }, { readyForSeconds: undefined }, "Busy OnHold"],
    ["a terminating pod", { operation: "DELETE" }, { terminating: true }, "allow Terminating"],
  ] as const)("on hold, what needs no record passes and what needs one does not: %s", (_, request, pod, expected) => {
    const state = stateOf([makeCell("a", 9, [], { hold: "Gone/1" })]);
    expect(line(decide(state, makeRequest(makePod("x", pod), request)))).toBe(expected);
  });
});

describe("repeats (design 5.3)", () => {
  const evict = { operation: "EVICT" as const };
  const cases: [string, number, Bucket[], RequestOptions, string][] = [
    ["paid and heavy: admitted whatever is left", 1, [bucket("uid-x")], {}, "allow Repeated w=1 paid"],
    ["a DELETE after a paid eviction", 1, [bucket("uid-x", evict)], {}, "allow Repeated w=1 paid"],
    ["an eviction after a paid DELETE", 1, [bucket("uid-x")], evict, "allow Repeated w=1 paid"],
    ["upstream's reservation", 1, [{ startTime: formatMs(NOW_MS), podUID: "uid-x" }], {}, "allow Repeated w=1 paid"],
    [
      "a heavy pin needs the estimate, and pays",
      3,
      [bucket("uid-x", { ...evict, counter: 1, paid: false })],
      evict,
      "allow Reserved w=1 paid",
    ],
    [
      "a heavy pin is not subtracted twice",
      4,
      [bucket("uid-x", { ...evict, paid: false }), bucket("uid-y")],
      evict,
      "allow Reserved w=1 paid",
    ],
    ["a heavy pin with too little left", 2, [bucket("uid-x", { ...evict, paid: false })], evict, "Denial AtMinimum"],
    [
      "an eviction's pin, then a DELETE: pays",
      3,
      [bucket("uid-x", { ...evict, paid: false })],
      {},
      "allow Reserved w=1 paid",
    ],
    [
      "an eviction's pin, then a DELETE, nothing left",
      3,
      [bucket("uid-x", { ...evict, paid: false }), bucket("uid-y")],
      {},
      "Busy Reserved",
    ],
    ["paid but without weight: needs quota again", 2, [bucket("uid-x", { counter: 0 })], {}, "Denial AtMinimum"],
    ["paid but without weight, quota left", 3, [bucket("uid-x", { counter: 0 })], {}, "allow Reserved w=1 paid"],
    ["a paid UPDATE does not pay for a DELETE", 2, [bucket("uid-x", { operation: "UPDATE" })], {}, "Denial AtMinimum"],
    ["a paid UPDATE is subtracted once", 3, [bucket("uid-x", { operation: "UPDATE" })], {}, "allow Reserved w=1 paid"],
    ["another pod of the same name", 2, [bucket("uid-x", { podUID: "uid-older" })], {}, "Denial AtMinimum"],
    [
      "first made two settle periods ago",
      9,
      [bucket("uid-x", { firstTime: formatMs(NOW_MS - 2 * SETTLE_MS - 1) })],
      {},
      "Busy RefreshedTooLong",
    ],
    [
      "first made just within two settle periods",
      1,
      [bucket("uid-x", { firstTime: formatMs(NOW_MS - 2 * SETTLE_MS) })],
      {},
      "allow Repeated w=1 paid",
    ],
    [
      "turning to the other operation does not restart the two settle periods",
      9,
      [bucket("uid-x", { ...evict, firstTime: formatMs(NOW_MS - 2 * SETTLE_MS - 1) })],
      {},
      "Busy RefreshedTooLong",
    ],
  ];
  test.each(cases)("%s", (_, available, buckets, request, expected) => {
    expect(line(decide(stateOf([makeCell("a", available, buckets)]), makeRequest(makePod("x"), request)))).toBe(
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
    const [stored] = encodeStatus(state, undefined, NOW_MS).cells[0]?.admissionHistory?.buckets ?? [];
    expect(stored).toMatchObject({ podResourceVersion: "300", nonce: nonces.join(",") });
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
  });

  test("is recognised in a packed reservation too", () => {
    const cells = [makeCell("a", 3)];
    const state = stateOf(cells, { admissionHistoryConfig: { compactThreshold: 0 } });
    admit(state, makeRequest(makePod("x")));
    const status = encodeStatus(state, undefined, NOW_MS);
    expect(status.cells[0]?.admissionHistory?.buckets?.[0]?.packed).toBeDefined();
    const read = stateOf(status.cells);
    expect(line(decide(read, makeRequest(makePod("x"))))).toBe("allow Repeated w=1 paid");
    expect(line(decide(read, makeRequest(makePod("x", { uid: "uid-newer" }))))).toBe("Busy Reserved");
  });
});

describe("pins (design 5.3)", () => {
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
      "every shard has reached the version",
      { ...cutoff, resourceVersion: "1000,100" },
      immature,
      {},
      "allow PinnedImmature w=0",
    ],
  ];
  test.each(cases)("maturity: %s", (_, aggregation, pod, request, expected) => {
    const state = stateOf([makeCell("a", 2, [], aggregation, spec)], minReady);
    expect(line(decide(state, makeRequest(makePod("x", pod), request)))).toBe(expected);
  });

  test("a cutoff that was published under another spec is not used", () => {
    const cells = [makeCell("a", 2, [], { ...cutoff, specHash: "another" }, spec), makeCell("b", 2, [], cutoff, spec)];
    expect(line(decide(stateOf(cells, minReady), makeRequest(makePod("x", immature))))).toBe("Busy Reserved");
  });

  test.each([
    ["known to the snapshot", "1000", "allow PinnedUnavailable w=0"],
    ["newer than the snapshot, which may count it", "1001", "allow PinnedUnavailable w=1"],
  ])("an eviction of an unavailable pod: %s", (_, resourceVersion, expected) => {
    const pod = makePod("x", { readyForSeconds: undefined, resourceVersion });
    expect(line(decide(stateOf([makeCell("a", 2)]), makeRequest(pod, { operation: "EVICT" })))).toBe(expected);
  });

  test("a pin never makes a reservation lighter", () => {
    const state = stateOf([makeCell("a", 3, [bucket("uid-x")])]);
    admit(state, makeRequest(makePod("x", { readyForSeconds: undefined }), { operation: "EVICT" }));
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
  });

  test("a pin is no payment: the DELETE that follows needs quota", () => {
    const state = stateOf([makeCell("a", 2)]);
    admit(state, makeRequest(makePod("x", { readyForSeconds: undefined }), { operation: "EVICT" }));
    expect(line(decide(state, makeRequest(makePod("x"))))).toBe("Denial AtMinimum");
  });
});

describe("limits (design 5.3, 5.5)", () => {
  test.each([
    ["no limit", undefined, "allow Reserved w=1 paid"],
    ["0 is no limit", 0, "allow Reserved w=1 paid"],
    ["negative is no limit", -1, "allow Reserved w=1 paid"],
    ["room for one more", 3, "allow Reserved w=1 paid"],
    ["no room", 2, "Busy ConcurrentLag"],
    ["long exceeded", 1, "Busy ConcurrentLag"],
  ])("maxConcurrentLag: %s", (_, maxConcurrentLag, expected) => {
    const config = maxConcurrentLag === undefined ? {} : { admissionHistoryConfig: { maxConcurrentLag } };
    const state = stateOf([makeCell("a", 50, [bucket("uid-1")]), makeCell("b", 50, [bucket("uid-2")])], config);
    expect(line(decide(state, makeRequest(makePod("x"))))).toBe(expected);
  });

  test("maxConcurrentLag does not stop a repeat, nor the payment for a pin that is within it", () => {
    const config = { admissionHistoryConfig: { maxConcurrentLag: 1 } };
    expect(line(decide(stateOf([makeCell("a", 9, [bucket("uid-x")])], config), makeRequest(makePod("x"))))).toContain(
      "Repeated",
    );
    const pinned = stateOf([makeCell("a", 9, [bucket("uid-x", { paid: false })])], config);
    expect(line(decide(pinned, makeRequest(makePod("x"))))).toBe("allow Reserved w=1 paid");
  });

  /** More than any history holds. */
  const MANY = 10_000;
  test("a full history answers busy, pins first, and repeats still pass", () => {
    const state = stateOf([makeCell("a", 100_000)]);
    const evict = { operation: "EVICT" as const };
    const unavailable = { readyForSeconds: undefined };
    let pins = 0;
    while (pins < MANY && admit(state, makeRequest(makePod(`pin-${pins}`, unavailable), evict)).allowed) pins++;
    expect(line(decide(state, makeRequest(makePod("another-pin", unavailable), evict)))).toBe("Busy HistoryFull");
    expect(line(decide(state, makeRequest(makePod("pin-0", unavailable), evict)))).toBe("allow PinnedUnavailable w=0");
    let reserved = 0;
    while (reserved < MANY && admit(state, makeRequest(makePod(`web-${reserved}`))).allowed) reserved++;
    expect(line(decide(state, makeRequest(makePod("another"))))).toBe("Busy HistoryFull");
    expect(line(decide(state, makeRequest(makePod("another"), { forced: true })))).toBe("allow Forced");
    expect(line(decide(state, makeRequest(makePod("web-0"))))).toContain("Repeated");
    expect(pins).toBeGreaterThan(2500);
    expect(reserved).toBeGreaterThan(500);
    const written = JSON.stringify(encodeStatus(state, undefined, NOW_MS)).length;
    expect(written).toBeLessThan(HARD_CAP_BYTES);
    expect(PIN_CAP_BYTES).toBeLessThan(HARD_CAP_BYTES);
  });
});

describe("taking back and keeping (design 5.7)", () => {
  test("rolling back everything that was written restores the ledger", () => {
    const cells = [makeCell("a", 500, [bucket("uid-before", { counter: 0 }), range(3)])];
    const state = stateOf(cells, { admissionHistoryConfig: { compactThreshold: 5 } });
    const before = state.cells.get("a")?.ledger.encode(0);
    const requests = Array.from({ length: 40 }, (_, index) => makeRequest(makePod(`p${index}`)));
    for (const request of requests) expect(admit(state, request).allowed).toBe(true);
    const read = stateOf(encodeStatus(state, undefined, NOW_MS).cells);
    for (const { pod, nonce } of requests.toReversed()) rollback(read, "a", pod.uid, "DELETE", nonce);
    expect(read.cells.get("a")?.ledger.encode(0)).toEqual(before);
  });

  test("a bucket that existed before, or that another review shares, stays", () => {
    const state = stateOf([makeCell("a", 9, [bucket("uid-x")])]);
    const [first, second] = [makeRequest(makePod("x")), makeRequest(makePod("x"))];
    admit(state, first);
    admit(state, second);
    rollback(state, "a", "uid-x", "DELETE", first.nonce);
    expect(holdsNonce(state, "a", "uid-x", "DELETE", first.nonce)).toBe(false);
    expect(holdsNonce(state, "a", "uid-x", "DELETE", second.nonce)).toBe(true);
    rollback(state, "a", "uid-x", "DELETE", second.nonce);
    expect(holdsNonce(state, "a", "uid-x", "DELETE", "before")).toBe(true);
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
  });

  test("rolling back what is not there changes nothing", () => {
    const state = stateOf([makeCell("a", 9, [bucket("uid-x")])]);
    rollback(state, "a", "uid-x", "EVICT", "before");
    rollback(state, "a", "uid-x", "DELETE", "unknown");
    rollback(state, "a", "uid-y", "DELETE", "before");
    rollback(state, "nowhere", "uid-x", "DELETE", "before");
    expect(state.cells.get("a")?.ledger.changed).toBe(false);
  });

  test("deciding changes nothing, and applying twice is applying once", () => {
    const state = stateOf([makeCell("a", 9)]);
    const request = makeRequest(makePod("x"));
    decide(state, request);
    expect(state.cells.get("a")?.ledger.changed).toBe(false);
    admit(state, request);
    const once = state.cells.get("a")?.ledger.encode(100);
    admit(state, request);
    expect(state.cells.get("a")?.ledger.encode(100)).toEqual(once);
  });

  test("a clone is independent of its original", () => {
    const state = stateOf([makeCell("a", 9)]);
    const copy = cloneState(state);
    admit(copy, makeRequest(makePod("x")));
    holdCell(copy, "a", "Gone/1");
    expect(state.cells.get("a")?.ledger.weight).toBe(0);
    expect(state.cells.get("a")?.isOnHold).toBe(false);
  });

  test("the weight that an aggregator changes between two tries is what counts", () => {
    const request = makeRequest(makePod("x"));
    const heavy = stateOf([makeCell("a", 2, [bucket("uid-x")])]);
    const light = stateOf([makeCell("a", 2, [bucket("uid-x", { counter: 0 })])]);
    expect([line(decide(heavy, request)), line(decide(light, request))]).toEqual([
      "allow Repeated w=1 paid",
      "Denial AtMinimum",
    ]);
  });
});

describe("the status that is written", () => {
  test("unknown fields, other cells and conditions are kept", () => {
    const cells = [{ ...makeCell("a", 9), colour: "blue" }, makeCell("b", 3, [bucket("uid-b")])];
    const protector = makeProtector(cells);
    const previous = { ...protector.status, cells, summary: { ...protector.status?.summary, extra: 1 }, note: "kept" };
    const state = stateOf(cells);
    admit(state, makeRequest(makePod("x")));
    const status = encodeStatus(state, previous as never, NOW_MS);
    expect(status).toMatchObject({ note: "kept", summary: { extra: 1 } });
    expect(status.cells[0]).toMatchObject({ cellID: "a", colour: "blue", aggregation: cells[0]?.aggregation });
    expect(status.cells[1]).toBe(cells[1]);
  });

  test("the summary says what is counted, left, and allowed", () => {
    const state = stateOf([makeCell("a", 5, [bucket("uid-1")]), makeCell("b", 4, [], { hold: "Gone/1" })]);
    expect(encodeStatus(state, undefined, NOW_MS).summary).toMatchObject({
      totalReplicas: 9,
      aggregatedAvailableReplicas: 9,
      estimatedAvailableReplicas: 4,
      aggregatedReady: 9,
      disruptionsAllowed: 2,
    });
  });

  test("a hold covers a cell without an entry, so that its aggregator learns of it", () => {
    const state = stateOf([makeCell("a", 9)]);
    holdCell(state, "a", "WentBack/1");
    holdCell(state, "new", "WentBack/1");
    const status = encodeStatus(state, undefined, NOW_MS);
    expect(status.cells.map(({ cellID, aggregation }) => [cellID, aggregation?.hold])).toEqual([
      ["a", "WentBack/1"],
      ["new", "WentBack/1"],
    ]);
    const read = stateOf(status.cells);
    expect(line(decide(read, makeRequest(makePod("x"))))).toBe("Busy OnHold");
    expect(line(decide(read, makeRequest(makePod("x"), { cell: "new" })))).toBe("Busy NotCounted");
  });
});
