/** How many pods a protector has (design 5.3): what is counted, what is reserved, and what is left of it. */
import type { Aggregation } from "../../schema/podprotector.ts";
import type { CellState, ProtectorState } from "./protector-state.ts";

export const CRITERIA = ["Available", "Ready", "Running", "Scheduled"] as const;
/** Which count is held against `minAvailable` (design 12, pod annotation `health-criterion`). */
export type Criterion = (typeof CRITERIA)[number];

export interface Estimate {
  /** `Act`: all that is counted, on hold or out of date as it may be. */
  readonly counted: number;
  /** What of it is in cells that can't be relied on. */
  readonly unreliable: number;
  /** Sum of weights. */
  readonly reserved: number;
  /** `Est`: what is certainly left of the cells that can be relied on. */
  readonly estimated: number;
}

/** `Act`, the reservations, and `Est`, by one criterion. */
export function estimate(state: ProtectorState, criterion: Criterion = "Available"): Estimate {
  let counted = 0;
  let unreliable = 0;
  let reserved = 0;
  let estimated = 0;
  for (const cell of state.cells.values()) {
    const inCell = cell.aggregation === undefined ? 0 : countOf(cell.aggregation, criterion);
    const reservedInCell = reservedOf(cell, criterion);
    counted += inCell;
    reserved += reservedInCell;
    if (isReliable(cell)) estimated += Math.max(0, inCell - reservedInCell);
    else unreliable += inCell;
  }
  return { counted, unreliable, reserved, estimated };
}

/** Counted, under the spec of today, and not on hold. The others contribute nothing. */
export function isReliable(cell: CellState): boolean {
  return cell.isCounted && cell.isCurrent && !cell.isOnHold;
}

/** By another criterion than availability, a reservation counts 1 whatever it weighs: its pod may well be Running. */
function reservedOf(cell: CellState, criterion: Criterion): number {
  return criterion === "Available" ? cell.ledger.weight : cell.ledger.size;
}

function countOf(aggregation: Aggregation, criterion: Criterion): number {
  switch (criterion) {
    case "Available":
      return aggregation.availableReplicas;
    case "Ready":
      return Math.max(0, aggregation.readyReplicas ?? 0);
    case "Running":
      return Math.max(0, aggregation.runningReplicas ?? 0);
    case "Scheduled":
      return Math.max(0, aggregation.scheduledReplicas ?? 0);
  }
}
