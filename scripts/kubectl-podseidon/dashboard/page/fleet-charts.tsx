/** The last hour of all protectors together. */
import { CHART_WORDS } from "../../../../shared/observe/chart-words.ts";
import { type FleetPoint, WINDOW_MS } from "../page-messages.ts";
import { Chart, capacityLines } from "./chart.tsx";
import { store } from "./store.ts";
import { countText, minuteText, numberText } from "./words.ts";

export function FleetCharts() {
  const points = store.points.value;
  const hello = store.hello.value;
  const last = points.at(-1);
  if (last === undefined || hello === undefined) return null;
  const atMs = points.map((point) => point.atMs);
  const endMs = last.atMs + hello.slotMs;
  const column = (key: keyof FleetPoint): number[] => points.map((point) => point[key]);
  const worst = Math.max(...column("missing"));
  const denied = column("denied").reduce((sum, count) => sum + count, 0);
  const since = minuteText(Math.max(hello.startedMs, endMs - WINDOW_MS));
  return (
    <section class="charts" aria-labelledby="hour-title">
      <h2 id="hour-title" class="hidden">
        The last hour
      </h2>
      <Chart
        title={CHART_WORDS.capacity}
        summary={`Now ${numberText(last.available)} are available, ${numberText(last.required)} promised.`}
        {...{ atMs, endMs }}
        lines={capacityLines(column)}
      />
      <Chart
        title={CHART_WORDS.missing}
        summary={worst === 0 ? `None since ${since}.` : `At most ${countText(worst, "pod")} since ${since}.`}
        {...{ atMs, endMs }}
        lines={[{ label: "missing", colour: "bad", kind: "step", values: column("missing"), inTable: "highest" }]}
      />
      <Chart
        title={CHART_WORDS.answers}
        summary={`${countText(denied, "disruption")} denied since ${since}.`}
        {...{ atMs, endMs }}
        lines={[{ label: CHART_WORDS.denied, colour: "bad", kind: "bars", values: column("denied"), inTable: "sum" }]}
      />
    </section>
  );
}
