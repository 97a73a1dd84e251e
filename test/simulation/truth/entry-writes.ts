/** What one write changed in a cell's entry of a protector: which component wrote it, and what it admits. */
import type { CellStatus } from "../../../shared/schema/podprotector.ts";
import { ledgerOf } from "./stored-protectors.ts";

/** True when an aggregator has counted the cell again. */
export function isCount(before: CellStatus | undefined, after: CellStatus): boolean {
  return after.aggregation?.resourceVersion !== undefined && countedText(before) !== countedText(after);
}

const countedTexts = new WeakMap<CellStatus, string>();

/** The fields that only an aggregator writes. The hold is not among them: webhooks write it, too. */
function countedText(cell: CellStatus | undefined): string {
  if (cell === undefined) return "{}";
  let counted = countedTexts.get(cell);
  if (counted === undefined) {
    const { hold: _, ...rest } = cell.aggregation ?? {};
    counted = JSON.stringify(rest);
    countedTexts.set(cell, counted);
  }
  return counted;
}

/** Counts new pins of weight 1: they use no quota, and are subtracted as long as the snapshot counts their pods. */
export function countNewPins(before: CellStatus | undefined, after: CellStatus): number {
  const old = ledgerOf(before);
  let count = 0;
  for (const { uid, weight, records } of ledgerOf(after).reservations())
    if (uid !== undefined && weight === 1 && old.get(uid) === undefined)
      if ([...records.values()].every(({ paid }) => !paid)) count += 1;
  return count;
}

interface PaidPod {
  readonly uid: string;
  /** The version of the pod that was reviewed. */
  readonly version: string | undefined;
}

/**
 * The pods that this change admits by quota: a new nonce that is paid, for a pod that no paid reservation subtracted
 * before.
 */
export function newlyPaid(
  before: CellStatus | undefined,
  after: CellStatus,
  everWritten: ReadonlyMap<string, unknown>,
): PaidPod[] {
  const found: PaidPod[] = [];
  // A cell on hold admits nothing. What is written there was admitted before (docs/design.md#lost-history).
  if (after.aggregation?.hold !== undefined) return found;
  const old = ledgerOf(before);
  for (const reservation of ledgerOf(after).reservations()) {
    const { uid, weight, records } = reservation;
    if (uid === undefined || weight === 0) continue;
    const known = old.get(uid);
    const wasPaid = known?.weight === 1 && [...known.records.values()].some((one) => one.paid);
    if (wasPaid) continue;
    for (const [operation, { paid, nonces, podResourceVersion: version }] of records) {
      const met = known?.records.get(operation)?.nonces ?? [];
      if (paid && nonces.some((nonce) => !met.includes(nonce) && !everWritten.has(nonce))) found.push({ uid, version });
    }
  }
  return found;
}
