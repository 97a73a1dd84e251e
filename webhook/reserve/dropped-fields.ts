import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Batch } from "./batch.ts";

/**
 * True when the server stored an own write without the fields that exact accounting rests on (design 5.4): a CRD that does not
 * know them drops them silently. Looks at one of the reservations that were written; the newest are plain, and last.
 */
export function dropsFields(stored: ProtectorVersion, round: Batch): boolean {
  const work = round.writes.findLast((one) => one.kind === "reserve");
  if (work === undefined) return false;
  const { cell, pod } = work.request;
  const written = stored.object.status?.cells.find(({ cellID }) => cellID === cell);
  const buckets = written?.admissionHistory?.buckets ?? [];
  const own = buckets.findLast(({ podUID }) => podUID === pod.uid);
  if (own !== undefined) return own.nonce === undefined || own.podResourceVersion === undefined;
  return !buckets.some(({ packed }) => packed !== undefined);
}
