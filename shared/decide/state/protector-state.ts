/**
 * One PodProtector for decisions: its parsed spec and cells, in a form that a batch can change. Read this file, then
 * `estimate.ts` (how many pods are left), `conditions.ts` and `encode-status.ts` (the status to write).
 */
import { SOURCE_KIND_LABEL } from "../../schema/annotations.ts";
import type { Aggregation, CellStatus, PodProtector } from "../../schema/podprotector.ts";
import { parseMs } from "../../schema/time.ts";
import type { PublishedCounts } from "../availability/availability.ts";
import { type SpecFacts, specFacts } from "../availability/spec-facts.ts";
import { Ledger } from "../ledger/ledger.ts";

export interface CellState {
  readonly cellID: string;
  readonly aggregation: Aggregation | undefined;
  readonly ledger: Ledger;
  /** An aggregator has counted this cell. False for an entry that only a webhook has written. */
  readonly isCounted: boolean;
  /** The cell's history may be incomplete (docs/design.md#lost-history). */
  readonly isOnHold: boolean;
  /**
   * The cell was counted under the current spec, or by upstream's aggregator, which does not publish the spec's hash.
   */
  readonly isCurrent: boolean;
  /** The published maturity cutoff of a count under the current spec, Unix milliseconds. */
  readonly maturityCutoffMs: number | undefined;
  /** The entry that was read; undefined for an entry that this process adds. */
  readonly stored: CellStatus | undefined;
}

export interface ProtectorState {
  readonly spec: SpecFacts;
  /** The protector was made from a PodUnavailableBudget, whose users exempt pods by OpenKruise's annotation. */
  readonly followsNoProtect?: boolean;
  /** By cellID, in the order of the object. */
  readonly cells: Map<string, CellState>;
}

export function parseProtector(protector: PodProtector): ProtectorState {
  const spec = specFacts(protector.spec);
  const cells = new Map<string, CellState>();
  for (const stored of protector.status?.cells ?? []) cells.set(stored.cellID, parseCell(stored, spec));
  const followsNoProtect = protector.metadata.labels?.[SOURCE_KIND_LABEL] === "PodUnavailableBudget";
  return { spec, cells, followsNoProtect };
}

/** `ledger` is the cell's history, if the caller has already parsed it. */
export function parseCell(
  stored: CellStatus,
  spec: SpecFacts,
  ledger: Ledger = Ledger.parse(stored.admissionHistory?.buckets),
): CellState {
  const aggregation = stored.aggregation ?? undefined;
  const isOfThisSpec = aggregation?.specHash === spec.specHash;
  return {
    cellID: stored.cellID,
    aggregation,
    ledger,
    isCounted: isCounted(aggregation),
    isOnHold: aggregation?.hold !== undefined,
    isCurrent: aggregation?.specHash === undefined || isOfThisSpec,
    maturityCutoffMs:
      isOfThisSpec && aggregation.maturityCutoff !== undefined ? parseMs(aggregation.maturityCutoff) : undefined,
    stored,
  };
}

/**
 * Upstream's webhook adds entries with an all-zero aggregation. An aggregator's entry has a position, or the time of an
 * event.
 */
export function isCounted(aggregation: Aggregation | undefined): boolean {
  return (aggregation?.resourceVersion ?? aggregation?.lastEventTime ?? undefined) !== undefined;
}

/** Only an entry that `remove-cell-once` has left behind has an epoch without counts. Its webhook may hold it, too. */
export function isRemoved(aggregation: Aggregation | undefined): boolean {
  return aggregation?.epoch !== undefined && !isCounted(aggregation);
}

/** A copy that can be changed without the original. */
export function cloneState(state: ProtectorState): ProtectorState {
  const cells = new Map<string, CellState>();
  for (const [cellID, cell] of state.cells) cells.set(cellID, { ...cell, ledger: cell.ledger.clone() });
  return { ...state, cells };
}

/** Upper bound of the bytes of all reservations. */
export function historyBytesAtMost({ cells }: ProtectorState): number {
  let bytes = 0;
  for (const { ledger } of cells.values()) bytes += ledger.bytesAtMost;
  return bytes;
}

/** The cell's entry; adds an absent one. */
export function cellOf(state: ProtectorState, cellID: string): CellState {
  const known = state.cells.get(cellID);
  if (known !== undefined) return known;
  const added: CellState = { ...parseCell({ cellID }, state.spec), stored: undefined };
  state.cells.set(cellID, added);
  return added;
}

/** What the cell has published about its counts. */
export function publishedCounts(cell: CellState | undefined): PublishedCounts | undefined {
  if (cell?.aggregation === undefined) return undefined;
  const { resourceVersion: position, leftOut } = cell.aggregation;
  return { cutoffMs: cell.maturityCutoffMs, position, leftOut };
}
