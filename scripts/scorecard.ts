/**
 * The kinds of lists, watches and writes that the tests made on a real apiserver: the sum of the counts by the proxies
 * of all test processes (`test/faults/proxy/scorecard.ts`). A kind that never occurred was never tested.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";

const Counts = v.record(v.string(), v.number());

/** The sum by row. */
export function sumScorecards(lines: readonly string[]): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const line of lines) {
    for (const [name, count] of Object.entries(v.parse(Counts, JSON.parse(line))))
      sums.set(name, (sums.get(name) ?? 0) + count);
  }
  return sums;
}

/** Prints the table of the files in a folder. Returns the rows at zero; missing files count as such a row. */
export function printScorecard(directory: string): readonly string[] {
  const files = globSync("*.ndjson", { cwd: directory }).map((file) => readFileSync(join(directory, file), "utf8"));
  const sums = sumScorecards(files.flatMap((text) => text.split("\n")).filter((line) => line !== ""));
  if (sums.size > 0) console.log("\n=== what the tests met on a real apiserver ===");
  for (const [name, count] of sums) console.log(`${String(count).padStart(7)}  ${name}`);
  if (sums.size === 0) return ["no proxy has counted anything"];
  return [...sums].filter(([, count]) => count === 0).map(([name]) => name);
}
