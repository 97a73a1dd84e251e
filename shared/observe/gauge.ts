import type { Metrics } from "./metrics.ts";

/** A gauge without labels that is read at each scrape: true is 1, false is 0, and undefined leaves the series out. */
export function gaugeOf(metrics: Metrics, name: string, help: string, value: () => number | boolean | undefined): void {
  metrics.gaugeFrom({ name, help }, (set) => {
    const current = value();
    if (current !== undefined) set({}, Number(current));
  });
}
