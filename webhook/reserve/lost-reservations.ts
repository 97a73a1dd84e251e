import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Aggregation, CellStatus } from "../../shared/schema/podprotector.ts";
import { isNonceOf } from "./nonces.ts";

/** More roll-backs than can be in flight. Each is remembered at least until it is seen in the object. */
const MAX_WITHDRAWN = 1_024;

/**
 * Notices that own reservations are lost (docs/design.md#lost-history). A later version lacks an own reservation, and
 * neither this replica nor the cell's aggregator, which has written nothing since, removed it. Then that version rests
 * on a state that is older than the one before it: the core was restored, and a writer that did not know wrote first.
 */
export class LostReservations {
  readonly #tag: string;
  /** Nonces that this replica has rolled back, or tries to. */
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

  /** True when `after`, a later version, lacks a reservation of `before` that only a restore can have removed. */
  isLost(before: ProtectorVersion, after: ProtectorVersion): boolean {
    return (before.object.status?.cells ?? []).some((cell) => {
      const own = this.#reservedIn(cell);
      if (own.length === 0) return false;
      // Removing a cell's entry also takes back what the entry says.
      const now = after.object.status?.cells.find(({ cellID }) => cellID === cell.cellID);
      const count = countOf(cell.aggregation);
      if (count === undefined || countOf(now?.aggregation) !== count) return false;
      const kept = new Set(now?.admissionHistory?.buckets?.map(({ podUID }) => podUID));
      const missing = own.filter((uid) => !kept.has(uid));
      if (missing.length === 0) return false;
      const ledger = after.state.cells.get(cell.cellID)?.ledger;
      // An upstream webhook packs what it finds into ranges of time, which hold no UIDs.
      return ledger !== undefined && ledger.ranges.length === 0 && missing.some((uid) => ledger.get(uid) === undefined);
    });
  }

  /** UIDs of pods that this replica has reserved and not withdrawn; without those that are packed. */
  #reservedIn(cell: CellStatus): string[] {
    return (cell.admissionHistory?.buckets ?? []).flatMap(({ podUID, nonce }) => {
      const own = nonce?.split(",").filter((one) => isNonceOf(one, this.#tag)) ?? [];
      return podUID !== undefined && own.length > 0 && !own.some((one) => this.#withdrawn.has(one)) ? [podUID] : [];
    });
  }
}

/**
 * What only an aggregator writes, with a time that differs in each write; undefined for upstream's, which has no time.
 */
function countOf(aggregation: Aggregation | null | undefined): string | undefined {
  if (aggregation?.heartbeatTime === undefined) return undefined;
  const { hold: _, ...rest } = aggregation;
  return JSON.stringify(rest);
}
