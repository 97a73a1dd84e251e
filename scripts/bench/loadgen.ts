/** Runs the load generator once and reads what it printed. */
import { spawn } from "node:child_process";

export interface LoadRun {
  readonly reviewsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly allowed: number;
  readonly refused: number;
  readonly errors: number;
  /** Status writes that the core's API server counted, successful and conflicting. */
  readonly writes: number;
  readonly conflicts: number;
  readonly output: string;
}

/** Arguments as the load generator takes them. Rejects when it fails or prints something else. */
export async function loadgen(binary: string, args: readonly string[]): Promise<LoadRun> {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  const match =
    /: ([\d.]+)\/s p50 (\S+) p90 (\S+) p99 (\S+) max (\S+) verdicts map\[(.*?)\] core status writes map\[(.*?)\]/.exec(
      output,
    );
  if (code !== 0 || match === null)
    throw new Error(`the load generator ended with code ${code}: ${output.slice(0, 2000)}`);
  const [, rate = "", p50 = "", , p99 = "", , verdicts = "", writes = ""] = match;
  const counts = (text: string): [string, number][] =>
    [...text.matchAll(/([A-Za-z][A-Za-z ]*\d*):([\d.e+]+)/g)].map((one) => [one[1] ?? "", Number(one[2])]);
  const sum = (pairs: [string, number][], wanted: (name: string) => boolean): number =>
    pairs.filter(([name]) => wanted(name)).reduce((total, [, count]) => total + count, 0);
  const verdict = counts(verdicts);
  const write = counts(writes).filter(([name]) => /^(PUT|PATCH|APPLY)/.test(name));
  return {
    reviewsPerSecond: Number(rate),
    p50Ms: durationMs(p50),
    p99Ms: durationMs(p99),
    allowed: sum(verdict, (name) => name === "allowed"),
    refused: sum(verdict, (name) => name.startsWith("refused")),
    errors: sum(verdict, (name) => name === "error" || name.startsWith("http")),
    writes: sum(write, (name) => name.endsWith("200")),
    conflicts: sum(write, (name) => name.endsWith("409")),
    output,
  };
}

/** Go's duration text in milliseconds. */
export function durationMs(text: string): number {
  const units: Record<string, number> = {
    h: 3_600_000,
    m: 60_000,
    s: 1000,
    ms: 1,
    µs: 0.001,
    μs: 0.001,
    us: 0.001,
    ns: 0.000001,
  };
  let total = 0;
  for (const [, value, unit] of text.matchAll(/([\d.]+)(h|ms|µs|μs|us|ns|m|s)/g))
    total += Number(value) * (units[unit ?? ""] ?? 0);
  return total;
}
