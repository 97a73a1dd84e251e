import * as prometheus from "prom-client";
import { version } from "../runtime/version.ts";

/** The values of a label: a closed set, or an open one with a bound. */
type LabelValues = readonly string[] | OpenLabel;

/**
 * A label whose values the code does not know (a cell, a core cluster). The first `max` values get series, and later
 * ones count as `other`. The series of `known` values, which the configuration names, exist from the start.
 */
interface OpenLabel {
  readonly max: number;
  readonly known?: readonly string[];
}

export type LabelDefinitions = Readonly<Record<string, LabelValues>>;

/** The label values of one series; a closed label accepts only its own values. */
export type LabelsOf<L extends LabelDefinitions> = {
  readonly [K in keyof L]: L[K] extends readonly (infer V extends string)[] ? V : string;
};

export interface MetricDefinition<L extends LabelDefinitions> {
  /** Without the prefix `podseidon_`, with the unit last: `webhook_review_seconds`, `..._total`, `..._bytes`. */
  readonly name: string;
  readonly help: string;
  readonly labels?: L;
}

interface HistogramDefinition<L extends LabelDefinitions> extends MetricDefinition<L> {
  /** Upper bounds, in the metric's unit. */
  readonly buckets: readonly number[];
}

export interface Counter<L extends LabelDefinitions> {
  inc(labels: LabelsOf<L>, by?: number): void;
}

export interface Gauge<L extends LabelDefinitions> {
  set(labels: LabelsOf<L>, value: number): void;
  inc(labels: LabelsOf<L>, by?: number): void;
  dec(labels: LabelsOf<L>, by?: number): void;
  remove(labels: LabelsOf<L>): void;
}

export interface Histogram<L extends LabelDefinitions> {
  observe(labels: LabelsOf<L>, value: number): void;
}

interface MetricsOptions {
  /**
   * Memory, processor time, open files, garbage collection and event loop lag, under their usual names, and
   * `build_info`. Default false.
   */
  readonly processMetrics?: boolean;
}

const PREFIX = "podseidon_";
/** Replaces all values beyond the bound of an open label. */
export const OVERFLOW = "other";

/**
 * The metrics of one process. Every series of closed labels exists at zero from its declaration on, so that rates are
 * right from the first event on, and alerts on missing series work.
 */
export class Metrics {
  readonly #registry = new prometheus.Registry();

  constructor({ processMetrics = false }: MetricsOptions = {}) {
    if (!processMetrics) return;
    prometheus.collectDefaultMetrics({ register: this.#registry });
    const labels = { version: [version], node_version: [process.version] };
    this.gauge({ name: "build_info", help: "Always 1: the versions of the component and of Node.js.", labels }).set(
      { version, node_version: process.version },
      1,
    );
  }

  counter<const L extends LabelDefinitions = Record<never, never>>(definition: MetricDefinition<L>): Counter<L> {
    const pending: PendingCount[] = [];
    const counter = new prometheus.Counter({
      ...this.#configuration(definition),
      collect() {
        for (const count of pending.splice(0)) settle(count);
      },
    });
    const series = new Series(
      definition.labels,
      (labels): PendingCount => ({ by: 0, child: counter.labels(labels) }),
      settle,
    );
    return {
      inc(labels, by = 1) {
        const count = series.of(labels);
        // Without a scrape, it would be kept again and again.
        if (by === 0) return;
        if (count.by === 0) pending.push(count);
        count.by += by;
      },
    };
  }

  gauge<const L extends LabelDefinitions = Record<never, never>>(definition: MetricDefinition<L>): Gauge<L> {
    const gauge = new prometheus.Gauge(this.#configuration(definition));
    const series = new Series(
      definition.labels,
      (labels) => gauge.labels(labels),
      (child) => child.set(0),
    );
    return {
      set: (labels, value) => series.of(labels).set(value),
      inc: (labels, by = 1) => series.of(labels).inc(by),
      dec: (labels, by = 1) => series.of(labels).dec(by),
      remove: (labels) => gauge.remove(series.forget(labels)),
    };
  }

  /** A gauge that `collect` fills at each scrape; a series that it does not set is absent. */
  gaugeFrom<const L extends LabelDefinitions = Record<never, never>>(
    definition: MetricDefinition<L>,
    collect: (set: (labels: LabelsOf<L>, value: number) => void) => void,
  ): void {
    const gauge: prometheus.Gauge = new prometheus.Gauge({
      ...this.#configuration(definition),
      collect: () => {
        gauge.reset();
        // The library gives a gauge without labels a series at zero.
        gauge.remove({});
        // New at each scrape, so that old values make room for new ones.
        const series = new Series(definition.labels, (labels) => gauge.labels(labels));
        collect((labels, value) => series.of(labels).set(value));
      },
    });
  }

  histogram<const L extends LabelDefinitions = Record<never, never>>(definition: HistogramDefinition<L>): Histogram<L> {
    const histogram = new prometheus.Histogram({
      ...this.#configuration(definition),
      buckets: [...definition.buckets],
    });
    const series = new Series(
      definition.labels,
      (labels) => {
        histogram.zero(labels);
        return histogram.labels(labels);
      },
      () => {},
    );
    return { observe: (labels, value) => series.of(labels).observe(value) };
  }

  /** A counter whose label values change; `collect` is called at each scrape, before it is read. */
  counterFrom(
    { name, help, labels }: { readonly name: string; readonly help: string; readonly labels: readonly string[] },
    collect: (counter: prometheus.Counter) => void,
  ): void {
    const counter: prometheus.Counter = new prometheus.Counter({
      ...{ name: PREFIX + name, help, labelNames: [...labels], registers: [this.#registry] },
      collect: () => collect(counter),
    });
  }

  /** Resolves with the exposition text. */
  async render(): Promise<{ readonly contentType: string; readonly body: string }> {
    return { contentType: this.#registry.contentType, body: await this.#registry.metrics() };
  }

  #configuration<L extends LabelDefinitions>({ name, help, labels }: MetricDefinition<L>) {
    return { name: PREFIX + name, help, labelNames: Object.keys(labels ?? {}), registers: [this.#registry] };
  }
}

/** Counts since the last scrape, collected because the library hashes the labels at each increment. */
interface PendingCount {
  by: number;
  readonly child: prometheus.Counter.Internal;
}

function settle(count: PendingCount): void {
  count.child.inc(count.by);
  count.by = 0;
}

/** The series of one metric by their label values, bounded. */
class Series<L extends LabelDefinitions, Child> {
  readonly #names: readonly string[];
  readonly #labels: ReadonlyMap<string, KnownValues>;
  readonly #make: (labels: Record<string, string>) => Child;
  readonly #zero: ((child: Child) => void) | undefined;
  readonly #root: Branch<Child> = newBranch();

  /** Without `zero`, a series only exists from its first use on. */
  constructor(labels: L | undefined, make: (labels: Record<string, string>) => Child, zero?: (child: Child) => void) {
    const definitions = Object.entries(labels ?? {});
    this.#names = definitions.map(([name]) => name);
    this.#labels = new Map(definitions.map(([name, values]) => [name, new KnownValues(values)]));
    this.#make = make;
    this.#zero = zero;
    if (zero !== undefined) this.#makeAll({});
  }

  of(labels: LabelsOf<L>): Child {
    const given: Readonly<Record<string, string>> = labels;
    // One look-up for each label and no allocation: this runs several times for each admission request.
    let branch: Branch<Child> | undefined = this.#root;
    for (const name of this.#names) {
      branch = branch.next.get(given[name] ?? "");
      if (branch === undefined) break;
    }
    return branch?.child ?? this.#first(this.#bounded(labels));
  }

  /** Returns the series of bounded values, and creates it if needed. */
  #first(values: readonly string[]): Child {
    // The first use of an open value creates all its closed combinations at zero.
    if (this.#zero !== undefined) this.#makeAll(this.#open(values));
    return this.#branch(values).child ?? this.#add(values);
  }

  forget(labels: LabelsOf<L>): Record<string, string> {
    const values = this.#bounded(labels);
    this.#branch(values).child = undefined;
    return this.#record(values);
  }

  #bounded(labels: LabelsOf<L>): string[] {
    const given: Readonly<Record<string, string>> = labels;
    return this.#names.map((name) => this.#labels.get(name)?.bounded(given[name] ?? "") ?? OVERFLOW);
  }

  #open(values: readonly string[]): Record<string, string> {
    return Object.fromEntries(
      this.#names.flatMap((name, index) => (this.#labels.get(name)?.closed ? [] : [[name, values[index] ?? OVERFLOW]])),
    );
  }

  /** Creates every combination of the known values with the values in `fixed`. */
  #makeAll(fixed: Readonly<Record<string, string>>): void {
    let combinations: string[][] = [[]];
    for (const name of this.#names) {
      const held = fixed[name];
      const values = held === undefined ? (this.#labels.get(name)?.initial ?? []) : [held];
      combinations = combinations.flatMap((head) => values.map((value) => [...head, value]));
    }
    for (const values of combinations) {
      if (this.#branch(values).child !== undefined) continue;
      this.#zero?.(this.#add(values));
    }
  }

  #add(values: readonly string[]): Child {
    const child = this.#make(this.#record(values));
    this.#branch(values).child = child;
    return child;
  }

  #branch(values: readonly string[]): Branch<Child> {
    let branch = this.#root;
    for (const value of values) {
      let next = branch.next.get(value);
      if (next === undefined) {
        next = newBranch();
        branch.next.set(value, next);
      }
      branch = next;
    }
    return branch;
  }

  #record(values: readonly string[]): Record<string, string> {
    return Object.fromEntries(this.#names.map((name, index) => [name, values[index] ?? OVERFLOW]));
  }
}

class KnownValues {
  readonly closed: boolean;
  /** The values whose series exist from the start. */
  readonly initial: readonly string[];
  readonly #seen: Set<string>;
  readonly #max: number;

  constructor(values: LabelValues) {
    this.closed = "length" in values;
    this.initial = "length" in values ? values : (values.known ?? []);
    this.#seen = new Set(this.initial);
    this.#max = "length" in values ? values.length : Math.max(values.max, this.initial.length);
  }

  bounded(value: string): string {
    if (this.#seen.has(value)) return value;
    if (this.#seen.size >= this.#max) return OVERFLOW;
    this.#seen.add(value);
    return value;
  }
}

/** Series by their label values, one level for each label. */
interface Branch<Child> {
  readonly next: Map<string, Branch<Child>>;
  child: Child | undefined;
}

function newBranch<Child>(): Branch<Child> {
  return { next: new Map(), child: undefined };
}
