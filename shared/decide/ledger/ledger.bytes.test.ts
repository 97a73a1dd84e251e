/**
 * The cap on the object's size rests on a number that is reckoned, not written (design 5.5): it may never be too small.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { record, reservations } from "../../../test/support/decide/arbitraries.ts";
import type { Operation } from "../../schema/podprotector.ts";
import { Ledger } from "./ledger.ts";
import type { Reservation, ReservationRecord } from "./reservation.ts";

function ledgerOf(given: readonly Reservation[]): Ledger {
  const ledger = Ledger.parse([]);
  for (const one of given) ledger.put(one);
  return ledger;
}

describe("the size of a ledger", () => {
  test("no more bytes are written than were reckoned with", () => {
    fc.assert(
      fc.property(reservations(30), fc.integer({ min: 0, max: 200 }), (given, compactThreshold) => {
        const ledger = ledgerOf(given);
        expect(JSON.stringify(ledger.encode(compactThreshold)).length).toBeLessThanOrEqual(ledger.bytesAtMost + 200);
      }),
    );
  });

  test("nor are they where each pod has several records", () => {
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
