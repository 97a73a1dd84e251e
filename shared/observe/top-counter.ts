import { type Metrics, OVERFLOW } from "./metrics.ts";
import { TopCounts } from "./top-counts.ts";

/** A counter of names that users choose: the names with the highest counts have series, the others count as `other`. */
interface TopCounterDefinition<N extends string, K extends string> {
  readonly name: string;
  readonly help: string;
  /** The labels that together form the name. */
  readonly names: readonly N[];
  /** A label beside the name, which `other` has, too. */
  readonly kind?: K;
  /** The number of names with series. */
  readonly max: number;
}

interface TopCounter<N extends string, K extends string> {
  inc(labels: Readonly<Record<N | K, string>>): void;
}

/** Separates the parts of a name; no Kubernetes name contains it. */
const SEPARATOR = "\0";

/** Each scrape decides again which names have series. A series that was removed begins at zero when it returns. */
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
