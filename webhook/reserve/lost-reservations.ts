import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Aggregation, CellStatus } from "../../shared/schema/podprotector.ts";
import { isNonceOf } from "./nonces.ts";

/** What only an aggregator writes. Each of its writes carries another time; undefined where it was upstream's, which has none. */
function counted(aggregation: Aggregation | null | undefined): string | undefined {
  if (aggregation?.heartbeatTime === undefined) return undefined;
  const { hold: _, ...rest } = aggregation;
  return JSON.stringify(rest);
}

/** UIDs of pods that the replica of `tag` has reserved, and not `withdrawn`; none of those that are packed. */
function reservedBy(cell: CellStatus, tag: string, withdrawn: ReadonlySet<string>): string[] {
  return (cell.admissionHistory?.buckets ?? []).flatMap(({ podUID, nonce }) => {
    const own = nonce?.split(",").filter((one) => isNonceOf(one, tag)) ?? [];
    return podUID !== undefined && own.length > 0 && !own.some((one) => withdrawn.has(one)) ? [podUID] : [];
  });
}

/**
 * True when `after`, a later version of the same object, misses a reservation of this replica that `before` had, and nobody had a right to
 * drop it: that is for this replica itself (`withdrawn`) and for the cell's aggregator, which has written nothing since. Then `after` rests
 * on a state that is older than `before` (design 5.4): the core was restored, and somebody who knew of nothing has written first.
 */
export function hasLostOwn(
  before: ProtectorVersion,
  after: ProtectorVersion,
  tag: string,
  withdrawn: ReadonlySet<string>,
): boolean {
  return (before.object.status?.cells ?? []).some((cell) => {
    const own = reservedBy(cell, tag, withdrawn);
    if (own.length === 0) return false;
    // Whoever removes an entry takes back what it says.
    const now = after.object.status?.cells.find(({ cellID }) => cellID === cell.cellID);
    const count = counted(cell.aggregation);
    if (count === undefined || counted(now?.aggregation) !== count) return false;
    const kept = new Set(now?.admissionHistory?.buckets?.map(({ podUID }) => podUID));
    const missing = own.filter((uid) => !kept.has(uid));
    if (missing.length === 0) return false;
    const ledger = after.state.cells.get(cell.cellID)?.ledger;
    // An upstream webhook packs what it finds into ranges of time, which name nobody.
    return ledger !== undefined && ledger.ranges.length === 0 && missing.some((uid) => ledger.get(uid) === undefined);
  });
}
