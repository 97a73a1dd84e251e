/**
 * Records the data of a report, which `page.ts` shows with the charts of `chart.ts`. Times are milliseconds since the
 * recording began.
 */
import * as v from "valibot";

export interface Sample {
  readonly atMs: number;
  /** Available pods by cluster, in the order of {@link Recording.clusters}. */
  readonly available: readonly number[];
  readonly total: number;
}

/** The number of pods that had to be available from this time on; undefined without a protector. */
export interface PromiseChange {
  readonly atMs: number;
  readonly pods: number | undefined;
}

/** Responses of the webhook to deletions and evictions that used quota or were denied. */
export interface ReviewSums {
  readonly admitted: number;
  readonly refused: number;
  /** Busy responses, which clients repeat by themselves. */
  readonly busy: number;
}

/** Sums since the start of the processes. */
export interface ReviewSample extends ReviewSums {
  readonly atMs: number;
}

export type MarkKind = "scene" | "fault" | "command" | "note" | "held" | "broken";

export interface ReportMark {
  readonly atMs: number;
  readonly kind: MarkKind;
  readonly text: string;
}

export interface Asker extends ReviewSums {
  readonly name: string;
}

export interface Recording {
  readonly title: string;
  /** What was promised and whether it held, in one sentence. */
  readonly verdict: string;
  readonly good: boolean;
  readonly startedAt: string;
  readonly durationMs: number;
  readonly clusters: readonly string[];
  readonly samples: readonly Sample[];
  readonly promises: readonly PromiseChange[];
  readonly reviews: readonly ReviewSample[];
  readonly marks: readonly ReportMark[];
  readonly askers: readonly Asker[];
}

/** Most samples in a report. Further samples are thinned out, keeping the lowest of each group. */
const MAX_SAMPLES = 4000;

/** Collects a recording; every method records the present state. */
export class Recorder {
  readonly #startMs = performance.now();
  readonly #startedAt = new Date().toISOString();
  readonly #title: string;
  readonly #clusters: readonly string[];
  readonly #samples: Sample[] = [];
  readonly #promises: PromiseChange[] = [];
  readonly #reviews: ReviewSample[] = [];
  readonly #marks: ReportMark[] = [];

  constructor(title: string, clusters: readonly string[]) {
    this.#title = title;
    this.#clusters = clusters;
  }

  get #nowMs(): number {
    return performance.now() - this.#startMs;
  }

  available(available: readonly number[]): void {
    const total = available.reduce((sum, count) => sum + count, 0);
    const last = this.#samples.at(-1);
    if (last?.available.every((count, index) => count === available[index])) return;
    this.#samples.push({ atMs: this.#nowMs, available: [...available], total });
  }

  promised(pods: number | undefined): void {
    if (this.#promises.length > 0 && this.#promises.at(-1)?.pods === pods) return;
    this.#promises.push({ atMs: this.#nowMs, pods });
  }

  reviewed(sums: ReviewSums): void {
    this.#reviews.push({ atMs: this.#nowMs, ...sums });
  }

  mark(kind: MarkKind, text: string): void {
    this.#marks.push({ atMs: this.#nowMs, kind, text });
  }

  finish(verdict: string, good: boolean, askers: readonly Asker[]): Recording {
    return {
      title: this.#title,
      verdict,
      good,
      startedAt: this.#startedAt,
      durationMs: this.#nowMs,
      clusters: this.#clusters,
      samples: thinned(this.#samples),
      promises: this.#promises,
      reviews: this.#reviews,
      marks: this.#marks,
      askers,
    };
  }
}

/** A stretch of time in which `count` pods had to stay available. */
export interface Floor {
  readonly fromMs: number;
  readonly toMs: number;
  readonly pods: number;
}

/**
 * The promises that could be broken, and when. A promise above the number of available pods (a workload is scaled up)
 * counts from the moment at which it is reached; until then, the previous promise counts.
 */
export function floors({
  promises,
  samples,
  durationMs,
}: Pick<Recording, "promises" | "samples" | "durationMs">): readonly Floor[] {
  const found: Floor[] = [];
  let present: number | undefined;
  for (const [index, { atMs, pods }] of promises.entries()) {
    const toMs = promises[index + 1]?.atMs ?? durationMs;
    const reachedMs = pods === undefined ? toMs : reachedAt(samples, atMs, pods);
    const fromMs = pods !== undefined && pods > (present ?? 0) ? Math.min(toMs, reachedMs) : atMs;
    if (fromMs > atMs && present !== undefined) found.push({ fromMs: atMs, toMs: fromMs, pods: present });
    if (pods !== undefined && fromMs < toMs) found.push({ fromMs, toMs, pods });
    present = fromMs < toMs ? pods : present;
  }
  return found;
}

/** When `count` pods were available for the first time from `atMs` on. */
function reachedAt(samples: readonly Sample[], atMs: number, pods: number): number {
  const present = samples.findLast((one) => one.atMs <= atMs);
  if (present !== undefined && present.total >= pods) return atMs;
  return samples.find((one) => one.atMs > atMs && one.total >= pods)?.atMs ?? Number.POSITIVE_INFINITY;
}

/**
 * At most {@link MAX_SAMPLES} samples: from each group the one with the fewest available pods, which readers look for.
 */
export function thinned(samples: readonly Sample[]): readonly Sample[] {
  const group = Math.ceil(samples.length / MAX_SAMPLES);
  if (group <= 1) return samples;
  const kept: Sample[] = [];
  for (let from = 0; from < samples.length; from += group) {
    const some = samples.slice(from, from + group);
    const lowest = some.reduce((least, one) => (one.total < least.total ? one : least));
    kept.push(lowest);
  }
  return kept;
}

/** The sum for each outcome in log lines and metrics that was decided by quota, or without quota. */
export const SUMMED: Readonly<Record<string, keyof ReviewSums>> = {
  allowed: "admitted",
  forced: "admitted",
  lowered: "admitted",
  suspended: "admitted",
  denied: "refused",
  busy: "busy",
};

const LogLine = v.fallback(v.pipe(v.string(), v.parseJson(), v.object({ outcome: v.string(), username: v.string() })), {
  outcome: "",
  username: "",
});

/** Reads the users from the log lines of the webhook's replicas; other lines are ignored. */
export function askersOf(lines: Iterable<string>): readonly Asker[] {
  const sums = new Map<string, { admitted: number; refused: number; busy: number }>();
  for (const line of lines) {
    if (!line.includes('"outcome"')) continue;
    const { outcome: logged, username: name } = v.parse(LogLine, line);
    const outcome = SUMMED[logged];
    if (outcome === undefined) continue;
    const sum = sums.get(name) ?? { admitted: 0, refused: 0, busy: 0 };
    sum[outcome] += 1;
    sums.set(name, sum);
  }
  return [...sums]
    .map(([name, sum]) => ({ name, ...sum }))
    .sort((a, b) => b.refused + b.busy + b.admitted - (a.refused + a.busy + a.admitted));
}
