/** How many pods of a protector are counted, reserved, and certainly available (docs/design.md#admission). */
import type { Aggregation } from "../../schema/podprotector.ts";
import { notReadyOf } from "../availability/availability.ts";
import type { CellState, ProtectorState } from "./protector-state.ts";

export const CRITERIA = ["Available", "Ready", "Running", "Scheduled"] as const;
/**
 * Which count is compared with `minAvailable` (pod annotation `health-criterion`). Available is the protector's own.
 */
export type Criterion = (typeof CRITERIA)[number];

export interface Estimate {
  /** All pods that the criterion counts, including those of cells on hold or counted for another spec. */
  readonly available: number;
  /** Counted pods of cells that are not reliable. */
  readonly unreliable: number;
  /** Sum of weights; for another criterion, the number of reservations. */
  readonly reserved: number;
  /** Counted pods of reliable cells that are neither reserved nor Ready yet. */
  readonly notReady: number;
  /** Available pods of reliable cells that are Ready and not reserved. */
  readonly estimated: number;
}

export function estimate(state: ProtectorState, criterion: Criterion = "Available"): Estimate {
  let available = 0;
  let unreliable = 0;
  let reserved = 0;
  let notReady = 0;
  let estimated = 0;
  for (const cell of state.cells.values()) {
    const inCell = cell.aggregation === undefined ? 0 : countOf(cell.aggregation, criterion);
    const reservedInCell = reservedOf(cell, criterion);
    available += inCell;
    reserved += reservedInCell;
    if (!isReliable(cell)) {
      unreliable += inCell;
      continue;
    }
    const waiting = criterion === "Available" || criterion === "Ready" ? notReadyIn(cell.aggregation) : 0;
    notReady += waiting;
    estimated += Math.max(0, inCell - reservedInCell - waiting);
  }
  return { available, unreliable, reserved, notReady, estimated };
}

/**
 * How many of the counted pods are neither reserved nor Ready yet (docs/design.md#counted-gate): no disruption may rely
 * on them before their kubelet has set Ready.
 */
export function notReadyIn(aggregation: Aggregation | null | undefined): number {
  return notReadyOf(aggregation?.notReady, aggregation?.resourceVersion);
}

/**
 * A criterion other than Available can take pods below the minimum, so the protector, or a permission of the caller,
 * has to allow it (docs/design.md#health-criterion). Available means the protector's own criterion.
 */
export function criterionInForce({ spec }: ProtectorState, asked: Criterion, isPermitted = false): Criterion {
  if (asked === spec.healthCriterion) return "Available";
  return isPermitted || spec.allowedHealthCriteria.includes(asked) ? asked : "Available";
}

/**
 * True for a cell that is counted under the current spec and not on hold. No other cell contributes to the estimate.
 */
export function isReliable(cell: CellState): boolean {
  return cell.isCounted && cell.isCurrent && !cell.isOnHold;
}

/** For a criterion other than Available, a reservation counts 1 whatever its weight is: its pod may be Running. */
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
