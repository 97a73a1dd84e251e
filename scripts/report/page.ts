/** A recording as one self-contained HTML file: no script, no font, no network. */
import { CHART_WORDS } from "../../shared/observe/chart-words.ts";
import { availabilityChart, clusterCharts, escapeHtml, numbered, reviewChart } from "./chart.ts";
import { floors, type Recording } from "./record.ts";

const STYLE = `
:root { color-scheme: light dark; --bg: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --card: #f6f8fa;
  --total: #0969da; --area: #0969da22; --promise: #1b1f24; --rising: #bf8700; --forbidden: #cf222e12;
  --good: #1a7f37; --bad: #cf222e; --wait: #bf8700;
  --c0: #0969da; --c1: #8250df; --c2: #1a7f37; --c3: #bc4c00; --fault: #cf222e; }
@media (prefers-color-scheme: dark) { :root {
  --bg: #0d1117; --ink: #e6edf3; --soft: #9198a1; --line: #30363d; --card: #161b22;
  --total: #58a6ff; --area: #58a6ff22; --promise: #e6edf3; --rising: #d29922; --forbidden: #f8514918;
  --good: #3fb950; --bad: #f85149; --wait: #d29922;
  --c0: #58a6ff; --c1: #bc8cff; --c2: #3fb950; --c3: #f0883e; --fault: #f85149; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--bg); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 0.95rem; font-weight: 500; margin: 0.5rem 0 0; }
p.verdict { font-size: 1.1rem; border-left: 0.4rem solid var(--good); background: var(--card);
  padding: 0.6rem 0.9rem; margin: 0.5rem 0; }
p.verdict.bad { border-color: var(--bad); }
.soft { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 0.5rem; margin: 1rem 0; }
.facts div { background: var(--card); padding: 0.5rem 0.8rem; border-radius: 0.4rem; }
.facts b { display: block; font-size: 1.5rem; }
.chart { overflow-x: auto; } svg { display: block; width: 100%; min-width: 42rem; height: auto; }
svg text { fill: var(--soft); font-size: 12px; } svg .grid { stroke: var(--line); stroke-width: 1; }
svg .total { fill: none; stroke: var(--total); stroke-width: 2; } svg .area { fill: var(--area); }
svg .promise { stroke: var(--promise); stroke-width: 2; stroke-dasharray: 6 4; }
svg .promise.rising { stroke: var(--rising); }
svg .forbidden { fill: var(--forbidden); }
svg .cluster { fill: none; stroke-width: 2; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
svg .flag line { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
svg .flag.fault line { stroke: var(--fault); }
svg .flag.fault text { fill: var(--fault); font-weight: 700; } svg .flag.scene text { font-weight: 700; }
svg .admitted { fill: var(--good); } svg .refused { fill: var(--bad); } svg .busy { fill: var(--wait); }
.key span { white-space: nowrap; margin-right: 1rem; }
.key i { display: inline-block; width: 0.9rem; height: 0.6rem; margin-right: 0.35rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td code, li code { overflow-wrap: anywhere; }
code { font-size: 0.88em; }
.held { color: var(--good); font-weight: 600; } .broken { color: var(--bad); font-weight: 600; }
.fault { color: var(--fault); }
`;

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** The tightest moment: the fewest spare pods while something was promised. */
function tightest(recording: Recording): { readonly pods: number; readonly promised: number } | undefined {
  const { samples } = recording;
  let worst: { readonly pods: number; readonly promised: number } | undefined;
  for (const { fromMs, toMs, pods: promised } of floors(recording)) {
    const before = samples.findLast(({ atMs }) => atMs <= fromMs);
    const within = samples.filter(({ atMs }) => atMs > fromMs && atMs < toMs);
    for (const { total } of before === undefined ? within : [before, ...within]) {
      if (worst === undefined || total - promised < worst.pods - worst.promised) worst = { pods: total, promised };
    }
  }
  return worst;
}

function facts(recording: Recording): string {
  const worst = tightest(recording);
  const last = recording.reviews.at(-1);
  const first = recording.reviews[0];
  const count = (kind: "admitted" | "refused" | "busy"): number => (last?.[kind] ?? 0) - (first?.[kind] ?? 0);
  const faults = recording.marks.filter(({ kind }) => kind === "fault").length;
  const entries: readonly (readonly [string, string])[] = [
    [
      worst === undefined ? "-" : String(worst.pods),
      worst === undefined ? "lowest availability" : `available at the tightest moment, ${worst.promised} promised`,
    ],
    [String(count("admitted")), "disruptions allowed"],
    [String(count("refused")), CHART_WORDS.denied],
    [String(count("busy")), CHART_WORDS.busy],
    [String(faults), faults === 1 ? "fault injected" : "faults injected"],
  ];
  const cards = entries.map(([value, text]) => `<div><b>${escapeHtml(value)}</b>${escapeHtml(text)}</div>`);
  return `<div class="facts">${cards.join("")}</div>`;
}

function key(entries: readonly (readonly [color: string, text: string])[]): string {
  const spans = entries.map(
    ([color, text]) => `<span><i style="background:var(--${color})"></i>${escapeHtml(text)}</span>`,
  );
  return `<p class="key soft">${spans.join("")}</p>`;
}

const numberCell = (value: number | string): string => `<td class="n">${value}</td>`;

const wideTable = (head: string, rows: readonly string[]): string =>
  `<div class="wide"><table>${head}${rows.join("")}</table></div>`;

function askers({ askers: list }: Recording): string {
  if (list.length === 0) return "";
  const rows = list.map(
    ({ name, admitted, refused, busy }) =>
      `<tr><td><code>${escapeHtml(name)}</code></td>${[admitted, refused, busy].map(numberCell).join("")}</tr>`,
  );
  const columns = ["allowed", "denied", "told to retry"].map((title) => `<th class="n">${title}</th>`).join("");
  const head = `<tr><th>user</th>${columns}</tr>`;
  const source = "As the webhook's replicas logged it; what needed no quota is left out.";
  return `<h2>Who asked</h2><p class="soft">${source}</p>${wideTable(head, rows)}`;
}

function story({ marks }: Recording): string {
  const flagged = numbered(marks);
  const rows = marks.map((mark) => {
    const { atMs, kind, text } = mark;
    const index = flagged.indexOf(mark);
    const what = kind === "command" ? `<code>$ ${escapeHtml(text)}</code>` : escapeHtml(text);
    const told =
      kind === "held" || kind === "broken"
        ? `<span class="${kind}">${kind.toUpperCase()}</span> ${what}`
        : kind === "scene"
          ? `<b>${what}</b>`
          : `<span class="${kind}">${what}</span>`;
    return `<tr>${numberCell(seconds(atMs))}${numberCell(index < 0 ? "" : index + 1)}<td>${told}</td></tr>`;
  });
  const head = `<tr><th class="n">time</th><th class="n">mark</th><th>what</th></tr>`;
  return `<h2>What happened</h2>${wideTable(head, rows)}`;
}

export function reportPage(recording: Recording): string {
  const { title, verdict, good, startedAt, durationMs, clusters } = recording;
  const small = clusterCharts(recording).map(
    (chart, index) => `<h3 class="soft">${escapeHtml(clusters[index] ?? "")}</h3><div class="chart">${chart}</div>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${escapeHtml(title)}</title><style>${STYLE}</style></head><body>
<h1>${escapeHtml(title)}</h1>
<p class="verdict${good ? "" : " bad"}">${escapeHtml(verdict)}</p>
<p class="soft">Recorded ${escapeHtml(startedAt)}, ${seconds(durationMs)}, on ${escapeHtml(clusters.join(", "))}.</p>
${facts(recording)}
<h2>${CHART_WORDS.capacity}</h2>
${key([
  ["total", CHART_WORDS.available],
  ["promise", CHART_WORDS.promised],
  ["rising", "promised, but never reached yet: the workload was scaled up"],
  ["forbidden", "below the promise, once it was reached"],
  ["fault", "the numbers are told below"],
])}
<div class="chart">${availabilityChart(recording)}</div>
<h2>${CHART_WORDS.answers}</h2>
${key([
  ["good", CHART_WORDS.allowed],
  ["bad", CHART_WORDS.denied],
  ["wait", CHART_WORDS.busy],
])}
<div class="chart">${reviewChart(recording)}</div>
<h2>Available pods, by cluster</h2>
${small.join("\n")}
${askers(recording)}
${story(recording)}
</body></html>
`;
}
