/** One PodProtector as the webhook decides on it (design 5.3): a parsed view that a batch can change. */
import type { Aggregation, CellStatus, PodProtector, PodProtectorStatus } from "../../schema/podprotector.ts";
import { type SpecFacts, specFacts } from "../availability/spec-facts.ts";
import { Ledger } from "../ledger/ledger.ts";
import { parseMs } from "../time.ts";
import type { CellState, ProtectorState } from "./cell-state.ts";
import { summarize } from "./summary.ts";

export function parseProtector(protector: PodProtector): ProtectorState {
  const spec = specFacts(protector.spec);
  const cells = new Map<string, CellState>();
  for (const stored of protector.status?.cells ?? []) cells.set(stored.cellID, parseCell(stored, spec));
  return { spec, cells };
}

export function parseCell(stored: CellStatus, spec: SpecFacts): CellState {
  const aggregation = stored.aggregation ?? undefined;
  const isOfThisSpec = aggregation?.specHash === spec.specHash;
  return {
    cellID: stored.cellID,
    aggregation,
    ledger: Ledger.parse(stored.admissionHistory?.buckets),
    isCounted: isCounted(aggregation),
    isOnHold: aggregation?.hold !== undefined,
    isCurrent: aggregation?.specHash === undefined || isOfThisSpec,
    maturityCutoffMs:
      isOfThisSpec && aggregation.maturityCutoff !== undefined ? parseMs(aggregation.maturityCutoff) : undefined,
    stored,
  };
}

/** Upstream's webhook adds entries with an all-zero aggregation; an aggregator's has a position or the time of an event. */
export function isCounted(aggregation: Aggregation | undefined): boolean {
  return (aggregation?.resourceVersion ?? aggregation?.lastEventTime ?? undefined) !== undefined;
}

/** A copy that can be changed without the original. */
export function cloneState(state: ProtectorState): ProtectorState {
  const cells = new Map<string, CellState>();
  for (const [cellID, cell] of state.cells) cells.set(cellID, { ...cell, ledger: cell.ledger.clone() });
  return { spec: state.spec, cells };
}

/** The cell's entry, which is added when it is not there. */
export function cellOf(state: ProtectorState, cellID: string): CellState {
  const known = state.cells.get(cellID);
  if (known !== undefined) return known;
  const added: CellState = {
    cellID,
    aggregation: undefined,
    ledger: Ledger.parse(undefined),
    isCounted: false,
    isOnHold: false,
    isCurrent: true,
    maturityCutoffMs: undefined,
    stored: undefined,
  };
  state.cells.set(cellID, added);
  return added;
}

/**
 * The status to write: cells whose history has changed are encoded anew, everything else is kept as it was, unknown fields
 * included. `nowMs` is the wall clock, for the summary.
 */
export function encodeStatus(
  state: ProtectorState,
  previous: PodProtectorStatus | undefined,
  nowMs: number,
): PodProtectorStatus {
  const cells = [...state.cells.values()].map((cell) => encodeCell(cell, state.spec.compactThreshold));
  return { ...previous, cells, summary: summarize(state, previous?.summary, nowMs) };
}

function encodeCell(cell: CellState, compactThreshold: number): CellStatus {
  const { stored, ledger, aggregation } = cell;
  if (stored !== undefined && !ledger.changed && aggregation === (stored.aggregation ?? undefined)) return stored;
  const buckets = ledger.changed ? ledger.encode(compactThreshold) : (stored?.admissionHistory?.buckets ?? []);
  return {
    ...stored,
    cellID: cell.cellID,
    ...(aggregation === undefined ? {} : { aggregation }),
    admissionHistory: { ...stored?.admissionHistory, buckets },
  };
}
