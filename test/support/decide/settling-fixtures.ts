/** For tests of settling: buckets, evidence, and a result as one line. */

import { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import type { CellUpdate } from "../../../shared/decide/settling/cell-update.ts";
import type { Evidence } from "../../../shared/decide/settling/settle-rules.ts";
import type { Bucket } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { bucketsOf, NO_EVIDENCE, NOW_MS } from "./fixtures.ts";

export const makeBucket = (rest: Partial<Bucket> = {}): Bucket => ({
  startTime: formatMs(NOW_MS - 1000),
  podUID: "uid-x",
  podName: "x",
  podResourceVersion: "100",
  operation: "DELETE",
  nonce: "n",
  paid: true,
  ...rest,
});

/** A bucket with upstream's fields only. */
export const makeForeignBucket = (rest: Partial<Bucket> = {}): Bucket => ({
  startTime: formatMs(NOW_MS - 1000),
  podUID: "uid-x",
  ...rest,
});

export const listed = (reachedSentMs: number): Evidence => ({ ...NO_EVIDENCE, reachedSentMs });
export const alive = (sentMs: number): Evidence => ({
  ...NO_EVIDENCE,
  aliveSentMs: (uid) => (uid === "uid-x" ? sentMs : undefined),
});

/** A result as one line: the rules that settled records, then the remaining weights. */
export function settledLine(result: CellUpdate): string {
  const rules = result.settled.map(({ rule, operation }) => (operation === undefined ? rule : `${operation} ${rule}`));
  const ledger = Ledger.parse(bucketsOf(result.entry));
  const kept = [...ledger.reservations()].map(
    ({ weight, records }) => `keep ${[...records.keys()].join("+")} w=${weight}`,
  );
  const ranges = [...ledger.ranges].map(({ weight }) => `keep range ${weight}`);
  return [...rules, ...kept, ...ranges].join(", ") || "empty";
}

/** Packs the buckets, so that each case is also tried without a readable UID. */
export function packed(buckets: readonly Bucket[]): Bucket[] {
  return Ledger.parse(buckets).encode(0);
}
