import { expect, test } from "vitest";
import { makeBucket, packed } from "../../../test/support/decide/settling-fixtures.ts";
import { Ledger } from "./ledger.ts";
import type { Weight } from "./reservation.ts";

test.each<[Weight, Weight, Weight]>([
  [0, 0, 0],
  [0, 1, 1],
  [1, 0, 1],
])("a pod of weight %d that is admitted again with weight %d weighs %d", (first, second, expected) => {
  const ledger = Ledger.parse([]);
  const pin = { operation: "EVICT", podResourceVersion: "7", podGeneration: undefined, paid: false } as const;
  ledger.admit("uid-x", "x", { ...pin, nonce: "a", atMicros: 1 }, first);
  expect(ledger.weight).toBe(first);
  ledger.admit("uid-x", "x", { ...pin, nonce: "b", atMicros: 2 }, second);
  expect(ledger.weight).toBe(expected);
});

test.each([
  ["x", "x", 1],
  ["x", "", 1],
  ["", "x", 1],
  ["x", "y", 2],
])("a packed pod of name '%s' and a plain one of name '%s' and the same hash weigh %d", (podName, other, weight) => {
  const buckets = [...packed([makeBucket({ podName })]), makeBucket({ podName: other, nonce: "later" })];
  for (const ledger of [Ledger.parse(buckets), Ledger.parse(buckets.toReversed())])
    expect([ledger.weight, ledger.size]).toEqual([weight, weight]);
});

test("a pod of which two reviews gave different names has none: another pod may have either", () => {
  const ledger = Ledger.parse([]);
  const pin = { operation: "EVICT", podResourceVersion: "7", podGeneration: undefined, paid: false } as const;
  ledger.admit("uid-x", "x", { ...pin, nonce: "a", atMicros: 1 }, 1);
  expect(ledger.admit("uid-x", "forged", { ...pin, nonce: "b", atMicros: 2 }, 1).podName).toBeUndefined();
});

test("an admission in packed form is found and taken back beside a plain one of its pod under another name", () => {
  const ledger = Ledger.parse([...packed([makeBucket()]), makeBucket({ podName: "forged", nonce: "later" })]);
  expect(ledger.holdsNonce("uid-x", "DELETE", "n")).toBe(true);
  ledger.removeNonce("uid-x", "DELETE", "n");
  expect([...ledger.reservations()].map(({ podName }) => podName)).toEqual(["forged"]);
});
