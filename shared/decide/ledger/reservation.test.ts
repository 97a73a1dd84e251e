import { expect, test } from "vitest";
import type { Operation } from "../../schema/podprotector.ts";
import {
  boundNonces,
  isPaidFor,
  mergeRecords,
  type ReservationRecord,
  refreshRecord,
  type Weight,
  withoutNonce,
} from "./reservation.ts";

const recordOf = (nonce: string, startMicros: number, more: Partial<ReservationRecord>): ReservationRecord => ({
  ...{ podResourceVersion: "7", podGeneration: undefined, nonces: [nonce], paid: false },
  ...{ startMicros, firstMicros: startMicros },
  ...more,
});

test.each<[string, Partial<ReservationRecord>, Partial<ReservationRecord>, Partial<ReservationRecord>]>([
  ["the later version", { podResourceVersion: "9" }, { podResourceVersion: "10" }, { podResourceVersion: "10" }],
  ["no version where one has none", {}, { podResourceVersion: undefined }, { podResourceVersion: undefined }],
  ["no version that can't be compared", {}, { podResourceVersion: "x" }, { podResourceVersion: undefined }],
  ["the later generation", { podGeneration: 3 }, { podGeneration: 4 }, { podGeneration: 4 }],
  ["the only generation", {}, { podGeneration: 3 }, { podGeneration: 3 }],
  ["the payment of one", {}, { paid: true }, { paid: true }],
  ["all admissions, and the first and the last time", {}, {}, { nonces: ["a", "b"], startMicros: 2, firstMicros: 1 }],
])("two records of one pod and operation come to %s, in either order", (_, some, others, expected) => {
  for (const [older, newer] of [[some, others] as const, [others, some] as const]) {
    const [first, second] = [recordOf("a", 1, older), recordOf("b", 2, newer)];
    expect(mergeRecords(first, second)).toMatchObject(expected);
    expect(mergeRecords(second, first)).toEqual(mergeRecords(first, second));
    const admission = { ...second, operation: "UPDATE", nonce: "b", atMicros: 2 } as const;
    expect(refreshRecord(first, admission)).toEqual(mergeRecords(first, second));
  }
});

test("a replica whose clock is behind makes no record newer, and none refreshable for longer", () => {
  const behind = { operation: "DELETE", nonce: "b", podResourceVersion: "7", podGeneration: undefined } as const;
  const refreshed = refreshRecord(recordOf("a", 9, {}), { ...behind, paid: false, atMicros: 5 });
  expect(refreshed).toMatchObject({ nonces: ["a", "b"], startMicros: 9, firstMicros: 5 });
});

test.each<[Operation, boolean, Weight, Operation, boolean]>([
  ["DELETE", true, 1, "DELETE", true],
  ["DELETE", true, 1, "EVICT", true],
  ["EVICT", true, 1, "DELETE", true],
  ["UPDATE", true, 1, "UPDATE", true],
  // The change itself settles a DELETE by R2, so it needs a record of its own.
  ["DELETE", true, 1, "UPDATE", false],
  ["EVICT", true, 1, "UPDATE", false],
  ["UPDATE", true, 1, "DELETE", false],
  ["DELETE", false, 1, "DELETE", false],
  ["DELETE", true, 0, "DELETE", false],
])("a record of %s, paid: %s, of weight %d, pays for %s: %s", (operation, paid, weight, asked, expected) => {
  const records = new Map([[operation, recordOf("a", 1, { paid })]]);
  expect(isPaidFor({ uid: "u", uidHash: undefined, podName: "p", weight, records }, asked)).toBe(expected);
});

test.each([
  [true, false, true],
  [true, true, false],
  [false, false, false],
  [false, true, false],
])("a record, paid: %s, without an admission that has paid: %s, is paid: %s", (paid, hasPaid, expected) => {
  const record = recordOf("a", 1, { nonces: ["a", "b"], paid });
  expect(withoutNonce(record, "a", hasPaid)).toEqual({ ...record, nonces: ["b"], paid: expected });
  expect(withoutNonce(record, "unknown", hasPaid)).toBe(record);
  expect(withoutNonce(recordOf("a", 1, { paid }), "a", hasPaid)).toBeUndefined();
});

test("admissions that are too many to name are said to have been, once", () => {
  const many = Array.from({ length: 1000 }, (_, index) => `n${index}`);
  const bound = boundNonces(many);
  expect(bound[0]).toBe("+");
  expect(many.slice(1 - bound.length)).toEqual(bound.slice(1));
  expect(boundNonces([...bound, "next"])).toEqual(["+", ...bound.slice(2), "next"]);
});
