/** What the cells have counted of a budget's pods, and by which selector (docs/design.md#expected-pods). Pure. */
import { specHash } from "../../../shared/decide/availability/spec-facts.ts";
import { isCounted } from "../../../shared/decide/state/protector-state.ts";
import { DERIVATION_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type LabelSelector, type PodProtector, STALE_AFTER_MS } from "../../../shared/schema/podprotector.ts";
import { parseMs } from "../../../shared/schema/time.ts";

interface CellCount {
  readonly id: string;
  readonly totalReplicas: number;
  readonly expectedReplicas: number | undefined;
  /** Hash of the spec by which it has counted, where the cell says so. */
  readonly specHash: string | undefined;
  readonly isOnHold: boolean;
  /** Wall clock of the cell, Unix milliseconds; 0 where the cell does not say it. */
  readonly heartbeatMs: number;
}

/** Workloads or cells that a derivation names; the others are counted. What ends it must not be cut off. */
const MAX_NAMED = 5;
export function few(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : "";
  return `${names.slice(0, MAX_NAMED).join(", ")}${more}`;
}

/** In the derivation of a minimum that waits for the cells' counts. */
export const UNCOUNTED = " (no more than there can be, until its cells have counted these pods)";

/** The cells that have counted the protector. The entry of a removed cell counts no pods. */
export function cellsOf(present: PodProtector | undefined): readonly CellCount[] {
  return (present?.status?.cells ?? []).flatMap(({ cellID, aggregation }) => {
    if (!aggregation || !isCounted(aggregation)) return [];
    const { totalReplicas, expectedReplicas: said, specHash: hash, hold, heartbeatTime } = aggregation;
    // A number below 0 would take from what the other cells ask for.
    const expectedReplicas = said === undefined ? undefined : Math.max(0, said);
    const counted = { totalReplicas, expectedReplicas, specHash: hash };
    return [{ id: cellID, ...counted, isOnHold: hold !== undefined, heartbeatMs: parseMs(heartbeatTime) }];
  });
}

/**
 * False for a cell on hold that has no pods, and asks for none as far as it says. The protector may have been lost, and
 * the cells that have its pods may not have counted again: there, a minimum of 0 would let every pod go, also on hold.
 */
export function hasSay({ totalReplicas, expectedReplicas = 0, isOnHold }: CellCount): boolean {
  return !isOnHold || totalReplicas > 0 || expectedReplicas > 0;
}

/** True where the protector is for other pods than those that `selector` selects. */
export function isForOthers({ spec }: PodProtector, selector: LabelSelector): boolean {
  const [has, wants] = [spec.selector, selector].map((one) => specHash({ ...NOTHING, selector: one }));
  return has !== wants;
}
const NOTHING = { minAvailable: 0, minReadySeconds: 0 };

export function waitsForCells(present: PodProtector | undefined): boolean {
  return present?.metadata.annotations?.[DERIVATION_ANNOTATION]?.includes(UNCOUNTED) ?? false;
}

/**
 * True while the cells' numbers are not those of the pods that `selector` selects: of a protector that no cell has
 * counted, or from before a change of the selector. Other fields by which cells count do not change these numbers.
 */
export function areUncounted(present: PodProtector | undefined, selector: LabelSelector): boolean {
  const cells = cellsOf(present);
  if (present === undefined || (!cells.some(hasSay) && waitsForCells(present))) return true;
  return (isForOthers(present, selector) || waitsForCells(present)) && ofOthers(present, selector).length > 0;
}

/** The cells that have counted other pods than those that `selector` selects. */
function ofOthers(present: PodProtector, selector: LabelSelector): readonly CellCount[] {
  const { aggregationSelector: _, ...spec } = present.spec;
  const wanted = specHash({ ...spec, selector });
  return cellsOf(present).filter(({ specHash: counted }) => counted !== undefined && counted !== wanted);
}

/** Why a budget waits for its cells in vain, for people: the clocks of cells are compared for nothing else. */
export function whyInVain(
  present: PodProtector | undefined,
  selector: LabelSelector,
  nowMs: number,
): string | undefined {
  if (present === undefined || !waitsForCells(present)) return undefined;
  const isSilent = ({ heartbeatMs }: CellCount): boolean => heartbeatMs > 0 && nowMs - heartbeatMs > STALE_AFTER_MS;
  const silent = ofOthers(present, selector).filter(isSilent);
  if (silent.length === 0) return undefined;
  return (
    `cell ${few(silent.map(({ id }) => id))} has not counted the pods that it selects now, and sends no heartbeat: ` +
    "no available pod can be deleted until its aggregator is back, or `kubectl podseidon remove-cell`"
  );
}

/**
 * True where the only cell is the core itself, which has all `pods` and their controllers. The cell reports no number
 * where the controllers' kind is not built in, and was asked because the budget is older than its pods.
 */
export function isOnlyCore(cells: readonly CellCount[], pods = 0): boolean {
  const isAlone = cells.length === 1 && cells.every(({ totalReplicas }) => totalReplicas <= pods);
  return pods > 0 && isAlone;
}
