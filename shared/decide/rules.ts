/**
 * Which rules of design 5 a test has left out. The simulation shows that each rule is needed by leaving it out and seeing an
 * invariant broken. It sets `globalThis.__ABLATION__` before it runs the shipping code; a bundle is built with
 * `define: { "globalThis.__ABLATION__": "undefined" }`, so that {@link isLeftOut} is the constant `false` there and no switch ships.
 */

export type Rule =
  /** 5.2 R1: a dead pod's records are dropped. */
  | "R1"
  /** 5.2 R1: only when the snapshot is as new as the reviewed version. Left out: absent means dead. */
  | "R1Position"
  /** 5.2 R2: a DELETE of an older version is dropped. */
  | "R2"
  /** 5.2 R2 is for DELETE only. Left out: it settles evictions too. */
  | "R2DeleteOnly"
  /** 5.2 R3: what was never executed is dropped. */
  | "R3"
  /** 5.2 R3: only a settle period after first sight. Left out: any evidence will do. */
  | "R3Settle"
  /** 5.2: w follows AV. Left out: w stays what the webhook wrote. */
  | "WeightFollowsAvailable"
  /** 5.2: no write from a snapshot that is older than the stored one. */
  | "Fence"
  /** 5.4: no write with an epoch that is older than the stored one. */
  | "Epoch"
  /** 5.4: a cell on hold contributes nothing and admits nothing. */
  | "Hold"
  /** 5.3: a cell counted under another spec contributes nothing. */
  | "SpecHash"
  /** 5.3: a repeat is recorded, with the larger version. Left out: it is admitted without a write. */
  | "RepeatRefresh"
  /** 5.3: a pin that was never paid for is no repeat. */
  | "Paid"
  /** 5.3: a Ready pod that is not mature is pinned. Left out: admitted without a record. */
  | "PinImmature"
  /** 5.3: an eviction of a pod that is not available is pinned. Left out: admitted without a record. */
  | "PinEviction"
  /** 5.3: immature only as far as the snapshot knows this version of the pod. */
  | "MaturityPosition"
  /** 5.7: roll-back removes one nonce. Left out: it removes the record whoever shares it. */
  | "RollbackByNonce";

declare global {
  var __ABLATION__: ReadonlySet<Rule> | undefined;
}

/** True when a test has left `rule` out; constant false in a bundle. */
export function isLeftOut(rule: Rule): boolean {
  return globalThis.__ABLATION__?.has(rule) === true;
}
