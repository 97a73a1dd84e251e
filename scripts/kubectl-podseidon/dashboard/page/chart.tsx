/** One chart of the last hour, drawn by uPlot, with a sentence and a table of the same data. */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { CHART_WORDS } from "../../../../shared/observe/chart-words.ts";
import { type CapacityPoint, WINDOW_MS } from "../page-messages.ts";
import { minuteText, numberText } from "./words.ts";

const HEIGHT = 170;
/** Steps between the ticks of an axis that counts pods. */
const WHOLE = [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
/** Points in each row of the table. */
const POINTS_A_ROW = 20;

interface ChartLine {
  readonly label: string;
  /** The name of a variable in the style sheet. */
  readonly colour: string;
  readonly kind: "step" | "area" | "dashed" | "bars";
  readonly values: readonly number[];
  /** How a row of the table summarizes several points. */
  readonly inTable: "lowest" | "highest" | "sum";
}

/** Capacity against promise; `column` has the values of all points. */
export function capacityLines(column: (key: keyof CapacityPoint) => readonly number[]): readonly ChartLine[] {
  const { available, promised, reserved } = CHART_WORDS;
  return [
    { label: available, colour: "total", kind: "area", values: column("available"), inTable: "lowest" },
    { label: promised, colour: "promise", kind: "dashed", values: column("required"), inTable: "highest" },
    { label: reserved, colour: "c1", kind: "step", values: column("reserved"), inTable: "highest" },
  ];
}

interface ChartOptions {
  readonly title: string;
  /** The chart's content, as a sentence. */
  readonly summary: string;
  readonly atMs: readonly number[];
  readonly endMs: number;
  readonly lines: readonly ChartLine[];
}

export function Chart(options: ChartOptions) {
  const { title, summary, lines } = options;
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<Drawing>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (place.current === null) return;
    const drawing = new Drawing(place.current, options);
    drawn.current = drawing;
    return () => drawing.stop();
  }, []);
  useEffect(() => drawn.current?.draw(options));
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <ul class="key">
          {lines.map(({ label, colour, kind }) => (
            <li key={label}>
              <i class={`mark ${kind}`} style={{ color: `var(--${colour})` }} aria-hidden="true" />
              {label}
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={place} class="plot" role="img" aria-label={`${title}. ${summary}`} />
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>
          As a table<span class="hidden">: {title}</span>
        </summary>
        {isOpen ? <ChartTable {...options} /> : null}
      </details>
    </figure>
  );
}

function ChartTable({ title, atMs, lines }: ChartOptions) {
  const starts = atMs.flatMap((at, index) => (index % POINTS_A_ROW === 0 ? [[at, index] as const] : []));
  return (
    <table>
      <caption class="hidden">{title}</caption>
      <thead>
        <tr>
          <th scope="col">From</th>
          {lines.map(({ label, inTable }) => (
            <th key={label} scope="col" class="number">
              {label}, {inTable}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {starts.map(([at, from]) => (
          <tr key={at}>
            <th scope="row">{minuteText(at)}</th>
            {lines.map(({ label, values, inTable }) => (
              <td key={label} class="number">
                {numberText(summed(values.slice(from, from + POINTS_A_ROW), inTable))}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function summed(values: readonly number[], how: ChartLine["inTable"]): number {
  if (how === "sum") return values.reduce((sum, value) => sum + value, 0);
  return how === "lowest" ? Math.min(...values) : Math.max(...values);
}

/** uPlot in its container: with the container's width and the style sheet's colours, drawn again when these change. */
class Drawing {
  readonly #place: HTMLElement;
  readonly #dark = matchMedia("(prefers-color-scheme: dark)");
  readonly #resized: ResizeObserver;
  readonly #recolour = (): void => this.#start();
  #options: ChartOptions;
  #plot: uPlot | undefined;

  constructor(place: HTMLElement, options: ChartOptions) {
    this.#place = place;
    this.#options = options;
    this.#resized = new ResizeObserver(() => this.#fit());
    this.#start();
    this.#resized.observe(place);
    this.#dark.addEventListener("change", this.#recolour);
  }

  draw(options: ChartOptions): void {
    const { lines } = this.#options;
    this.#options = options;
    if (options.lines.length !== lines.length) this.#start();
    this.#plot?.setData(dataOf(options), false);
    this.#plot?.setScale("x", rangeOf(options));
  }

  stop(): void {
    this.#resized.disconnect();
    this.#dark.removeEventListener("change", this.#recolour);
    this.#plot?.destroy();
  }

  #fit(): void {
    this.#plot?.setSize({ width: this.#place.clientWidth, height: HEIGHT });
  }

  #start(): void {
    this.#plot?.destroy();
    const style = getComputedStyle(this.#place);
    const colourOf = (name: string): string => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colourOf("soft"), grid: { stroke: colourOf("line"), width: 1 }, ticks: { show: false } };
    const { lines } = this.#options;
    this.#plot = new uPlot(
      {
        width: Math.max(1, this.#place.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: true }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
        axes: [
          { ...axis, size: 26, values: (_, times) => times.map((time) => minuteText(time * 1000)), space: 70 },
          { ...axis, size: 48, incrs: WHOLE, values: (_, ticks) => ticks.map(short) },
        ],
        series: [{}, ...lines.map((line) => seriesOf(line, colourOf))],
      },
      dataOf(this.#options),
      this.#place,
    );
    this.#plot.setScale("x", rangeOf(this.#options));
  }
}

function seriesOf({ label, colour, kind }: ChartLine, colourOf: (name: string) => string): uPlot.Series {
  const stroke = colourOf(colour);
  const { stepped, bars } = uPlot.paths;
  const common = { label, stroke, width: 2, points: { show: false } };
  if (kind === "bars") {
    const paths = bars?.({ size: [0.8, 12, 2] });
    return { ...common, fill: stroke, width: 0, ...(paths === undefined ? {} : { paths }) };
  }
  const paths = stepped?.({ align: 1 });
  return {
    ...common,
    ...(paths === undefined ? {} : { paths }),
    ...(kind === "area" ? { fill: colourOf("area") } : {}),
    ...(kind === "dashed" ? { dash: [6, 4] } : {}),
  };
}

function dataOf({ atMs, lines }: ChartOptions): uPlot.AlignedData {
  return [atMs.map((at) => at / 1000), ...lines.map(({ values }) => [...values])];
}

function rangeOf({ endMs }: ChartOptions): { min: number; max: number } {
  const max = endMs / 1000;
  return { min: max - WINDOW_MS / 1000, max };
}

/** `12k` of 12,000: the axis is narrow. */
function short(value: number): string {
  return value >= 10_000 ? `${value / 1000}k` : String(value);
}
