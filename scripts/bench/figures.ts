/**
 * Figures of benchmarks: statistics, processor time and memory of a process, the webhook's goals, and the table that
 * shows them.
 */
import { readFileSync } from "node:fs";
import { columns } from "../kubectl-podseidon/output.ts";

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The value at rank `q` (0..1) of the sorted values; NaN without values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

export function ratio(value: number, baseline: number): string {
  return Number.isFinite(value / baseline) ? `${(value / baseline).toFixed(2)}x` : "-";
}

/** A Markdown table with aligned columns. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const [head = "", ...lines] = columns([header, ...rows], " | ").map((line) => `| ${line} |`);
  return [head, head.replace(/[^|]/g, "-"), ...lines].join("\n");
}

const CLOCK_TICKS_PER_SECOND = 100;

export interface ProcessFigures {
  /** User and system time so far. */
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly peakResidentBytes: number;
}

/** Reads /proc; throws when the process does not run. */
export function processFigures(pid: number): ProcessFigures {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The command's name may hold spaces: fields are counted after its closing parenthesis.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const ticks = Number(fields[11]) + Number(fields[12]);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const kilobytes = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? 0);
  return {
    cpuMs: (ticks * 1000) / CLOCK_TICKS_PER_SECOND,
    residentBytes: kilobytes("VmRSS") * 1024,
    peakResidentBytes: kilobytes("VmHWM") * 1024,
  };
}

interface Goal {
  /** The ratio to upstream's figure is at least this. */
  readonly least?: number;
  /** The ratio to upstream's figure is at most this. */
  readonly most?: number;
  /** The figure itself is at most this, in its unit. */
  readonly bound?: number;
}

/** By work and figure, as `webhook-bench.ts` names them. */
const GOALS: Readonly<Record<string, Readonly<Record<string, Goal>>>> = {
  none: { "reviews/s": { least: 1.2 }, "CPU us per review": { most: 0.7 } },
  hot3: { "reviews/s": { least: 2 }, "p99 ms": { most: 0.5 }, "writes + conflicts": { bound: 60 } },
  hot1: { "reviews/s": { least: 5 }, "p99 ms": { most: 0.2 } },
  wide: { "reviews/s": { least: 1 }, "p99 ms": { most: 1 } },
  reserved: { "object KiB": { bound: 100 }, "last against first": { bound: 4 } },
  memory: { "resident MB": { most: 1.5 } },
  free: { "p99 ms": { bound: 1000 } },
};

/**
 * Two cells of a table: the goal in words, and whether `value` reaches it. Empty without a goal, `-` without upstream.
 */
export function judge(goal: Goal | undefined, value: number, upstream: number): readonly [string, string] {
  if (goal === undefined) return ["", ""];
  const { least, most, bound } = goal;
  const ratioToUpstream = value / upstream;
  const words = bound !== undefined ? `<= ${bound}` : least !== undefined ? `>= ${least}x` : `<= ${most}x`;
  if (bound === undefined && !Number.isFinite(ratioToUpstream)) return [words, "-"];
  const reached =
    bound !== undefined
      ? value <= bound
      : ratioToUpstream >= (least ?? 0) && ratioToUpstream <= (most ?? Number.POSITIVE_INFINITY);
  return [words, reached ? "OK" : "MISSED"];
}

export const HEADER = ["work", "figure", "this project", "upstream", "ratio", "goal", "reached"];

interface Figure {
  /** A key of {@link GOALS}. */
  readonly work: string;
  readonly title: string;
  readonly name: string;
  readonly own: number;
  /** NaN without upstream. */
  readonly upstream: number;
  readonly digits: number;
}

/** One line below {@link HEADER}. */
export function row({ work, title, name, own, upstream, digits }: Figure): string[] {
  const shown = Number.isNaN(upstream) ? "-" : upstream.toFixed(digits);
  const goal = judge(GOALS[work]?.[name], own, upstream);
  return [title, name, own.toFixed(digits), shown, ratio(own, upstream), ...goal];
}
