import { expect, test } from "vitest";
import { cellUpdate, makeCell, makePod, NO_EVIDENCE } from "../../../test/support/decide/fixtures.ts";
import { makeBucket, settledLine } from "../../../test/support/decide/settling-fixtures.ts";
import type { Pod } from "../../schema/pod.ts";
import type { Bucket } from "../../schema/podprotector.ts";
import { FirstSeenTimes } from "./first-seen.ts";

const update = makeBucket({ operation: "UPDATE", podGeneration: 1 });
const cases: [string, Bucket, Pod[], string][] = [
  ["R1", makeBucket(), [], "DELETE"],
  ["R2", makeBucket(), [makePod("x", { resourceVersion: "101" })], "DELETE"],
  ["UpdateDone", update, [makePod("x", { generation: 2 })], "UPDATE"],
];
test.each(cases)(
  "on a silent stream, %s waits for a message, or for a LIST, of after first sight",
  (rule, bucket, pods, operation) => {
    const options = { stored: makeCell("a", 1, [bucket]), pods, monotonicMs: 10, settledGeneration: () => 2 };
    const at = (heardMs: number, reachedSentMs: number | undefined) =>
      cellUpdate({ ...options, evidence: { ...NO_EVIDENCE, heardMs: () => heardMs, reachedSentMs } });
    const kept = `keep ${operation} w=${pods.length}`;
    expect(settledLine(at(10, undefined))).toBe(kept);
    expect(settledLine(at(10, 10))).toBe(kept);
    expect(at(10, 10).listDueMs).toBe(11);
    expect(settledLine(at(11, undefined))).toBe(`${operation} ${rule}`);
    expect(settledLine(at(10, 11))).toBe(`${operation} ${rule}`);
  },
);

test("R1 waits for a message of after first sight of the newest admission", () => {
  const seen = new FirstSeenTimes();
  const heardAt = (heardMs: number) => ({ seen, evidence: { ...NO_EVIDENCE, heardMs: () => heardMs } });
  cellUpdate({ ...heardAt(0), stored: makeCell("a", 1, [makeBucket()]), monotonicMs: 0 });
  const both = [makeBucket(), makeBucket({ operation: "EVICT", counter: 0, nonce: "m" })];
  const later = { stored: makeCell("a", 1, both), monotonicMs: 20 };
  expect(settledLine(cellUpdate({ ...heardAt(10), ...later }))).toBe("keep DELETE+EVICT w=0");
  expect(settledLine(cellUpdate({ ...heardAt(21), ...later }))).toBe("DELETE R1, EVICT R1");
});
