import { expect, test } from "vitest";
import { bucketsOf, cellUpdate, makeCell, makePod, NO_EVIDENCE } from "../../../test/support/decide/fixtures.ts";
import { makeBucket, packed, settledLine } from "../../../test/support/decide/settling-fixtures.ts";
import { Ledger } from "../ledger/ledger.ts";
import { FirstSeenTimes } from "./first-seen.ts";

test("a packed record of a pod that was seen rests on the pod's own shard once the pod is gone", () => {
  const pod = makePod("x", { terminating: true });
  const shards = {
    stored: makeCell("a", 1, packed([makeBucket()]), { resourceVersion: "50" }),
    position: "50,101",
    positionOf: (uid: string | undefined) => (uid === pod.uid ? "101" : "50"),
  };
  const heard = (uid: string | undefined): number => (uid === pod.uid ? 2 : 0);
  const seen = new FirstSeenTimes();
  // The admission came after the pod's last event.
  const early = { ...shards, seen, pods: [pod], monotonicMs: 1, evidence: { ...NO_EVIDENCE, heardMs: () => 0 } };
  expect(settledLine(cellUpdate(early))).toBe("keep DELETE w=0");
  const gone = { ...shards, monotonicMs: 3, evidence: { ...NO_EVIDENCE, heardMs: heard } };
  expect(settledLine(cellUpdate({ ...gone, seen }))).toBe("DELETE R1");
  expect(settledLine(cellUpdate({ ...gone, seen: new FirstSeenTimes() }))).toBe("keep DELETE w=0");
  // The record left the history, and so did what was remembered of it.
  cellUpdate({ ...gone, seen, stored: makeCell("a", 1) });
  expect(settledLine(cellUpdate({ ...gone, seen, evidence: NO_EVIDENCE }))).toBe("keep DELETE w=0");
});

test("packed records of several pods each rest on the shard of their own pod", () => {
  const pods = ["x", "y"].map((name) => makePod(name, { terminating: true }));
  const buckets = ["x", "y"].map((name) => makeBucket({ podUID: `uid-${name}`, podName: name, nonce: name }));
  const shards = {
    stored: makeCell("a", 2, packed(buckets), { resourceVersion: "101,101" }),
    position: "101,101",
    positionOf: () => "101",
    seen: new FirstSeenTimes(),
  };
  expect(
    settledLine(cellUpdate({ ...shards, pods, monotonicMs: 1, evidence: { ...NO_EVIDENCE, heardMs: () => 0 } })),
  ).toBe("keep DELETE w=0, keep DELETE w=0");
  const heardMs = (uid: string | undefined): number => (uid === "uid-x" ? 2 : 0);
  const { entry } = cellUpdate({ ...shards, pods: [], monotonicMs: 3, evidence: { ...NO_EVIDENCE, heardMs } });
  expect([...Ledger.parse(bucketsOf(entry)).reservations()].map(({ podName }) => podName)).toEqual(["y"]);
});
