/**
 * For each rule of the design a random world that misses it: with accidents (`--with accidents`) the seed breaks nothing, and the invariant
 * of the rule's scene when the rule is left out. The first from seed 60000 on, found by `npm run simulate -- --seeds-needed`.
 */
import type { Rule } from "./ablation/rules.ts";

export const MISSED: readonly { readonly rule: Rule; readonly seed: number }[] = [
  { rule: "R1", seed: 60000 },
  { rule: "R1Position", seed: 60008 },
  { rule: "R2", seed: 60000 },
  { rule: "R2DeleteOnly", seed: 60000 },
  { rule: "Heard", seed: 60028 },
  { rule: "R3", seed: 60002 },
  { rule: "R3Settle", seed: 60000 },
  { rule: "WeightFollowsAvailable", seed: 60001 },
  { rule: "Fence", seed: 60005 },
  { rule: "Epoch", seed: 60007 },
  { rule: "Hold", seed: 60001 },
  { rule: "SpecHash", seed: 60015 },
  { rule: "RepeatRefresh", seed: 60000 },
  { rule: "Paid", seed: 60088 },
  { rule: "PinImmature", seed: 60264 },
  { rule: "PinEviction", seed: 60000 },
  { rule: "MaturityPosition", seed: 60007 },
  { rule: "PinWeight", seed: 60000 },
  { rule: "LiveRead", seed: 60014 },
  { rule: "RepeatNeedsWeight", seed: 60047 },
  { rule: "Reserved", seed: 60000 },
  { rule: "Reached", seed: 60029 },
  { rule: "ConsistentList", seed: 60028 },
  { rule: "LostHistory", seed: 60008 },
  { rule: "Reassert", seed: 60006 },
  { rule: "OwnAnswers", seed: 60115 },
  { rule: "Standstill", seed: 60016 },
  { rule: "ConfirmedCache", seed: 60029 },
  { rule: "AllAgree", seed: 60001 },
  { rule: "RollbackByNonce", seed: 60011 },
  { rule: "RollbackRefused", seed: 60116 },
  { rule: "UnknownOutcome", seed: 60000 },
  { rule: "DecideAgain", seed: 60002 },
  { rule: "DecideTogether", seed: 60003 },
  { rule: "ConfirmRefusal", seed: 60001 },
  { rule: "Deadline", seed: 60001 },
];
