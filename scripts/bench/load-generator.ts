/** Builds and runs the load generator of `loadgen/`. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import * as v from "valibot";

const run = promisify(execFile);

const Report = v.object({
  mode: v.string(),
  requestsPerSecond: v.number(),
  p50Ms: v.number(),
  p99Ms: v.number(),
  verdicts: v.record(v.string(), v.number()),
  statusWrites: v.record(v.string(), v.number()),
  messages: v.record(v.string(), v.string()),
});

export interface LoadRun {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly allowed: number;
  readonly refused: number;
  readonly errors: number;
  /** Status writes that the core apiserver counted, successful and conflicting. */
  readonly writes: number;
  readonly conflicts: number;
  /** The line that the load generator printed. */
  readonly output: string;
}

/** Resolves with the path of the binary; rejects with the compiler's message. */
export async function buildLoadGenerator(directory: string): Promise<string> {
  const binary = join(directory, "loadgen");
  await run("go", ["build", "-o", binary, "."], { cwd: join(import.meta.dirname, "loadgen") });
  return binary;
}

/** Runs it once, with its own flags. Rejects when it fails. */
export async function generateLoad(binary: string, args: readonly string[]): Promise<LoadRun> {
  const { stdout } = await run(binary, args);
  const report = v.parse(v.pipe(v.string(), v.parseJson(), Report), stdout);
  const sum = (counts: Readonly<Record<string, number>>, wanted: RegExp): number =>
    Object.entries(counts).reduce((total, [name, count]) => total + (wanted.test(name) ? count : 0), 0);
  return {
    ...report,
    allowed: sum(report.verdicts, /^allowed/),
    refused: sum(report.verdicts, /^refused/),
    errors: sum(report.verdicts, /^(error|http)/),
    writes: sum(report.statusWrites, /^(PUT|PATCH|APPLY) 200/),
    conflicts: sum(report.statusWrites, /^(PUT|PATCH|APPLY) 409/),
    output: stdout,
  };
}
