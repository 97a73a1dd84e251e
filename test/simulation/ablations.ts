/** What breaks when one rule of the design is left out, and the first seed that shows it. Replayed by `ablations.test.ts`. */
import type { Rule } from "../../shared/decide/rules.ts";

export interface Ablation {
  readonly rule: Rule;
  readonly seed: number;
  /** The first invariant that is seen broken. */
  readonly invariant: string;
}

export const ABLATIONS: readonly Ablation[] = [
  { rule: "R1", seed: 2, invariant: "L1" },
  { rule: "R2DeleteOnly", seed: 5, invariant: "S5" },
  { rule: "R3", seed: 1, invariant: "L1" },
  { rule: "R3Settle", seed: 1, invariant: "S8" },
  { rule: "WeightFollowsAvailable", seed: 2, invariant: "S6" },
  { rule: "Fence", seed: 6, invariant: "S4" },
  { rule: "PinImmature", seed: 7, invariant: "S8" },
  { rule: "RepeatRefresh", seed: 1, invariant: "S8" },
];
