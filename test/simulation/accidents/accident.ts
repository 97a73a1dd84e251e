/** An accident: several things that happen one after the other, each harmless, of which a rule of the design knows the sum. */
import type { Scenario } from "../world/scenario.ts";
import type { Acts } from "./acts.ts";
import type { AccidentName } from "./names.ts";

export interface Accident {
  readonly name: AccidentName;
  /** Where specs stay and no history is lost, so that S2 is checked as well. */
  readonly isSteady: boolean;
  /** Whether it can happen in such a world; default: in every one. */
  isPossible?(scenario: Scenario): boolean;
  happen(acts: Acts): Promise<void>;
}
