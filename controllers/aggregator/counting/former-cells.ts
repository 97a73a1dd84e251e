/**
 * When a cell gets a new id, protectors still have an entry under the old id, and a second entry would count each pod
 * twice. So a first count waits until the old entry is removed (docs/design.md#renamed-cells).
 */
import type { ReconcileSettings } from "../settling/reconcile-input.ts";
import type { TrackedProtector } from "./membership.ts";

interface FormerCellsOptions extends Pick<ReconcileSettings, "ports" | "settleMs" | "onEvent"> {
  /** The ids that the cell had before; undefined while they are not read. */
  readonly ids: () => ReadonlySet<string> | undefined;
}

type FirstCount = (tracked: Pick<TrackedProtector, "protector">) => number;

/** Interval between checks whether a first count may be written; a change of the protector checks at once. */
const ASK_AGAIN_MS = 500;

/**
 * Follows the former cell ids during one term of leadership. Returns a function of the milliseconds until a protector
 * may be counted for the first time, or until the next check; 0 is now. The records of disruptions that were admitted
 * under an old id go with its entry, so the first count waits for a settle period.
 */
export function followFormerCells({ ids, ports, settleMs, onEvent }: FormerCellsOptions): FirstCount {
  const told = new Set<string>();
  const sinceMs = ports.clock.monotonicMs();
  /** Since when (monotonic) no old entry counts the protector any more; infinite while one does. */
  const removedMs = new WeakMap<object, number>();
  return (tracked) => {
    const former = ids();
    if (former === undefined) return ASK_AGAIN_MS;
    const nowMs = ports.clock.monotonicMs();
    const entries = (tracked.protector.status?.cells ?? []).filter(({ cellID }) => former.has(cellID));
    const counting = entries.find(({ aggregation }) => (aggregation?.totalReplicas ?? 0) > 0)?.cellID;
    if (counting === undefined) {
      if (entries.length === 0 && !removedMs.has(tracked)) return 0;
      const knownMs = Math.min(removedMs.get(tracked) ?? sinceMs, nowMs);
      removedMs.set(tracked, knownMs);
      return Math.max(0, knownMs + settleMs - nowMs);
    }
    removedMs.set(tracked, Number.POSITIVE_INFINITY);
    if (!told.has(counting)) onEvent({ kind: "renamed", formerCell: counting });
    told.add(counting);
    return ASK_AGAIN_MS;
  };
}
