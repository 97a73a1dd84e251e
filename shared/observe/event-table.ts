/**
 * How the events of a component are reported, as one table: a row for each kind of event has its log line, its metric
 * and its Kubernetes Event.
 */
import type { Clock } from "../runtime/clock.ts";
import type { LogLevel } from "../runtime/options/common-options.ts";
import type { EventNote, EventRecorder } from "./event-recorder.ts";
import type { Log, LogFields } from "./log.ts";
import type { LabelDefinitions, LabelsOf, MetricDefinition, Metrics } from "./metrics.ts";

/** How one kind of event is reported. Without `level` and `line`, there is no log line. */
export interface EventRow<E> {
  readonly level?: LogLevel;
  /** Constant; everything that varies is in the fields. */
  readonly message?: string;
  /** Level and message, where one kind of event has several. */
  line?(event: E): readonly [LogLevel, string];
  /** All fields of the event but `kind` by default; undefined suppresses the line. */
  fields?(event: E): LogFields | undefined;
  count?(event: E): void;
  note?(event: E): EventNote;
}

/** A row for every `kind` of a union. */
export type EventTable<E extends { readonly kind: string }> = {
  readonly [K in E["kind"]]: EventRow<E & { readonly kind: K }>;
};

export interface EventSinks<E> {
  readonly log: Log;
  /** Writes the Kubernetes Events of rows with `note`. */
  readonly events?: Pick<EventRecorder, "record">;
  /** The log fields of rows without `fields`; by default all fields of the event but `kind`. */
  readonly fields?: (event: E) => LogFields;
}

/** Returns the `onEvent` of a component, which reports events by the table. */
export function observeEvents<E extends { readonly kind: string }>(
  { log, events, fields: defaultFields = withoutKind }: EventSinks<E>,
  table: EventTable<E>,
): (event: E) => void {
  return (event) => {
    const kind: E["kind"] = event.kind;
    const row: EventRow<E> = table[kind];
    row.count?.(event);
    const [level, message = ""] = row.line?.(event) ?? [row.level, row.message];
    if (level !== undefined) {
      const fields = row.fields === undefined ? defaultFields(event) : row.fields(event);
      if (fields !== undefined) log[level](fields, message);
    }
    if (row.note !== undefined) events?.record(row.note(event));
  };
}

function withoutKind({ kind: _, ...fields }: { readonly kind: string }): LogFields {
  return fields;
}

export interface EventCounter<E, L extends LabelDefinitions> extends MetricDefinition<L> {
  /** The labels of one event. */
  of(event: E): LabelsOf<L>;
}

/** Declares a counter; returns the `count` of the rows that it counts. */
export function counted<E, const L extends LabelDefinitions = Record<never, never>>(
  metrics: Metrics,
  definition: EventCounter<E, L>,
): (event: E) => void {
  const counter = metrics.counter<L>(definition);
  return (event) => counter.inc(definition.of(event));
}

/** For `fields`: suppresses a line with the same `text` as the previous line. */
export function unlessRepeated(): (text: string, fields: LogFields) => LogFields | undefined {
  let last = "";
  return (text, fields) => {
    if (text === last) return undefined;
    last = text;
    return fields;
  };
}

/** For `fields`: one line of a key in `everyMs`, with the number of suppressed ones as `more`. */
export function limitLines(
  clock: Pick<Clock, "monotonicMs">,
  everyMs: number,
): (key: string, fields: LogFields) => LogFields | undefined {
  const written = new Map<string, { readonly atMs: number; more: number }>();
  return (key, fields) => {
    const last = written.get(key);
    const nowMs = clock.monotonicMs();
    if (last !== undefined && nowMs - last.atMs < everyMs) {
      last.more++;
      return undefined;
    }
    written.set(key, { atMs: nowMs, more: 0 });
    return { ...fields, more: last?.more ?? 0 };
  };
}
