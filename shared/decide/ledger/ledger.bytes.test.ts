/**
 * The cap on the size of an object (docs/design.md#history-size) rests on an estimate, which must never be too small.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ledgerOf, record, reservations } from "../../../test/support/decide/arbitraries.ts";
import type { Operation } from "../../schema/podprotector.ts";
import { formatMs } from "../../schema/time.ts";
import { Ledger } from "./ledger.ts";
import type { ReservationRecord } from "./reservation.ts";

describe("the size of a ledger", () => {
  test("never exceeds the estimate", () => {
    fc.assert(
      fc.property(reservations(30), fc.integer({ min: 0, max: 200 }), (given, compactThreshold) => {
        const ledger = ledgerOf(given);
        expect(JSON.stringify(ledger.encode(compactThreshold)).length).toBeLessThanOrEqual(ledger.bytesAtMost + 200);
      }),
    );
  });

  test("never exceeds the estimate where each pod has several records", () => {
    fc.assert(
      fc.property(reservations(30), fc.tuple(record, record, record), (given, [deleted, evicted, updated]) => {
        const all = new Map<Operation, ReservationRecord>([
          ["DELETE", deleted],
          ["EVICT", evicted],
          ["UPDATE", updated],
        ]);
        const ledger = ledgerOf(given.map((one) => ({ ...one, records: all })));
        expect(JSON.stringify(ledger.encode(200)).length).toBeLessThanOrEqual(ledger.bytesAtMost + 200);
      }),
    );
  });
});

test("an empty ledger takes nothing: an object has one for each cell", () => {
  expect(Ledger.parse([]).bytesAtMost).toBe(0);
});

test("time ranges count, as they come and go", () => {
  const ranges = Array.from({ length: 20 }, (_, index) => ({ startTime: formatMs(index * 1_000), counter: 2 }));
  const ledger = Ledger.parse(ranges);
  const before = ledger.bytesAtMost;
  expect(before).toBeGreaterThanOrEqual(JSON.stringify(ledger.encode(0)).length - 2);
  const [first] = ledger.ranges;
  if (first === undefined) throw new Error("the ledger has no range");
  ledger.removeRange(first);
  expect(ledger.bytesAtMost).toBe(Ledger.parse(ledger.encode(0)).bytesAtMost);
  expect(ledger.bytesAtMost).toBeLessThan(before);
  ledger.addRange(first);
  expect(ledger.bytesAtMost).toBe(before);
});

test("nonces that are not of this project count with their length", () => {
  const buckets = Array.from({ length: 100 }, (_, pod) => ({
    ...{ startTime: formatMs(pod * 1_000), podUID: `uid-${pod}`, podName: `web-${pod}`, operation: "DELETE" },
    nonce: Array.from({ length: 8 }, (_, index) => `${"another-component-".repeat(5)}${pod}-${index}`).join(","),
  }));
  const ledger = Ledger.parse(buckets);
  for (const compactThreshold of [0, 200])
    expect(JSON.stringify(ledger.encode(compactThreshold)).length).toBeLessThanOrEqual(ledger.bytesAtMost + 200);
});

test.each([
  ["names", "水".repeat(245), "7"],
  ["versions", "web-", "水".repeat(253)],
])("%s of forged reviews count with the bytes of their characters", (_, name, podResourceVersion) => {
  const ledger = Ledger.parse([]);
  const admission = { podResourceVersion, podGeneration: undefined, nonce: "abcdefgh", paid: false, atMicros: 5 };
  for (let pod = 0; pod < 300; pod++)
    ledger.admit(`uid-${pod}`, `${name}${pod}`, { ...admission, operation: "UPDATE" }, 0);
  expect(Buffer.byteLength(JSON.stringify(ledger.encode(0)))).toBeLessThanOrEqual(ledger.bytesAtMost + 200);
});
