/**
 * An accident: several events in an unlucky order. Each event is harmless, and a rule of the protocol handles all of
 * them together.
 */
import type { Scenario } from "../scenario/scenario.ts";
import type { AccidentStage } from "./accident-stage.ts";

/** All accidents, by the names in the coverage. */
export const ACCIDENTS = [
  "a pod flaps unseen and is deleted",
  "a pod is ready by the time its eviction is recorded",
  "a pod is deleted that the aggregator has not seen",
  "a pod changes between review and commit, and is reviewed again",
  "a cell's entry is removed during a deletion",
  "a core is restored to before a deletion in progress",
  "a core is restored while all replicas are stopped",
  "a cell is restored to before a change of a pod that is deleted",
  "a leader that is cut off counts a lost history",
  "no core answers",
  "one of two protectors no longer allows",
  "one of two cores does not answer, and the API server allows the request",
  "a selector is narrowed before its pods are counted",
  "a protector is created, and a replica starts on a lagging cache",
] as const;
type AccidentName = (typeof ACCIDENTS)[number];

export interface Accident {
  readonly name: AccidentName;
  /** The accident changes no spec and loses no history, so that S2 can be checked. */
  readonly isSteady: boolean;
  /** Whether the accident can happen in such a world; default: in every world. */
  isPossible?(scenario: Scenario): boolean;
  happen(acts: AccidentStage): Promise<void>;
}
