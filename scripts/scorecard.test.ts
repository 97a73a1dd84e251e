import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { printScorecard, sumScorecards } from "./scorecard.ts";

test("the counts of all processes are summed, and what no process has met is missing", () => {
  const sums = sumScorecards(['{"list: 429":2,"watch: cut":0}', '{"list: 429":1,"watch: cut":0}']);
  expect(Object.fromEntries(sums)).toEqual({ "list: 429": 3, "watch: cut": 0 });
});

test.each<[string, readonly string[], readonly string[]]>([
  ["nothing is missing", ['{"a":1,"b":0}', '{"a":0,"b":2}'], []],
  ["a row is at zero", ['{"a":1,"b":0}', '{"a":0,"b":0}'], ["b"]],
  ["nobody has counted", [], ["no proxy has counted anything"]],
])("%s", (_, files, missing) => {
  const directory = mkdtempSync(join(tmpdir(), "podseidon-scorecard-test-"));
  const log = vi.spyOn(console, "log").mockImplementation(() => {});
  try {
    for (const [index, text] of files.entries()) writeFileSync(join(directory, `${index}.ndjson`), `${text}\n`);
    expect(printScorecard(directory)).toEqual(missing);
  } finally {
    log.mockRestore();
    rmSync(directory, { recursive: true, force: true });
  }
});
