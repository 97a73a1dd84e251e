/** How long a denial lasts, by the state of its protector: until a hold ends, for ever, or until somebody acts. */
import { holdWrittenMs } from "../../shared/decide/state/hold.ts";
import type { CellState, ProtectorState } from "../../shared/decide/state/protector-state.ts";
import { type PodProtector, STALE_AFTER_MS } from "../../shared/schema/podprotector.ts";
import { formatMs, parseMs } from "../../shared/schema/time.ts";
import type { Denial } from "../reserve/verdict.ts";

export interface DenialContext {
  /** Namespace in the commands that the text recommends. */
  readonly ownNamespace: string;
  /** The pod's cell; undefined where it is not known. */
  readonly cell?: string;
  readonly hasSeveralCores: boolean;
  /** Wall clock, Unix milliseconds. */
  readonly nowMs: number;
  /** How long a hold lasts. */
  readonly settleMs: number;
  /** Who asks, as the request says. */
  readonly username?: string | undefined;
}

/** The controllers of cascading deletion: of owners, also in the foreground, and of namespaces. */
export const CASCADING_DELETERS = /:(generic-garbage-collector|namespace-controller)$/;

/** When the hold of the denial's cell ends; "" where the time is not known, or has passed. */
export function holdEnd(decision: Denial["decision"], { cell, nowMs, settleMs }: DenialContext): string {
  const cells = decision.kind === "denied" ? (decision.version?.state.cells.values() ?? []) : [];
  const own = [...cells].filter(({ cellID }) => cellID === (cell ?? cellID));
  const writtenMs = own.map(({ aggregation }) => holdWrittenMs(aggregation?.hold ?? "") ?? 0);
  const endMs = Math.max(0, ...writtenMs) + settleMs;
  if (endMs <= nowMs || endMs > nowMs + settleMs) return "";
  return ` until about ${formatMs(endMs).slice(11, 19)} UTC (${Math.ceil((endMs - nowMs) / 1000)} s)`;
}

/** A hold that is older than this many settle periods does not end as it should. */
const OVERDUE_PERIODS = 4;

/** A cell of the protector whose components do not do their part. */
interface StuckCell {
  readonly cellID: string;
  /** Names the alert that fires then. */
  readonly text: string;
  readonly isSilent: boolean;
}

/**
 * The cells whose aggregator has written nothing, or has ended no hold, for longer than it ever should. One that was
 * lost with the protector may have nothing but its reservations, which nobody settles.
 */
export function stuckCells(decision: Denial["decision"], { nowMs, settleMs }: DenialContext): readonly StuckCell[] {
  if (decision.kind !== "denied" || decision.decision.cause === "PreActivity") return [];
  return [...(decision.version?.state.cells.values() ?? [])].flatMap((cell): StuckCell[] => {
    const { cellID, aggregation } = cell;
    const heardMs = parseMs(aggregation?.heartbeatTime);
    if (heardMs > 0 && nowMs - heardMs > STALE_AFTER_MS) {
      const silence = `has been silent for ${lasting(nowMs - heardMs)} (see PodseidonCellStale)`;
      return [{ cellID, text: `the aggregator of ${cellID} ${silence}`, isSilent: true }];
    }
    const heldMs = holdWrittenMs(aggregation?.hold ?? "");
    const sinceMs = heldMs ?? (cell.isCounted ? undefined : oldestMs(cell));
    if (sinceMs === undefined || nowMs - sinceMs <= OVERDUE_PERIODS * settleMs) return [];
    const time = lasting(nowMs - sinceMs);
    const isSilent = heldMs === undefined;
    const state = isSilent
      ? `has not been counted for ${time} (see PodseidonCellStale)`
      : `has been on hold for ${time} (see PodseidonCellOnHold)`;
    return [{ cellID, text: `cell ${cellID} ${state}`, isSilent }];
  });
}

/** Of each version of a cell, as {@link newestOf}. */
const oldestOf = new WeakMap<CellState, number>();

/** When the oldest reservation of the cell was first allowed; the end of time without one. */
function oldestMs(cell: CellState): number {
  let oldest = oldestOf.get(cell) ?? Infinity;
  if (oldest < Infinity) return oldest;
  for (const { records } of cell.ledger.reservations())
    for (const { firstMicros } of records.values()) oldest = Math.min(oldest, firstMicros / 1000);
  for (const { startMicros } of cell.ledger.ranges) oldest = Math.min(oldest, startMicros / 1000);
  oldestOf.set(cell, oldest);
  return oldest;
}

function lasting(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

/** True where the spare pods are in cells that have to be counted first: no reservation that ends gives quota. */
export function waitsForCells(decision: Denial["decision"]): boolean {
  if (decision.kind !== "denied") return false;
  const { unreliable, available, minAvailable } = decision.decision.facts;
  return unreliable > 0 && available - unreliable <= minAvailable;
}

/** An aggregator sees an allowed disruption within seconds, unless something else has denied it. */
const UNDER_WAY_MS = 10_000;

/** Of each version of a protector, because one version may deny thousands of requests. */
const newestOf = new WeakMap<ProtectorState, number>();

/** When the newest reservation that holds quota was first allowed, in microseconds; 0 without one. */
function newestMicros(state: ProtectorState): number {
  const known = newestOf.get(state);
  if (known !== undefined) return known;
  let newest = 0;
  for (const { ledger } of state.cells.values())
    for (const { weight, records } of ledger.reservations())
      if (weight > 0) for (const one of records.values()) newest = Math.max(newest, one.firstMicros);
  newestOf.set(state, newest);
  return newest;
}

/** True where every reservation that uses quota was first allowed longer ago. */
export function isHeldUp(decision: Denial["decision"], { nowMs }: DenialContext): boolean {
  if (decision.kind !== "denied" || decision.version === undefined) return false;
  const newest = newestMicros(decision.version.state);
  return newest > 0 && newest < (nowMs - UNDER_WAY_MS) * 1000;
}

/** The protector, where no more pods match than must be available. */
export function impossibleOne(decision: Denial["decision"]): PodProtector | undefined {
  if (decision.kind !== "denied" || decision.decision.cause !== "AtMinimum") return undefined;
  const { version } = decision;
  if (version === undefined) return undefined;
  const { spec, cells } = version.state;
  let total = 0;
  for (const { aggregation } of cells.values()) total += aggregation?.totalReplicas ?? 0;
  return total > 0 && total <= spec.minAvailable ? version.object : undefined;
}
