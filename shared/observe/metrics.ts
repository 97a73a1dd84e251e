/** Values a label may take: all of them, known from the start, or those that come, up to a bound. */
export type LabelValues = readonly string[] | OpenLabel;

/** A label whose values are not known in advance (a cell, a core cluster): the first `max` get series, later ones count as `other`. */
export interface OpenLabel {
  readonly max: number;
}

export type LabelDefinitions = Readonly<Record<string, LabelValues>>;
/** The label values of one series; a closed label takes only its own values. */
export type LabelsOf<L extends LabelDefinitions> = {
  readonly [K in keyof L]: L[K] extends readonly (infer V extends string)[] ? V : string;
};

export interface MetricDefinition<L extends LabelDefinitions> {
  /** Without the prefix `podseidon_`, with the unit last: `webhook_review_seconds`, `..._total`, `..._bytes`. */
  readonly name: string;
  readonly help: string;
  readonly labels?: L;
}

export interface HistogramDefinition<L extends LabelDefinitions> extends MetricDefinition<L> {
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

/** The metrics of one process: every series of closed labels exists at zero from its declaration on. */
export declare class Metrics {
  constructor(options?: { readonly processMetrics?: boolean });
  counter<const L extends LabelDefinitions = Record<never, never>>(definition: MetricDefinition<L>): Counter<L>;
  gauge<const L extends LabelDefinitions = Record<never, never>>(definition: MetricDefinition<L>): Gauge<L>;
  /** A gauge whose values are asked for at each scrape; what it does not set is absent. */
  gaugeFrom<const L extends LabelDefinitions>(
    definition: MetricDefinition<L>,
    collect: (set: (labels: LabelsOf<L>, value: number) => void) => void,
  ): void;
  histogram<const L extends LabelDefinitions = Record<never, never>>(definition: HistogramDefinition<L>): Histogram<L>;
  /** The exposition text. */
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
}
