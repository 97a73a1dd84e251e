/**
 * The UIDs behind the hashes of packed reservations (docs/design.md#history-size). A hash says the same in every world,
 * so all worlds of a thread share what is known.
 */
import { hashUid } from "../../../shared/decide/ledger/reservation.ts";

const hashes = new Map<string, string>();
const known = new Set<string>();

export function learnUid(uid: string): void {
  if (known.has(uid)) return;
  known.add(uid);
  hashes.set(hashUid(uid), uid);
}

export function uidOfHash(hash: string | undefined): string | undefined {
  return hash === undefined ? undefined : hashes.get(hash);
}
