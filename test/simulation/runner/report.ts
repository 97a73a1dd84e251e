/** Reports for people: the coverage of many runs, and the end of a failing run's trace. */
import { Coverage, type CoverageCounts } from "../judge/coverage.ts";
import type { RunResult } from "../world/run.ts";
import type { Shrunk } from "./shrink.ts";

const TRACE_LINES = 60;
const LINE_WIDTH = 240;

/** The coverage as lines, with a mark on rows at zero. */
export function coverageTable(counts: CoverageCounts): string[] {
  const lines: string[] = [];
  for (const [title, rows] of Object.entries(counts)) {
    lines.push(`${title}:`);
    for (const [name, count] of Object.entries(rows))
      lines.push(`  ${name.padEnd(44)} ${String(count).padStart(9)}${count === 0 ? "  <- never" : ""}`);
  }
  return lines;
}

/** Rows that no run has met. */
export function uncovered(counts: CoverageCounts): string[] {
  return Object.values(counts).flatMap((rows) =>
    Object.entries(rows)
      .filter(([, count]) => count === 0)
      .map(([name]) => name),
  );
}

export function addUp(results: Iterable<Pick<RunResult, "coverage">>): CoverageCounts {
  const sum = new Coverage();
  for (const { coverage } of results) sum.merge(coverage);
  return sum.counts();
}

/** The first violation, what happened before it, and the command that replays it. */
export function describeFailure({ options, result }: Shrunk): string[] {
  const [first] = result.violations;
  const without = [...(options.without ?? [])];
  const at = result.trace.findIndex((line) => line.includes("VIOLATION"));
  const end = at < 0 ? result.trace.length : at + 1;
  return [
    `seed ${result.seed}: ${first?.invariant} at ${first?.atMs} ms: ${first?.message}`,
    `  fails without: ${without.join(", ") || "-"}; size: ${JSON.stringify(options.size ?? { pods: 1, deletions: 1 })}`,
    ...result.trace.slice(Math.max(0, end - TRACE_LINES), end).map((line) => `  ${line.slice(0, LINE_WIDTH)}`),
    `  replay: npm run simulate -- --seed ${result.seed} --trace`,
  ];
}
