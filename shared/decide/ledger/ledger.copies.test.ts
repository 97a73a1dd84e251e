/** What a copy has of its original, and what is written of the same contents in another order. */
import { describe, expect, test } from "vitest";
import { makeBucket, packed } from "../../../test/support/decide/settling-fixtures.ts";
import type { Bucket } from "../../schema/podprotector.ts";
import { formatMs } from "../../schema/time.ts";
import { Ledger } from "./ledger.ts";

const at = (seconds: number): string => formatMs(seconds * 1_000);
const CHANGES: readonly [string, (ledger: Ledger) => void][] = [
  ["as it was read", () => {}],
  ["after its size was reckoned", (ledger) => void ledger.bytesAtMost],
  ["after an admission", (ledger) => void ledger.setWeight([...ledger.reservations()][0] ?? fail(), 0)],
];

function fail(): never {
  throw new Error("the ledger has no reservation");
}

test.each(CHANGES)("a copy reads like its original %s", (_, change) => {
  const unreadable = { startTime: at(9), packed: "?", counter: 3 };
  const ledger = Ledger.parse([...packed([makeBucket()]), makeBucket({ podUID: "uid-y", podName: "y" }), unreadable]);
  change(ledger);
  const copy = ledger.clone();
  const read = (one: Ledger): unknown[] => [
    ...[one.weight, one.size, one.unreadableBuckets, one.changed, one.bytesAtMost],
    ...[[...one.reservations()], one.encode(100)],
  ];
  expect(read(copy)).toEqual(read(ledger));
});

describe("what is written", () => {
  const range = (end: number, counter: number): Bucket => ({ startTime: at(1), endTime: at(end), counter });
  test.each<[string, Bucket[]]>([
    ["time ranges", [range(5, 1), range(3, 2), range(3, 1)]],
    ["packed pods of one name", ["a", "b", "c"].flatMap((podUID) => packed([makeBucket({ podUID })]))],
  ])("does not depend on the order of %s", (_, buckets) => {
    expect(Ledger.parse(buckets.toReversed()).encode(8)).toEqual(Ledger.parse(buckets).encode(8));
  });

  test("is plain from the newest on, until one has no room: all that are older are packed", () => {
    const bucket = (name: string, seconds: number, operation = "DELETE"): Bucket =>
      makeBucket({ podUID: `uid-${name}`, podName: name, startTime: at(seconds), operation });
    const given = [bucket("a", 3), bucket("b", 2), bucket("b", 2, "EVICT"), bucket("c", 1)];
    for (const buckets of [given, given.toReversed()]) {
      const [first, ...rest] = Ledger.parse(buckets).encode(3);
      expect(first).toMatchObject({ startTime: at(1), endTime: at(2), counter: 2 });
      expect(rest).toMatchObject([{ podUID: "uid-a" }]);
    }
  });
});

test("a packed text that weighs more than its counter weighs what it says, and is told of", () => {
  const [bucket] = packed([makeBucket()]);
  const ledger = Ledger.parse([{ ...bucket, startTime: at(1), counter: 0 }]);
  expect([ledger.weight, ledger.ranges.size, ledger.unreadableBuckets]).toEqual([1, 0, 1]);
});
