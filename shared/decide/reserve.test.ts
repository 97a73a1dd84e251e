import { describe, expect, test } from "vitest";
import { admit, makeCell, makePod, makeProtector, makeRequest } from "../../test/support/decide/fixtures.ts";
import { heldBucket, rangeBucket, stateOf, verdictLine } from "../../test/support/decide/quota-fixtures.ts";
import { OPERATIONS, type Operation } from "../schema/podprotector.ts";
import { decide, HARD_CAP_BYTES, PIN_CAP_BYTES } from "./quota.ts";
import { holdCell, holdsNonce, rollBack } from "./reserve.ts";
import { encodeStatus } from "./state/encode-status.ts";
import { cloneState } from "./state/protector-state.ts";

describe("limits", () => {
  test.each([
    ["no limit", undefined, "allow Reserved w=1 paid"],
    ["0 is no limit", 0, "allow Reserved w=1 paid"],
    ["negative is no limit", -1, "allow Reserved w=1 paid"],
    ["room for one more", 3, "allow Reserved w=1 paid"],
    ["no room", 2, "Busy ConcurrentLag"],
    ["long exceeded", 1, "Busy ConcurrentLag"],
  ])("maxConcurrentLag: %s", (_, maxConcurrentLag, expected) => {
    const config = maxConcurrentLag === undefined ? {} : { admissionHistoryConfig: { maxConcurrentLag } };
    const state = stateOf([makeCell("a", 50, [heldBucket("uid-1")]), makeCell("b", 50, [heldBucket("uid-2")])], config);
    expect(verdictLine(decide(state, makeRequest(makePod("x"))))).toBe(expected);
  });

  test("maxConcurrentLag does not stop a repeat, nor the payment for a pin that is within it", () => {
    const config = { admissionHistoryConfig: { maxConcurrentLag: 1 } };
    expect(
      verdictLine(decide(stateOf([makeCell("a", 9, [heldBucket("uid-x")])], config), makeRequest(makePod("x")))),
    ).toContain("Repeated");
    const pinned = stateOf([makeCell("a", 9, [heldBucket("uid-x", { paid: false })])], config);
    expect(verdictLine(decide(pinned, makeRequest(makePod("x"))))).toBe("allow Reserved w=1 paid");
  });

  test("maxConcurrentLag counts what weighs, by whichever criterion the request is decided", () => {
    const config = { admissionHistoryConfig: { maxConcurrentLag: 1 }, allowedHealthCriteria: ["Running" as const] };
    const held = (counter: number): string => {
      const state = stateOf([makeCell("a", 9, [heldBucket("uid-1", { counter })])], config);
      return verdictLine(decide(state, makeRequest(makePod("x"), { criterion: "Running" })));
    };
    expect(held(0)).toBe("allow Reserved w=1 paid");
    expect(held(1)).toBe("Busy ConcurrentLag");
  });

  /** More than any history holds. */
  const MANY = 10_000;
  test("a full history answers busy, pins first, and repeats still pass", () => {
    const state = stateOf([makeCell("empty", 0), makeCell("a", 100_000)]);
    const evict = { operation: "EVICT" as const };
    const unavailable = { readyForSeconds: undefined };
    let pins = 0;
    while (pins < MANY && admit(state, makeRequest(makePod(`pin-${pins}`, unavailable), evict)).allowed) pins++;
    expect(verdictLine(decide(state, makeRequest(makePod("another-pin", unavailable), evict)))).toBe(
      "Busy HistoryFull",
    );
    expect(verdictLine(decide(state, makeRequest(makePod("pin-0", unavailable), evict)))).toBe(
      "allow PinnedUnavailable w=0",
    );
    const forced = { ...evict, forced: true };
    expect(verdictLine(decide(state, makeRequest(makePod("another-pin", unavailable), forced)))).toBe("allow Forced");
    let reserved = 0;
    while (reserved < MANY && admit(state, makeRequest(makePod(`web-${reserved}`))).allowed) reserved++;
    expect(verdictLine(decide(state, makeRequest(makePod("another"))))).toBe("Busy HistoryFull");
    expect(verdictLine(decide(state, makeRequest(makePod("another"), { forced: true })))).toBe("allow Forced");
    expect(verdictLine(decide(state, makeRequest(makePod("web-0"))))).toContain("Repeated");
    expect(pins).toBeGreaterThan(2500);
    expect(reserved).toBeGreaterThan(500);
    const written = JSON.stringify(encodeStatus(state, undefined)).length;
    expect(written).toBeLessThan(HARD_CAP_BYTES);
    expect(PIN_CAP_BYTES).toBeLessThan(HARD_CAP_BYTES);
  });

  test.each([
    ["the capacity is at its minimum", [makeCell("a", 0)]],
    ["the cell is not counted", []],
    ["the cell is on hold", [makeCell("a", 9, [], { hold: "Gone/1" })]],
  ])("a forced deletion while %s is allowed without a record once the history is full", (_, cells) => {
    const state = stateOf(cells);
    for (let index = 0; index < MANY; index++) admit(state, makeRequest(makePod(`web-${index}`), { forced: true }));
    expect(verdictLine(decide(state, makeRequest(makePod("another"), { forced: true })))).toBe("allow Forced");
    expect(verdictLine(decide(state, makeRequest(makePod("web-0"), { forced: true })))).toContain("w=1");
    const ledger = state.cells.get("a")?.ledger;
    expect(ledger?.bytesAtMost).toBeLessThan(HARD_CAP_BYTES + 1024);
    expect(ledger?.bytesAtMost).toBeGreaterThan(PIN_CAP_BYTES + 1024);
    expect(ledger?.size).toBeGreaterThan(2500);
  });
});

test("the generation of a pod is recorded with a change, and with nothing else", () => {
  const recorded = OPERATIONS.map((operation) => {
    const state = stateOf([makeCell("a", 9)], { protectedOperations: ["DELETE", "EVICT", "UPDATE"] });
    admit(state, makeRequest(makePod("x", { generation: 7 }), { operation }));
    return [operation, state.cells.get("a")?.ledger.get("uid-x")?.records.get(operation)?.podGeneration];
  });
  expect(Object.fromEntries(recorded)).toEqual({ DELETE: undefined, EVICT: undefined, UPDATE: 7 });
});

describe("rolling back", () => {
  test("rolling back everything that was written restores the ledger", () => {
    const cells = [makeCell("a", 500, [heldBucket("uid-before", { counter: 0 }), rangeBucket(3)])];
    const state = stateOf(cells, { admissionHistoryConfig: { compactThreshold: 5 } });
    const before = state.cells.get("a")?.ledger.encode(0);
    const requests = Array.from({ length: 40 }, (_, index) => makeRequest(makePod(`p${index}`)));
    for (const request of requests) expect(admit(state, request).allowed).toBe(true);
    const read = stateOf(encodeStatus(state, undefined).cells);
    for (const { pod, nonce } of requests.toReversed()) rollBack(read, "a", pod.uid, "DELETE", nonce);
    expect(read.cells.get("a")?.ledger.encode(0)).toEqual(before);
  });

  test("a bucket that existed before, or that another review shares, stays", () => {
    const state = stateOf([makeCell("a", 9, [heldBucket("uid-x")])]);
    const [first, second] = [makeRequest(makePod("x")), makeRequest(makePod("x"))];
    admit(state, first);
    admit(state, second);
    rollBack(state, "a", "uid-x", "DELETE", first.nonce);
    expect(holdsNonce(state, "a", "uid-x", "DELETE", first.nonce)).toBe(false);
    expect(holdsNonce(state, "a", "uid-x", "DELETE", second.nonce)).toBe(true);
    rollBack(state, "a", "uid-x", "DELETE", second.nonce);
    expect(holdsNonce(state, "a", "uid-x", "DELETE", "before")).toBe(true);
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
  });

  test("what a rolled back admission has paid is nobody's", () => {
    const evict = (given: Parameters<typeof makePod>[1] = {}) =>
      makeRequest(makePod("x", given), { operation: "EVICT" });
    const state = stateOf([makeCell("a", 3)]);
    expect(verdictLine(admit(state, evict({ readyForSeconds: undefined })))).toMatch(/^allow PinnedUnavailable/);
    const paying = evict();
    expect(verdictLine(admit(state, paying))).toBe("allow Reserved w=1 paid");
    rollBack(state, "a", "uid-x", "EVICT", paying.nonce, true);
    // Another pod is lost.
    const [stored] = encodeStatus(state, undefined).cells;
    const left = stateOf([{ ...makeCell("a", 2), admissionHistory: stored?.admissionHistory }]);
    expect(verdictLine(decide(left, evict()))).toBe("Denial AtMinimum");
  });

  test.each([
    ["the payment first", true],
    ["the repeat first", false],
  ])("what a rolled back deletion has paid is left to no pin of an eviction that repeated it: %s", (_, isPaidFirst) => {
    const x = (operation: Operation, given: Parameters<typeof makePod>[1] = {}) =>
      makeRequest(makePod("x", given), { operation });
    const state = stateOf([makeCell("a", 3)]);
    expect(verdictLine(admit(state, x("EVICT", { readyForSeconds: undefined })))).toMatch(/^allow PinnedUnavailable/);
    const requests = [x("DELETE"), x("EVICT")];
    const admitted = requests.map((request) => ({ request, decision: admit(state, request) }));
    const lines = admitted.map(({ decision }) => verdictLine(decision));
    expect(lines).toEqual(["allow Reserved w=1 paid", "allow Repeated w=1 paid"]);
    // Another protector denies both.
    for (const { request, decision } of isPaidFirst ? admitted : admitted.toReversed()) {
      if (!decision.allowed || decision.write === "none") throw new Error("nothing was recorded");
      rollBack(state, "a", "uid-x", request.operation, request.nonce, decision.write.pays);
    }
    // Another pod is lost.
    const [stored] = encodeStatus(state, undefined).cells;
    const left = stateOf([{ ...makeCell("a", 2), admissionHistory: stored?.admissionHistory }]);
    expect(verdictLine(decide(left, x("EVICT")))).toBe("Denial AtMinimum");
  });

  test("rolling back an unknown admission changes nothing", () => {
    const state = stateOf([makeCell("a", 9, [heldBucket("uid-x")])]);
    rollBack(state, "a", "uid-x", "EVICT", "before");
    rollBack(state, "a", "uid-x", "DELETE", "unknown");
    rollBack(state, "a", "uid-y", "DELETE", "before");
    rollBack(state, "nowhere", "uid-x", "DELETE", "before");
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
    const state = stateOf([makeCell("a", 9), makeCell("b", 1, [heldBucket("uid-y")])]);
    const copy = cloneState(state);
    expect([...copy.cells]).toEqual([...state.cells]);
    admit(copy, makeRequest(makePod("x")));
    holdCell(copy, "a", "Gone/1");
    expect(state.cells.get("a")?.ledger.weight).toBe(0);
    expect(state.cells.get("a")?.isOnHold).toBe(false);
  });

  test("the weight that an aggregator changes between two tries is what counts", () => {
    const request = makeRequest(makePod("x"));
    const heavy = stateOf([makeCell("a", 2, [heldBucket("uid-x")])]);
    const light = stateOf([makeCell("a", 2, [heldBucket("uid-x", { counter: 0 })])]);
    expect([verdictLine(decide(heavy, request)), verdictLine(decide(light, request))]).toEqual([
      "allow Repeated w=1 paid",
      "Denial AtMinimum",
    ]);
  });
});

describe("the status that is written", () => {
  test("unknown fields, other cells and conditions are kept", () => {
    const cells = [{ ...makeCell("a", 9), colour: "blue" }, makeCell("b", 3, [heldBucket("uid-b")])];
    const protector = makeProtector(cells);
    const previous = { ...protector.status, cells, summary: { ...protector.status?.summary, extra: 1 }, note: "kept" };
    const state = stateOf(cells);
    admit(state, makeRequest(makePod("x")));
    const status = encodeStatus(state, previous as never);
    expect(status).toMatchObject({ note: "kept", summary: { extra: 1 } });
    expect(status.cells[0]).toMatchObject({ cellID: "a", colour: "blue", aggregation: cells[0]?.aggregation });
    expect(status.cells[1]).toBe(cells[1]);
  });

  test("the summary says what is counted, left, and allowed", () => {
    const state = stateOf([makeCell("a", 5, [heldBucket("uid-1")]), makeCell("b", 4, [], { hold: "Gone/1" })]);
    expect(encodeStatus(state, undefined).summary).toMatchObject({
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
    const status = encodeStatus(state, undefined);
    expect(status.cells.map(({ cellID, aggregation }) => [cellID, aggregation?.hold])).toEqual([
      ["a", "WentBack/1"],
      ["new", "WentBack/1"],
    ]);
    const read = stateOf(status.cells);
    expect(verdictLine(decide(read, makeRequest(makePod("x"))))).toBe("Busy OnHold");
    expect(verdictLine(decide(read, makeRequest(makePod("x"), { cell: "new" })))).toBe("Busy NotCounted");
  });
});
