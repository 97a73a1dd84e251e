/** Which rules a search can show to be needed, and in which bounds: the smallest world in which the rule matters. */
import type { Rule } from "../simulation/ablation/rules.ts";
import { type Bounds, DEFAULTS } from "./bounds.ts";

export interface LeftOutRule {
  readonly rule: Rule;
  /** Broken without the rule. */
  readonly invariant: string;
  readonly bounds: Bounds;
}

function leftOut(rule: Rule, invariant: string, bounds: Partial<Bounds> = {}): LeftOutRule {
  return { rule, invariant, bounds: { ...DEFAULTS, faults: 0, ...bounds } };
}

export const LEFT_OUT_RULES: readonly LeftOutRule[] = [
  leftOut("R1", "L1"),
  leftOut("R1Position", "S5", { later: 1 }),
  leftOut("R2", "L1"),
  leftOut("R2DeleteOnly", "S5"),
  leftOut("R3", "L1"),
  leftOut("R3Settle", "S5"),
  leftOut("WeightFollowsAvailable", "S6"),
  leftOut("Fence", "S4", { faults: 1 }),
  leftOut("RepeatRefresh", "S8"),
  leftOut("Paid", "S1", { minAvailable: 2, changes: 2 }),
  leftOut("PinEviction", "S8", { changes: 2 }),
  leftOut("PinWeight", "S1", { changes: 2 }),
  leftOut("LiveRead", "S1", { changes: 2 }),
  leftOut("RepeatNeedsWeight", "S1", { minAvailable: 2, changes: 2 }),
  leftOut("Reserved", "S1"),
  leftOut("PinImmature", "S1", { minReadySeconds: 1, changes: 2 }),
  leftOut("MaturityPosition", "S1", { minReadySeconds: 1, changes: 2 }),
  leftOut("DecideAgain", "S1"),
  leftOut("DecideTogether", "S1"),
  leftOut("SpecHash", "S1", { faults: 1 }),
  leftOut("LostHistory", "S1", { faults: 1 }),
  leftOut("Hold", "S1", { faults: 1 }),
  leftOut("Heard", "S5", { faults: 1 }),
  leftOut("Epoch", "S3", { pods: 1, minAvailable: 0, admissions: 0, faults: 2 }),
  leftOut("RollbackByNonce", "S5"),
];
