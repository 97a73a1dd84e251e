/** One PodProtector and its cells, parsed, as decisions and summaries read it. */
import type { Aggregation, CellStatus } from "../../schema/podprotector.ts";
import type { SpecFacts } from "../availability/spec-facts.ts";
import type { Ledger } from "../ledger/ledger.ts";

export interface CellState {
  readonly cellID: string;
  readonly aggregation: Aggregation | undefined;
  readonly ledger: Ledger;
  /** An aggregator has counted this cell. An entry that only a webhook has written is not counted. */
  readonly isCounted: boolean;
  /** Its history may be incomplete (design 5.4). */
  readonly isOnHold: boolean;
  /** Counted under the spec of today, or by an aggregator that does not say under which (upstream's). */
  readonly isCurrent: boolean;
  /** Of a count under the spec of today: the published maturity cutoff, Unix milliseconds. */
  readonly maturityCutoffMs: number | undefined;
  /** As it was read; undefined for an entry that this process adds. */
  readonly stored: CellStatus | undefined;
}

export interface ProtectorState {
  readonly spec: SpecFacts;
  /** By cellID, in the order of the object. */
  readonly cells: Map<string, CellState>;
}
