/**
 * Charts of a recording as inline SVG without scripts. Colours are variables of the page, so that one picture works in
 * light and dark mode.
 */
import {
  floors,
  type PromiseChange,
  type Recording,
  type ReportMark,
  type ReviewSample,
  type ReviewSums,
} from "./record.ts";

const WIDTH = 920;
const LEFT = 38;
const RIGHT = 12;
const TOP = 24;
const BOTTOM = 26;

interface Frame {
  readonly height: number;
  readonly x: (atMs: number) => number;
  readonly y: (value: number) => number;
  readonly max: number;
  readonly durationMs: number;
}

function frame(height: number, max: number, durationMs: number): Frame {
  const top = Math.max(1, max);
  return {
    height,
    max: top,
    durationMs,
    x: (atMs) => round(LEFT + ((WIDTH - LEFT - RIGHT) * atMs) / Math.max(1, durationMs)),
    y: (value) => round(height - BOTTOM - ((height - TOP - BOTTOM) * value) / top),
  };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

export function escapeHtml(text: string): string {
  const named: Readonly<Record<string, string>> = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "'": "&#39;",
  };
  return text.replace(/[&<>"']/g, (one) => named[one] ?? one);
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/** The smallest round step that divides the range into at most `count` parts. */
function stepFor(max: number, count: number): number {
  return STEPS.find((step) => max / step <= count) ?? Math.ceil(max / count);
}

function axes({ height, x, y, max, durationMs }: Frame): string {
  const lines: string[] = [];
  const step = stepFor(max, 5);
  for (let value = 0; value <= max; value += step) {
    lines.push(`<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}"/>`);
    lines.push(`<text class="tick" x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${value}</text>`);
  }
  const seconds = durationMs / 1000;
  const every = stepFor(seconds, 8);
  for (let at = 0; at <= seconds; at += every) {
    lines.push(`<text class="tick" x="${x(at * 1000)}" y="${height - 8}" text-anchor="middle">${at} s</text>`);
  }
  return lines.join("");
}

type Point = readonly [atMs: number, value: number];

/** A line that keeps each value until the next. */
function steps(points: readonly Point[], { x, y, durationMs }: Frame): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  const path = [`M${x(first[0])} ${y(first[1])}`];
  for (const [atMs, value] of rest) path.push(`H${x(atMs)}V${y(value)}`);
  return `${path.join("")}H${x(durationMs)}`;
}

/** The stretches of time in which pods were promised. */
function promised(
  changes: readonly PromiseChange[],
  durationMs: number,
): readonly (readonly [number, number, number])[] {
  return changes.flatMap(({ atMs, pods }, index) =>
    pods === undefined ? [] : [[atMs, changes[index + 1]?.atMs ?? durationMs, pods] as const],
  );
}

/** Marks with a number on the charts: what was done to the clusters. */
export function numbered(marks: readonly ReportMark[]): readonly ReportMark[] {
  return marks.filter(({ kind }) => kind === "fault" || kind === "scene");
}

/** Labels with a smaller distance would overlap. */
const FLAG_WIDTH = 18;

/** Numbered lines; lines at the same moment share a label, as `3-5`. */
function flags(marks: readonly ReportMark[], { x, height }: Frame): string {
  const groups: { at: number; first: number; last: number; isFault: boolean; texts: string[] }[] = [];
  for (const [index, { atMs, kind, text }] of numbered(marks).entries()) {
    const at = x(atMs);
    const group = groups.at(-1);
    if (group !== undefined && at - group.at < FLAG_WIDTH) {
      group.last = index;
      group.isFault ||= kind === "fault";
      group.texts.push(text);
    } else groups.push({ at, first: index, last: index, isFault: kind === "fault", texts: [text] });
  }
  return groups
    .map(({ at, first, last, isFault, texts }) => {
      const label = first === last ? `${first + 1}` : `${first + 1}-${last + 1}`;
      const line = `<line x1="${at}" x2="${at}" y1="${TOP - 6}" y2="${height - BOTTOM}"/>`;
      const number = `<text x="${at}" y="${TOP - 9}" text-anchor="middle">${label}</text>`;
      const title = `<title>${escapeHtml(texts.join("\n"))}</title>`;
      return `<g class="flag ${isFault ? "fault" : "scene"}">${title}${line}${number}</g>`;
    })
    .join("");
}

function svg(height: number, label: string, body: string): string {
  const shape = `viewBox="0 0 ${WIDTH} ${height}" role="img"`;
  return `<svg ${shape} aria-label="${escapeHtml(label)}" preserveAspectRatio="xMidYMid meet">${body}</svg>`;
}

/** Available pods in all against the promise. */
export function availabilityChart(recording: Recording): string {
  const { samples, promises, marks, durationMs } = recording;
  const pieces = promised(promises, durationMs);
  const max = Math.max(1, ...samples.map(({ total }) => total), ...pieces.map(([, , pods]) => pods));
  const view = frame(260, max, durationMs);
  const { x, y } = view;
  const line = steps(
    samples.map(({ atMs, total }) => [atMs, total] as const),
    view,
  );
  const first = samples[0]?.atMs ?? 0;
  const area = line === "" ? "" : `<path class="area" d="${line}V${y(0)}H${x(first)}Z"/>`;
  const held = floors(recording);
  const forbidden = held.map(
    ({ fromMs, toMs, pods }) =>
      `<rect class="forbidden" x="${x(fromMs)}" width="${round(x(toMs) - x(fromMs))}" ` +
      `y="${y(pods)}" height="${round(y(0) - y(pods))}"/>`,
  );
  const promise = pieces.flatMap(([from, to, pods]) => {
    // The promise can be broken from this moment on; before, there are too few pods.
    const reached =
      held.find((floor) => floor.pods === pods && floor.fromMs >= from && floor.fromMs < to)?.fromMs ?? to;
    const line = (kind: string, begin: number, end: number): string =>
      `<line class="${kind}" x1="${x(begin)}" x2="${x(end)}" y1="${y(pods)}" y2="${y(pods)}"/>`;
    return [
      ...(reached > from ? [line("promise rising", from, reached)] : []),
      ...(reached < to ? [line("promise", reached, to)] : []),
    ];
  });
  const lowest = samples.reduce<number | undefined>((least, { total }) => Math.min(least ?? total, total), undefined);
  const label = `Available pods over time; the lowest was ${lowest ?? "unknown"}`;
  return svg(
    view.height,
    label,
    [axes(view), ...forbidden, area, ...promise, `<path class="total" d="${line}"/>`, flags(marks, view)].join(""),
  );
}

/** One small chart for each cluster, on one scale. */
export function clusterCharts({ clusters, samples, marks, durationMs }: Recording): readonly string[] {
  const max = Math.max(1, ...samples.flatMap(({ available }) => available));
  return clusters.map((name, index) => {
    const view = frame(130, max, durationMs);
    const line = steps(
      samples.map(({ atMs, available }) => [atMs, available[index] ?? 0] as const),
      view,
    );
    const body = `${axes(view)}<path class="cluster c${index % 4}" d="${line}"/>${flags(marks, view)}`;
    return svg(view.height, `Available pods of ${name} over time`, body);
  });
}

export interface Rate extends ReviewSums {
  readonly fromMs: number;
  readonly toMs: number;
}

/** The webhook's responses in each of at most `count` equal parts of the time. */
export function rates(reviews: readonly ReviewSample[], durationMs: number, count: number): readonly Rate[] {
  const widthMs = durationMs / count;
  const bins = Array.from({ length: count }, (_, index) => ({
    fromMs: index * widthMs,
    toMs: (index + 1) * widthMs,
    admitted: 0,
    refused: 0,
    busy: 0,
  }));
  let before: ReviewSample | undefined;
  for (const sample of reviews) {
    const bin = bins[Math.min(count - 1, Math.floor(sample.atMs / Math.max(1, widthMs)))];
    if (bin !== undefined && before !== undefined) {
      // A restarted replica counts from zero.
      bin.admitted += Math.max(0, sample.admitted - before.admitted);
      bin.refused += Math.max(0, sample.refused - before.refused);
      bin.busy += Math.max(0, sample.busy - before.busy);
    }
    before = sample;
  }
  return bins;
}

const BARS = 90;

/** The webhook's responses over time, stacked. */
export function reviewChart({ reviews, marks, durationMs }: Recording): string {
  const bins = rates(reviews, durationMs, BARS);
  const max = Math.max(1, ...bins.map(({ admitted, refused, busy }) => admitted + refused + busy));
  const view = frame(170, max, durationMs);
  const { x, y } = view;
  const bars = bins.map(({ fromMs, toMs, admitted, refused, busy }) => {
    let below = 0;
    const parts = [
      ["admitted", admitted],
      ["busy", busy],
      ["refused", refused],
    ] as const;
    return parts
      .map(([kind, count]) => {
        if (count === 0) return "";
        const top = y(below + count);
        const width = Math.max(1, round(x(toMs) - x(fromMs) - 1.5));
        const bar =
          `<rect class="${kind}" x="${x(fromMs) + 1}" width="${width}" y="${top}" ` +
          `height="${round(y(below) - top)}"><title>${count} ${kind}</title></rect>`;
        below += count;
        return bar;
      })
      .join("");
  });
  return svg(
    view.height,
    "Deletions and evictions by answer over time",
    `${axes(view)}${bars.join("")}${flags(marks, view)}`,
  );
}
