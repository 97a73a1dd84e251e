/**
 * Which rules of design 5 a test has left out. The simulation shows that each rule is needed by leaving it out and seeing an
 * invariant broken. It sets `globalThis.__ABLATION__` before it runs the shipping code; the build puts `false` in the place of each
 * `isLeftOut("RULE")` (`scripts/ablation-free.ts`), so that no switch ships, which a test of the bundles asserts.
 */

export const RULES = [
  /** 5.2 R1: a dead pod's records are dropped. */
  "R1",
  /** 5.2 R1: only when the snapshot is as new as the reviewed version. Left out: absent means dead. */
  "R1Position",
  /** 5.2 R2: a DELETE of an older version is dropped. */
  "R2",
  /** 5.2 R2 is for DELETE only. Left out: it settles evictions too. */
  "R2DeleteOnly",
  /** 5.2 R1 and R2: only by a stream that was heard since the admission was seen. Left out: by whatever was known before. */
  "Heard",
  /** 5.2 R3: what was never executed is dropped. */
  "R3",
  /** 5.2 R3: only a settle period after first sight. Left out: any evidence will do. */
  "R3Settle",
  /** 5.2: w follows AV. Left out: w stays what the webhook wrote. */
  "WeightFollowsAvailable",
  /** 5.2: no write from a snapshot that is older than the stored one. */
  "Fence",
  /** 5.4: no write with an epoch that is older than the stored one. */
  "Epoch",
  /** 5.4: a cell on hold contributes nothing and admits nothing. */
  "Hold",
  /** 5.3: a cell counted under another spec contributes nothing. */
  "SpecHash",
  /** 5.3: a repeat is recorded, with the larger version. Left out: it is admitted without a write. */
  "RepeatRefresh",
  /** 5.3: a pin that was never paid for is no repeat. */
  "Paid",
  /** 5.3: a Ready pod that is not mature is pinned. Left out: admitted without a record. */
  "PinImmature",
  /** 5.3: an eviction of a pod that is not available is pinned. Left out: admitted without a record. */
  "PinEviction",
  /** 5.3: immature only as far as the snapshot knows this version of the pod. */
  "MaturityPosition",
  /** 5.3: an eviction's pin counts until the snapshot has caught up with the live read. Left out: it never counts. */
  "PinWeight",
  /** 5.3: the live read of an eviction is newer than the counts it is decided on. Left out: one read is enough. */
  "LiveRead",
  /** 5.3: with w = 0, a repeat of an available pod needs quota. Left out: whoever holds a record is admitted. */
  "RepeatNeedsWeight",
  /** 5.3: the estimate has the reserved pods subtracted. Left out: the counts alone are held against the minimum. */
  "Reserved",
  /** 5.2 R3, 5.4: a LIST proves something once the stream has reached it. Left out: once it is answered. */
  "Reached",
  /** 5.4: lists are quorum reads, or not older than what is known. Left out: whatever a cache has. */
  "ConsistentList",
  /** 5.4: an aggregator that finds its entry behind raises the epoch and holds the cell. */
  "LostHistory",
  /** 5.4: a webhook that sees a protector go back writes its reservations again, and a hold. */
  "Reassert",
  /** 5.4: a list that does not show what an own answer has shown is of another history. Left out: it is taken as it is. */
  "OwnAnswers",
  /** 5.4: a process that stood still may have missed an outage. Left out: it goes on as if no time had passed. */
  "Standstill",
  /** 5.4: a cache decides nothing that was not confirmed current within a bound. */
  "ConfirmedCache",
  /** 5.7: all protectors must agree. Left out: the first one decides. */
  "AllAgree",
  /** 5.7: roll-back removes one nonce. Left out: it removes the record whoever shares it. */
  "RollbackByNonce",
  /** 5.7: rolled back is what was refused, and nothing that the API server may go on with. Left out: any review without a verdict. */
  "RollbackRefused",
  /** 5.7: a write with an unknown outcome is looked for. Left out: it counts as made. */
  "UnknownOutcome",
  /** 5.8: after a conflict it is decided again. Left out: what was decided is written to whatever is there. */
  "DecideAgain",
  /** 5.8: what is written together is decided together, each after those before it. Left out: each on the version that is stored. */
  "DecideTogether",
  /** 5.8: a refusal that rests on a cached object is confirmed. */
  "ConfirmRefusal",
  /** 5.8: what can't be answered in time is answered before. */
  "Deadline",
] as const;
export type Rule = (typeof RULES)[number];

export function isRule(name: string): name is Rule {
  return RULES.some((rule) => rule === name);
}

declare global {
  var __ABLATION__: ReadonlySet<Rule> | undefined;
}

/** True when a test has left `rule` out; the constant `false` in a bundle. */
export function isLeftOut(rule: Rule): boolean {
  return globalThis.__ABLATION__?.has(rule) === true;
}
