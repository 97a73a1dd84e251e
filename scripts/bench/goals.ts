/** What the webhook is to reach against upstream's in one run, whether a figure does, and the table that says so. */
import { ratio } from "./table.ts";

export interface Goal {
  /** The ratio to upstream's figure is at least this. */
  readonly least?: number;
  /** The ratio to upstream's figure is at most this. */
  readonly most?: number;
  /** The figure itself is at most this, in its unit. */
  readonly bound?: number;
}

/** By work and figure, as `webhook-bench.ts` names them. */
export const GOALS: Readonly<Record<string, Readonly<Record<string, Goal>>>> = {
  none: { "reviews/s": { least: 1.2 }, "CPU us per review": { most: 0.7 } },
  hot3: { "reviews/s": { least: 2 }, "p99 ms": { most: 0.5 }, "writes + conflicts": { bound: 60 } },
  hot1: { "reviews/s": { least: 5 }, "p99 ms": { most: 0.2 } },
  wide: { "reviews/s": { least: 1 }, "p99 ms": { most: 1 } },
  reserved: { "object KiB": { bound: 100 }, "last against first": { bound: 4 } },
  memory: { "resident MB": { most: 1.5 } },
  free: { "p99 ms": { bound: 1000 } },
};

/** Two cells of a table: the goal in words, and whether `value` reaches it. Empty without a goal, `-` without upstream. */
export function judge(goal: Goal | undefined, value: number, upstream: number): readonly [string, string] {
  if (goal === undefined) return ["", ""];
  const { least, most, bound } = goal;
  const ratio = value / upstream;
  const words = bound !== undefined ? `<= ${bound}` : least !== undefined ? `>= ${least}x` : `<= ${most}x`;
  if (bound === undefined && !Number.isFinite(ratio)) return [words, "-"];
  const reached =
    bound !== undefined ? value <= bound : ratio >= (least ?? 0) && ratio <= (most ?? Number.POSITIVE_INFINITY);
  return [words, reached ? "OK" : "MISSED"];
}

export const HEADER = ["work", "figure", "this project", "upstream", "ratio", "goal", "reached"];

export interface Figure {
  /** A key of {@link GOALS}. */
  readonly work: string;
  readonly title: string;
  readonly name: string;
  readonly ours: number;
  /** NaN without upstream. */
  readonly theirs: number;
  readonly digits: number;
}

/** One line below {@link HEADER}. */
export function row({ work, title, name, ours, theirs, digits }: Figure): string[] {
  const upstream = Number.isNaN(theirs) ? "-" : theirs.toFixed(digits);
  return [
    title,
    name,
    ours.toFixed(digits),
    upstream,
    ratio(ours, theirs),
    ...judge(GOALS[work]?.[name], ours, theirs),
  ];
}
