/**
 * The mark that the update trigger writes to its dummy pod, which shows a restore of the cell's etcd even to a process
 * that reads it late (docs/design.md#lost-history): a counter, and its lineage, which records where each process began
 * to count. After a restore, the counter soon passes its earlier value. But the process that continues from the older
 * state begins a segment at a number that others have already seen.
 */
import { UPDATE_TRIGGER_COUNTER_ANNOTATION, UPDATE_TRIGGER_LINEAGE_ANNOTATION } from "../../schema/annotations.ts";

/** A process that counted from `from` on. */
export interface LineageSegment {
  readonly from: number;
  readonly token: string;
}

export interface TriggerMark {
  /** Number of patches of the pod, across deletions and creations. */
  readonly counter: number;
  /** Oldest first, at most {@link MAX_LINEAGE}; empty where another component counts. */
  readonly lineage: readonly LineageSegment[];
}

/** Older segments are dropped. A reader that has missed this many segments assumes a restore. */
export const MAX_LINEAGE = 16;

const COUNT = /^[0-9]{1,15}$/;
const SEGMENT = /^([0-9]{1,15}):([A-Za-z0-9_-]{1,32})$/;

/** The mark in a pod's annotations; undefined without a counter. An unreadable lineage counts as empty. */
export function parseTriggerMark(annotations: Readonly<Record<string, string>> | undefined): TriggerMark | undefined {
  const counter = annotations?.[UPDATE_TRIGGER_COUNTER_ANNOTATION];
  if (counter === undefined || !COUNT.test(counter)) return undefined;
  const segments = (annotations?.[UPDATE_TRIGGER_LINEAGE_ANNOTATION] ?? "").split(",").map(parseSegment);
  return { counter: Number(counter), lineage: segments.filter((segment) => segment !== undefined) };
}

function parseSegment(text: string): LineageSegment | undefined {
  const [, from, token] = SEGMENT.exec(text) ?? [];
  return from === undefined || token === undefined ? undefined : { from: Number(from), token };
}

/** The annotations of a mark. */
export function formatTriggerMark({ counter, lineage }: TriggerMark): Record<string, string> {
  return {
    [UPDATE_TRIGGER_COUNTER_ANNOTATION]: String(counter),
    [UPDATE_TRIGGER_LINEAGE_ANNOTATION]: lineage.map(({ from, token }) => `${from}:${token}`).join(","),
  };
}

/** The mark that the process of this token writes after `stored`. */
export function nextTriggerMark({ counter, lineage }: TriggerMark, token: string): TriggerMark {
  const next = counter + 1;
  if (lineage.at(-1)?.token === token) return { counter: next, lineage };
  return { counter: next, lineage: [...lineage, { from: next, token }].slice(-MAX_LINEAGE) };
}

/**
 * True when `found` does not continue the earlier mark `known`, because the store was restored to an older state. Where
 * a process creates the pod again without having known the earlier one, its segment begins after every known number,
 * which is not a restore.
 */
export function isForked(known: TriggerMark, found: TriggerMark): boolean {
  if (found.counter < known.counter) return true;
  const last = known.lineage.at(-1);
  if (last === undefined) return false;
  const index = found.lineage.findIndex(({ from, token }) => from === last.from && token === last.token);
  // Without a common segment, the first one.
  const successor = found.lineage[index + 1];
  if (successor !== undefined && successor.from <= known.counter) return true;
  return index < 0 && found.lineage.length >= MAX_LINEAGE;
}
