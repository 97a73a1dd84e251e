/** Sums over all protectors. Pure, except for the growing list of cell names. */

import { type CellRow, type FleetPoint, type ProtectorRow, type ReservationRow, UNKNOWN_MS } from "./page-messages.ts";
import type { CellShare } from "./rows.ts";

/** More cells than any installation has. */
const MAX_CELL_NAMES = 1000;
const MAX_RESERVATIONS = 100;

/** Rows name cells by their index in one list. */
export class CellNames {
  readonly #indexes = new Map<string, number>();

  get all(): string[] {
    return [...this.#indexes.keys()];
  }

  /** -1 for a cell beyond {@link MAX_CELL_NAMES}. */
  indexOf(cell: string): number {
    const known = this.#indexes.get(cell);
    if (known !== undefined) return known;
    if (this.#indexes.size >= MAX_CELL_NAMES) return -1;
    this.#indexes.set(cell, this.#indexes.size);
    return this.#indexes.size - 1;
  }
}

export function fleetCounts(shown: Iterable<{ readonly row: ProtectorRow }>): Omit<FleetPoint, "atMs" | "denied"> {
  const sum = { available: 0, required: 0, reserved: 0, missing: 0 };
  for (const { row } of shown) {
    sum.available += row.available;
    sum.required += row.required;
    sum.reserved += row.reserved;
    sum.missing += Math.max(0, row.required - row.available);
  }
  return sum;
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

export function cellRows(shown: Iterable<{ readonly core: number; readonly shares: readonly CellShare[] }>): CellRow[] {
  const cells = new Map<string, Writable<CellRow>>();
  for (const { core, shares } of shown) {
    for (const { cell, state, available, reserved, heartbeatMs } of shares) {
      const key = `${core}/${cell}`;
      const zero = { protectors: 0, available: 0, reserved: 0, onHold: 0, stale: 0, notCounted: 0 };
      const row = cells.get(key) ?? { core, cell, ...zero, newestMs: UNKNOWN_MS, oldestMs: UNKNOWN_MS };
      cells.set(key, row);
      row.protectors++;
      row.available += available;
      row.reserved += reserved;
      row.newestMs = Math.max(row.newestMs, heartbeatMs);
      if (heartbeatMs !== UNKNOWN_MS)
        row.oldestMs = row.oldestMs === UNKNOWN_MS ? heartbeatMs : Math.min(row.oldestMs, heartbeatMs);
      if (state === "on hold") row.onHold++;
      else if (state === "stale") row.stale++;
      else if (state !== "ok") row.notCounted++;
    }
  }
  return [...cells.values()].sort((a, b) => a.core - b.core || (a.cell < b.cell ? -1 : 1));
}

/** The oldest reservations, and the number of all. */
export function oldestReservations(
  shown: Iterable<{ readonly reservations: readonly ReservationRow[]; readonly reservationCount: number }>,
): { all: number; oldest: ReservationRow[] } {
  let all = 0;
  const every: ReservationRow[] = [];
  for (const { reservations, reservationCount } of shown) {
    all += reservationCount;
    every.push(...reservations);
  }
  return { all, oldest: every.sort((a, b) => a.sinceMs - b.sinceMs).slice(0, MAX_RESERVATIONS) };
}
