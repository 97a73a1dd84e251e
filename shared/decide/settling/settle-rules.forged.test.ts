/** Reviews that a caller of the port makes up settle no record of a disruption that can still be committed. */
import { expect, test } from "vitest";
import { cellUpdate, makeCell, makePod, makeProtector, makeRequest } from "../../../test/support/decide/fixtures.ts";
import { makeBucket, packed, settledLine } from "../../../test/support/decide/settling-fixtures.ts";
import { Ledger } from "../ledger/ledger.ts";
import { decide } from "../quota.ts";
import { apply } from "../reserve.ts";
import { encodeStatus } from "../state/encode-status.ts";
import { parseProtector } from "../state/protector-state.ts";

test.each([
  ["before", ["forged", "x"]],
  ["after", ["x", "forged"]],
  ["before and after", ["forged", "x", "forged"]],
])("a review of the pod's UID under another name, %s the real one, in packed form", (_, names) => {
  const protector = makeProtector([makeCell("a", 3)], { admissionHistoryConfig: { compactThreshold: 0 } });
  const state = parseProtector(protector);
  for (const name of names) {
    const request = makeRequest(makePod(name, { uid: "uid-x" }));
    const decision = decide(state, request);
    expect(decision.allowed).toBe(true);
    apply(state, request, decision);
  }
  const [stored] = encodeStatus(state, protector.status).cells;
  const pods = ["x", "y", "z"].map((name) => makePod(name));
  expect(settledLine(cellUpdate({ stored, pods, position: "1000" }))).toBe("keep DELETE w=1");
});

test("a record that keeps its UID, beside a packed one of the pod under another name", () => {
  const buckets = [...packed([makeBucket({ podName: "forged" })]), makeBucket({ podName: "", nonce: "real" })];
  const ledger = Ledger.parse(buckets);
  expect(ledger.weight).toBe(1);
  const stored = makeCell("a", 3, ledger.encode(0));
  const pods = ["x", "y", "z"].map((name) => makePod(name));
  expect(settledLine(cellUpdate({ stored, pods, position: "1000" }))).toBe("keep DELETE w=1");
});

test("a review at an old version of a pod that is newer than the snapshot, beside the real one", () => {
  const buckets = [
    makeBucket({ operation: "EVICT", podResourceVersion: "1000" }),
    makeBucket({ operation: "DELETE", podResourceVersion: "1", counter: 0, nonce: "forged" }),
  ];
  const before = cellUpdate({ stored: makeCell("a", 2, buckets), pods: [makePod("y"), makePod("z")], position: "900" });
  expect(settledLine(before)).toBe("keep DELETE+EVICT w=0");
});
