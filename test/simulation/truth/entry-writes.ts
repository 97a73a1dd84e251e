/** What one write did to a cell's entry in a protector: who wrote it, and what it admits. */
import type { CellStatus } from "../../../shared/schema/podprotector.ts";
import { ledgerOf } from "./stored-protectors.ts";

/** Was this entry counted anew, that is, written by an aggregator? */
export function isCount(before: CellStatus | undefined, after: CellStatus): boolean {
  return after.aggregation?.resourceVersion !== undefined && countedText(before) !== countedText(after);
}

const countedTexts = new WeakMap<CellStatus, string>();

/** What an aggregator writes, but for the hold, which a webhook writes as well. */
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

/** Pods that were not available go without quota; they are subtracted as long as the snapshot still counts them. */
export function newlyPinned(before: CellStatus | undefined, after: CellStatus): number {
  const old = ledgerOf(before);
  let count = 0;
  for (const { uid, podName, weight, records } of ledgerOf(after).reservations())
    if (uid !== undefined && weight === 1 && old.get(uid, podName) === undefined)
      if ([...records.values()].every(({ paid }) => !paid)) count += 1;
  return count;
}

/** What this change admits that uses quota: a new admission, paid, of a pod that was not subtracted before. */
export function reserved(
  before: CellStatus | undefined,
  after: CellStatus,
  everWritten: ReadonlyMap<string, unknown>,
): string[] {
  const found: string[] = [];
  // Nobody admits where there is a hold; what is written there was admitted before (design 5.4).
  if (after.aggregation?.hold !== undefined) return found;
  const old = ledgerOf(before);
  for (const reservation of ledgerOf(after).reservations()) {
    const { uid, podName, weight, records } = reservation;
    if (uid === undefined || weight === 0) continue;
    const known = old.get(uid, podName);
    const wasPaid = known?.weight === 1 && [...known.records.values()].some((one) => one.paid);
    if (wasPaid) continue;
    for (const [operation, { paid, nonces }] of records) {
      const met = known?.records.get(operation)?.nonces ?? [];
      if (paid && nonces.some((nonce) => !met.includes(nonce) && !everWritten.has(nonce))) found.push(uid);
    }
  }
  return found;
}
