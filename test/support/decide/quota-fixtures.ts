/** For tests of the quota decision: a protector's state, buckets, and a decision as one line. */

import type { Decision } from "../../../shared/decide/quota.ts";
import { type ProtectorState, parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { Bucket, CellStatus, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeProtector, NOW_MS } from "./fixtures.ts";
import { makeBucket } from "./settling-fixtures.ts";

export function stateOf(cells: CellStatus[], spec: Partial<PodProtectorSpec> = {}): ProtectorState {
  return parseProtector(makeProtector(cells, spec));
}

/** A decision as one line: its kind, reason or cause, and record. */
export function verdictLine(decision: Decision): string {
  if (!decision.allowed) return `${decision.kind} ${decision.cause}`;
  const { write } = decision;
  return `allow ${decision.reason}${write === "none" ? "" : ` w=${write.weight}${write.paid ? " paid" : ""}`}`;
}

export const heldBucket = (uid: string, rest: Partial<Bucket> = {}): Bucket =>
  makeBucket({ podUID: uid, podName: uid.replace("uid-", ""), podResourceVersion: "90", nonce: "before", ...rest });
export const rangeBucket = (counter: number): Bucket => ({
  startTime: formatMs(NOW_MS - 2000),
  endTime: formatMs(NOW_MS - 1000),
  counter,
});
