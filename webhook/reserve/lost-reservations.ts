import { EARLIER, type ReservationRecord } from "../../shared/decide/ledger/reservation.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Aggregation } from "../../shared/schema/podprotector.ts";
import { isBehind } from "../../shared/schema/resource-version.ts";
import { isNonceOf } from "./nonces.ts";

/** More roll-backs than can be in flight. Each is remembered at least until it is seen in the object. */
const MAX_WITHDRAWN = 1_024;

/**
 * Notices that reservations are lost (docs/design.md#lost-history): the core was restored, and a writer that did not
 * notice wrote a later version on top of the older state. Either a cell's count went back, which no aggregator writes.
 * Or an own reservation is missing that this replica did not remove, and the cell's aggregator has written nothing
 * since.
 */
export class LostReservations {
  readonly #tag: string;
  /** Nonces that this replica has rolled back, or tries to roll back. */
  readonly #withdrawn = new Set<string>();

  /** `tag` is this replica's own. */
  constructor(tag: string) {
    this.#tag = tag;
  }

  withdraw(nonce: string): void {
    this.#withdrawn.add(nonce);
    for (const oldest of this.#withdrawn) {
      if (this.#withdrawn.size <= MAX_WITHDRAWN) break;
      this.#withdrawn.delete(oldest);
    }
  }

  /** True when only a restore explains `after`, a later version than `before`. */
  isLost(before: ProtectorVersion, after: ProtectorVersion): boolean {
    for (const [cellID, { ledger, aggregation }] of before.state.cells) {
      const now = after.state.cells.get(cellID);
      if (isOlderCount(now?.aggregation, aggregation)) return true;
      if (ledger.size === 0) continue;
      // Removing a cell's entry removes its reservations, too.
      const count = countOf(aggregation);
      if (now === undefined || count === undefined || countOf(now.aggregation) !== count) continue;
      // An upstream webhook packs buckets into ranges of time, which have no UIDs.
      if (now.ledger.ranges.size > 0) continue;
      for (const reservation of ledger.reservations())
        for (const [operation, { nonces }] of reservation.records)
          if (this.#hasLost(nonces, () => now.ledger.find(reservation)?.records.get(operation))) return true;
    }
    return false;
  }

  /**
   * True when an admission of this replica that it has not withdrawn is not in the record of later. The pod may have an
   * older admission there, which settles earlier.
   */
  #hasLost(nonces: readonly string[], later: () => ReservationRecord | undefined): boolean {
    const own = nonces.filter((nonce) => isNonceOf(nonce, this.#tag) && !this.#withdrawn.has(nonce));
    if (own.length === 0) return false;
    const kept = later()?.nonces ?? [];
    return !kept.includes(EARLIER) && own.some((nonce) => !kept.includes(nonce));
  }
}

/** True when the position of the same epoch went back. */
function isOlderCount(now: Aggregation | undefined, before: Aggregation | undefined): boolean {
  return (now?.epoch ?? 0) === (before?.epoch ?? 0) && isBehind(now?.resourceVersion, before?.resourceVersion);
}

/**
 * The fields that only an aggregator writes, among them a time that differs in each write; undefined for upstream's
 * aggregator, which writes no such time.
 */
function countOf(aggregation: Aggregation | null | undefined): string | undefined {
  if (aggregation?.heartbeatTime === undefined) return undefined;
  const { hold: _, ...rest } = aggregation;
  return JSON.stringify(rest);
}
