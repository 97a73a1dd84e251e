/** Which protectors the table shows, and in which order. Pure. */
import { type Health, type HealthState, healthOf, rankOf } from "../../health.ts";
import { type ProtectorRow, UNKNOWN_MS } from "../page-messages.ts";

export const PAGE_ROWS = 50;

export interface RowFilter {
  /** Words, each of which is in the name or the namespace. */
  readonly text: string;
  readonly health?: Health | undefined;
  readonly state?: HealthState | undefined;
  readonly namespace?: string | undefined;
  /** Index in the list of cells. */
  readonly cell?: number | undefined;
}

export const NO_FILTER: RowFilter = { text: "" };

export type SortKey = "state" | "name" | "spare" | "reserved" | "oldest";

export interface RowOrder {
  readonly key: SortKey;
  readonly isReversed: boolean;
}

export const WORST_FIRST: RowOrder = { key: "state", isReversed: false };

export const spareOf = ({ available, required }: ProtectorRow): number => available - required;

export function filterRows(rows: Iterable<ProtectorRow>, filter: RowFilter): ProtectorRow[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const kept: ProtectorRow[] = [];
  for (const row of rows) {
    const { state, namespace, name, cells } = row;
    if (filter.state !== undefined && state !== filter.state) continue;
    if (filter.health !== undefined && healthOf(state) !== filter.health) continue;
    if (filter.namespace !== undefined && namespace !== filter.namespace) continue;
    if (filter.cell !== undefined && !cells.includes(filter.cell)) continue;
    if (words.length > 0) {
      const text = `${namespace}/${name}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    kept.push(row);
  }
  return kept;
}

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const byName = (a: ProtectorRow, b: ProtectorRow): number =>
  compareText(a.namespace, b.namespace) || compareText(a.name, b.name) || a.core - b.core;

/** A row without a reservation comes last. */
const oldestOf = ({ oldestMs }: ProtectorRow): number => (oldestMs === UNKNOWN_MS ? Number.MAX_SAFE_INTEGER : oldestMs);

/** Each sorts the worst first, and equal ones by name. */
const COMPARE: Readonly<Record<SortKey, (a: ProtectorRow, b: ProtectorRow) => number>> = {
  state: (a, b) => rankOf(a.state) - rankOf(b.state) || spareOf(a) - spareOf(b),
  name: byName,
  spare: (a, b) => spareOf(a) - spareOf(b),
  reserved: (a, b) => b.reserved - a.reserved,
  oldest: (a, b) => oldestOf(a) - oldestOf(b),
};

export function sortRows(rows: readonly ProtectorRow[], { key, isReversed }: RowOrder): ProtectorRow[] {
  const compare = COMPARE[key];
  const sign = isReversed ? -1 : 1;
  return rows.toSorted((a, b) => sign * compare(a, b) || byName(a, b));
}

/** How many protectors are in each state. */
export function countStates(rows: Iterable<ProtectorRow>): ReadonlyMap<HealthState, number> {
  const counts = new Map<HealthState, number>();
  for (const { state } of rows) counts.set(state, (counts.get(state) ?? 0) + 1);
  return counts;
}

export function namespacesOf(rows: Iterable<ProtectorRow>): readonly string[] {
  return [...new Set([...rows].map(({ namespace }) => namespace))].sort();
}
