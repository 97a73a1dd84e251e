/**
 * Histories that no component writes, and that the CRD admits: who has taken over the account of a cell fills the entry
 * of that cell up to what an object can hold, and every component of the other cells reads it with each version.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { reservationCount } from "../../../test/support/decide/arbitraries.ts";
import { makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import type { Bucket } from "../../schema/podprotector.ts";
import { encodeStatus } from "../state/encode-status.ts";
import { parseProtector } from "../state/protector-state.ts";
import { ByteWriter } from "./bytes.ts";
import { Ledger } from "./ledger.ts";
import { pack, unpack } from "./pack.ts";
import { hashUid, type Reservation } from "./reservation.ts";

const startTime = "2026-05-01T12:00:00Z";

/** As many pods of one hash, each with a name of its own. */
function colliding(count: number): Reservation[] {
  const record = { podResourceVersion: "7", podGeneration: undefined, nonces: ["abcdefgh"], paid: true };
  const records = new Map([["DELETE" as const, { ...record, startMicros: 5, firstMicros: 5 }]]);
  return Array.from({ length: count }, (_, pod) => {
    return { uid: undefined, uidHash: hashUid("u"), podName: `web-${pod.toString(36)}`, weight: 1, records };
  });
}

/** A packed reservation of weight 1 whose time has so many digits. */
function timeOf(digits: number): string {
  const text = new ByteWriter();
  text.unsigned(0);
  text.unsigned(1);
  text.byte(1 | 8);
  text.latin1("hashhash");
  text.token("abcdefgh");
  text.signed(7);
  for (let digit = 1; digit < digits; digit++) text.byte(128);
  text.byte(0);
  return `1;${text.toBase64url()}`;
}

test("time ranges without end are read and settled one by one, in less than their square", () => {
  const count = 400_000;
  const ledger = Ledger.parse(Array.from({ length: count }, () => ({ startTime })));
  expect(ledger.weight).toBe(count);
  for (const range of ledger.ranges) ledger.removeRange(range);
  expect([ledger.weight, [...ledger.ranges]]).toEqual([0, []]);
});

test("of packed pods of one hash a few are told apart, and all weigh what their counter says", () => {
  // As many as an object can hold.
  const packed = pack(colliding(35_000));
  const ledger = Ledger.parse([{ startTime, counter: 35_000, packed }]);
  expect(reservationCount(ledger)).toBe(8);
  expect([ledger.weight, ledger.unreadableBuckets]).toEqual([35_000, 1]);
  expect(Ledger.parse(ledger.encode(4)).weight).toBe(35_000);
});

test("packed pods are looked for among as many whose UID is known in less than their product", () => {
  const count = 100_000;
  const ledger = Ledger.parse(
    Array.from({ length: count }, (_, pod) => ({ startTime, podUID: `u${pod}`, operation: "DELETE", nonce: "a" })),
  );
  const [one] = colliding(1);
  if (one === undefined) throw new Error("no sample");
  const has = (uid: string, podName = one.podName): boolean =>
    ledger.find({ ...one, uidHash: hashUid(uid), podName }) !== undefined;
  let found = 0;
  for (let pod = 0; pod < count; pod++) if (has(`u${pod}`)) found++;
  expect([found, has("other")]).toEqual([count, false]);
  const admission = { podResourceVersion: "7", podGeneration: undefined, nonce: "b", paid: true, atMicros: 5 };
  ledger.admit("other", one.podName, { ...admission, operation: "DELETE" }, 1);
  expect([has("other"), has("other", "api-1")]).toEqual([true, false]);
  ledger.removeNonce("other", "DELETE", "b");
  expect(has("other")).toBe(false);
});

test("a version of a megabyte is no version", () => {
  const of = (podResourceVersion: string): Bucket => ({
    startTime,
    podUID: "u",
    operation: "DELETE",
    podResourceVersion,
  });
  const ledger = Ledger.parse([of("9".repeat(1_000_000)), of("1")]);
  // Rule R2 does not judge such a record, and the other records of the pod are not compared with it.
  expect(ledger.get("u")?.records.get("DELETE")?.podResourceVersion).toBeUndefined();
});

test("the counters of packed pods of one hash add up, written and read again", () => {
  const buckets = [3, 20, 9].map((count) => ({ startTime, counter: count, packed: pack(colliding(count)) }));
  const ledger = Ledger.parse(buckets);
  const read = Ledger.parse(ledger.encode(4));
  expect(read.weight).toBe(ledger.weight);
  expect(ledger.weight).toBeGreaterThanOrEqual(20);
});

test("the rest of a packed text that has a UID beside it weighs the same, written and read again", () => {
  const ledger = Ledger.parse([{ startTime, podUID: "u", counter: 5, packed: pack(colliding(2)) }]);
  expect(ledger.weight).toBe(5);
  expect(Ledger.parse(ledger.encode(4)).weight).toBe(5);
});

describe("a packed time of more digits than a number has", () => {
  test.each([60, 146, 160, 400])("%i digits", (digits) => {
    const packed = timeOf(digits);
    for (const { records } of unpack(packed) ?? [])
      for (const { startMicros } of records.values()) expect(startMicros).toBe(0);
    const protector = makeProtector([{ ...makeCell("a", 5), admissionHistory: { buckets: [{ startTime, packed }] } }]);
    const state = parseProtector(protector);
    expect(state.cells.get("a")?.ledger.weight).toBe(1);
    expect(() => state.cells.get("a")?.ledger.encode(0)).not.toThrow();
    expect(Number.isFinite(encodeStatus(state, protector.status).summary.maxLatencyMillis)).toBe(true);
  });
});

test("long UIDs that were hashed are not kept in memory", () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let uid = 0; uid < 200; uid++) hashUid(`${"u".repeat(1_000_000)}${uid}`);
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(50_000_000);
});
