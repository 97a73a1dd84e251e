/**
 * Quota comes back within its bound: a record is gone a settle period after its newest admission, and some time for the
 * lag and the write. Times in which something was broken do not count, nor does the time in which its cell is on hold.
 */
import type { History } from "./history.ts";
import type { Judgement } from "./judgement.ts";
import type { ProtectorHistory, StoredStep } from "./protector-history.ts";

/** For a busy machine: a bound against what stays, not a measure of how soon it goes. */
const SLACK_MS = 60_000;

export function judgeReturned(history: History, protectors: readonly ProtectorHistory[], judgement: Judgement): void {
  for (const { key, steps } of protectors) {
    const since = new Map<string, number>();
    const check = (name: string, atMs: number): void => {
      const fromMs = since.get(name);
      if (fromMs === undefined) return;
      judgement.judged("returned");
      const heldMs = quietMs(history, fromMs, atMs);
      if (heldMs > 2 * history.settleMs + SLACK_MS)
        judgement.violation("returned", `${key}: the record of ${name} was held for ${Math.round(heldMs / 1000)} s`);
      since.delete(name);
    };
    for (const step of steps) {
      const held = heldIn(step);
      for (const name of since.keys()) if (!held.has(name)) check(name, step.atMs);
      for (const [name, isNew] of held) if (isNew || !since.has(name)) since.set(name, step.atMs);
    }
    for (const name of since.keys()) check(name, history.endMs);
  }
}

/** The records that a version has in cells without a hold, and whether it adds an admission to them. */
function heldIn({ before, after }: StoredStep): ReadonlyMap<string, boolean> {
  const held = new Map<string, boolean>();
  for (const [cell, entry] of after?.cells ?? []) {
    if (entry.isOnHold) continue;
    for (const [uid, { records }] of entry.reservations) {
      for (const [operation, { nonces }] of records) {
        const known = before?.cells.get(cell)?.reservations.get(uid)?.records.get(operation)?.nonces ?? [];
        held.set(
          `${cell} ${uid} ${operation}`,
          nonces.some((nonce) => !known.includes(nonce)),
        );
      }
    }
  }
  return held;
}

/** The time between the two in which nothing was broken, nor had been broken within the slack. */
function quietMs({ faults }: History, fromMs: number, toMs: number): number {
  let quiet = toMs - fromMs;
  let coveredTo = fromMs;
  for (const fault of [...faults].sort((a, b) => a.fromMs - b.fromMs)) {
    const [begin, end] = [Math.max(coveredTo, fault.fromMs), Math.min(toMs, fault.toMs + SLACK_MS)];
    if (end <= begin) continue;
    quiet -= end - begin;
    coveredTo = end;
  }
  return quiet;
}
