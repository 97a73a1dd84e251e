import { describe, expect, test } from "vitest";
import { Ledger } from "../../shared/decide/ledger/ledger.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Aggregation, Bucket, PodProtector } from "../../shared/schema/podprotector.ts";
import { aggregation, protector } from "../../test/support/webhook/fixtures.ts";
import { LostReservations } from "./lost-reservations.ts";

const TAG = "mine";
const at = "2026-01-01T00:00:00.000000Z";
const later = "2026-01-01T00:00:01.000000Z";
const own: Bucket = {
  startTime: at,
  podUID: "uid-a",
  podName: "a",
  operation: "DELETE",
  nonce: "mineAAAA",
  paid: true,
};
const other: Bucket = { ...own, podUID: "uid-b", podName: "b", nonce: "otherAAA" };
const EVICTED: Partial<Bucket> = { podUID: "uid-a", podName: "a", operation: "EVICT" };
const shared: Bucket = { ...own, nonce: "otherAAA,mineAAAA,otherAAB" };
const twice: Bucket = { ...own, nonce: "mineAAAA,mineAAAB" };
const many: Bucket = { ...own, nonce: "+,otherAAA,otherAAB" };
const range: Bucket = { startTime: at, endTime: at, counter: 3 };

function entry(buckets: Bucket[] | undefined, counts: Partial<Aggregation> = {}): ProtectorVersion {
  const object = protector(8);
  const cell = { cellID: "cell-1", aggregation: aggregation(10, { heartbeatTime: at, ...counts }) };
  const cells = buckets === undefined ? [] : [{ ...cell, admissionHistory: { buckets } }];
  const status: PodProtector["status"] = object.status && { ...object.status, cells };
  return new ProtectorVersion({ ...object, status }, 0);
}

describe("a later version lacks an own reservation", () => {
  test.each<[string, boolean, Bucket[], ProtectorVersion]>([
    ["that only a restore can have removed", true, [own], entry([])],
    ["one of several", true, [own, other], entry([other])],
    ["beside another replica's of the same pod", true, [own, { ...other, ...EVICTED }], entry([])],
    ["that other requests share", true, [shared], entry([])],
    ["of a pod that an older one is left of", true, [twice], entry([own])],
    ["and has another operation's of its pod", true, [own], entry([{ ...other, ...EVICTED }])],
    ["it is one of more than a record lists", false, [own], entry([many])],
    ["and another replica has put the cell on hold", true, [own], entry([], { hold: "WentBack/x" })],
    ["none is missing", false, [own], entry([own, other])],
    ["another request refreshed it", false, [own], entry([shared])],
    ["it was another replica's, which may have rolled it back", false, [other], entry([])],
    ["the aggregator may have settled it", false, [own], entry([], { heartbeatTime: later })],
    ["its whole cell was removed", false, [own], entry(undefined)],
    ["an upstream webhook has packed it into a range", false, [own], entry([range])],
    ["the count is of a later position", false, [own], entry([], { heartbeatTime: later, resourceVersion: "101" })],
    ["the count went back", true, [own], entry([], { heartbeatTime: later, resourceVersion: "99" })],
    ["the count of one shard went back", true, [], entry([], { heartbeatTime: later, resourceVersion: "100,99" })],
    [
      "the count begins a new epoch",
      false,
      [own],
      entry([], { heartbeatTime: later, resourceVersion: "99", epoch: 1 }),
    ],
    ["the entry has no count any more", false, [own], entry([], { heartbeatTime: later, resourceVersion: undefined })],
  ])("%s: %s", (_, isLost, before, after) => {
    expect(new LostReservations(TAG).isLost(entry(before), after)).toBe(isLost);
  });

  describe.each([0, 1, 2])("with a compactThreshold of %i", (compactThreshold) => {
    const stored = (buckets: Bucket[]): ProtectorVersion => entry(Ledger.parse(buckets).encode(compactThreshold));
    test.each<[string, boolean, Bucket[], Bucket[]]>([
      ["that only a restore can have removed", true, [own], []],
      ["one of several", true, [own, other], [other]],
      ["none is missing", false, [own], [own, other]],
      ["of a pod that an older one is left of", true, [twice], [own]],
      ["another request refreshed it", false, [own], [shared]],
      ["it was another replica's, which may have rolled it back", false, [other], []],
    ])("%s: %s", (_, isLost, before, after) => {
      expect(new LostReservations(TAG).isLost(stored(before), stored(after))).toBe(isLost);
    });

    test("it was packed before, and is plain now", () => {
      expect(new LostReservations(TAG).isLost(stored([own]), entry([own]))).toBe(false);
      expect(new LostReservations(TAG).isLost(stored([own]), entry([{ ...own, podUID: "uid-c" }]))).toBe(true);
    });
  });

  test("the count went back in a later epoch", () => {
    const after = entry([], { heartbeatTime: later, resourceVersion: "99", epoch: 1 });
    expect(new LostReservations(TAG).isLost(entry([own], { epoch: 1 }), after)).toBe(true);
  });

  test("an upstream aggregator may have settled it: its writes may look the same", () => {
    const byUpstream = { heartbeatTime: undefined };
    expect(new LostReservations(TAG).isLost(entry([own], byUpstream), entry([], byUpstream))).toBe(false);
  });

  test("this replica has rolled it back", () => {
    const lost = new LostReservations(TAG);
    lost.withdraw("mineAAAA");
    expect(lost.isLost(entry([own]), entry([]))).toBe(false);
  });

  test("this replica has rolled back one of two admissions that share it: the other one keeps it", () => {
    const lost = new LostReservations(TAG);
    const before = entry([twice]);
    lost.withdraw("mineAAAB");
    expect([lost.isLost(before, entry([own])), lost.isLost(before, entry([]))]).toEqual([false, true]);
    lost.withdraw("mineAAAA");
    expect(lost.isLost(before, entry([]))).toBe(false);
  });
});
