import { type Metrics, OVERFLOW } from "./metrics.ts";
import { TopCounts } from "./top-counts.ts";

/** A counter of names that others choose: those that are counted most have series, the rest is `other`. */
interface TopCounterDefinition<N extends string, K extends string> {
  readonly name: string;
  readonly help: string;
  /** The labels that are the name together. */
  readonly names: readonly N[];
  /** A label beside the name, whose values are kept apart for `other`, too. */
  readonly kind?: K;
  /** How many names have series. */
  readonly max: number;
}

interface TopCounter<N extends string, K extends string> {
  inc(labels: Readonly<Record<N | K, string>>): void;
}

/** Between the parts of a name; no name of Kubernetes has it. */
const SEPARATOR = "\0";

/** Who has a series is decided anew at each scrape. One that is gone begins at zero when it is back. */
export function topCounter<N extends string, K extends string = never>(
  metrics: Metrics,
  { name, help, names, kind, max }: TopCounterDefinition<N, K>,
): TopCounter<N, K> {
  const top = new TopCounts(max);
  const shown = new Map<string, Set<string>>();
  const valuesOf = (key: string | undefined, of: string): string[] => [
    ...(key === undefined ? names.map(() => OVERFLOW) : key.split(SEPARATOR)),
    ...(kind === undefined ? [] : [of]),
  ];
  const labels = kind === undefined ? names : [...names, kind];
  metrics.counterFrom({ name, help, labels }, (counter) => {
    const { counts, gone } = top.settle();
    for (const key of gone) {
      for (const of of shown.get(key) ?? []) counter.remove(...valuesOf(key, of));
      shown.delete(key);
    }
    for (const { name: key, kind: of, by } of counts) {
      counter.labels(...valuesOf(key, of)).inc(by);
      if (key !== undefined) shown.set(key, (shown.get(key) ?? new Set()).add(of));
    }
  });
  return {
    inc(given) {
      top.add(names.map((one) => given[one]).join(SEPARATOR), kind === undefined ? "" : given[kind]);
    },
  };
}
