/** What the cells have counted of a budget's pods, and by which selector (docs/design.md#expected-pods). Pure. */
import { specHash } from "../../../shared/decide/availability/spec-facts.ts";
import { isCounted, isRemoved } from "../../../shared/decide/state/protector-state.ts";
import { DERIVATION_ANNOTATION, RESTORED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type LabelSelector, type PodProtector, STALE_AFTER_MS } from "../../../shared/schema/podprotector.ts";
import { parseMs } from "../../../shared/schema/time.ts";

interface CellCount {
  readonly id: string;
  readonly totalReplicas: number;
  readonly expectedReplicas: number | undefined;
  /** Hash of the spec by which it has counted, where the cell says so. */
  readonly specHash: string | undefined;
  readonly isOnHold: boolean;
  /** It has counted a protector before this one, or before its entry was lost, and not this one yet. */
  readonly isAwaited: boolean;
  /** Wall clock of the cell, Unix milliseconds; 0 where the cell does not say it. */
  readonly heartbeatMs: number;
}

/** Workloads or cells that a derivation names; the others are counted. What ends it must not be cut off. */
const MAX_NAMED = 5;
export function few(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : "";
  return `${names.slice(0, MAX_NAMED).join(", ")}${more}`;
}

/** What ends the wait for a silent cell. Nobody may take a cell that starts again for one that is gone. */
const UNTIL = "until its aggregator is back; once its cluster is gone for good: kubectl podseidon remove-cell CELL -A";

/** In the derivation of a minimum that waits for the cells' counts. */
export const UNCOUNTED = " (no more than there can be, until its cells have counted these pods)";

/**
 * The cells that have counted the protector, or that have a hold because they had before it was lost. The entry of a
 * removed cell counts no pods.
 */
export function cellsOf(present: PodProtector | undefined): readonly CellCount[] {
  return (present?.status?.cells ?? []).flatMap(({ cellID, aggregation }) => {
    if (!aggregation || isRemoved(aggregation)) return [];
    if (!isCounted(aggregation) && aggregation.hold === undefined) return [];
    const { totalReplicas, expectedReplicas: said, specHash: hash, hold, heartbeatTime } = aggregation;
    // A number below 0 would take from what the other cells ask for.
    const expectedReplicas = said === undefined ? undefined : Math.max(0, said);
    const counted = { totalReplicas, expectedReplicas, specHash: hash, isAwaited: !isCounted(aggregation) };
    return [{ id: cellID, ...counted, isOnHold: hold !== undefined, heartbeatMs: parseMs(heartbeatTime) }];
  });
}

/**
 * True once a cell has pods, or asks for some. Until then a minimum of 0 would let every pod go, also on hold. So cells
 * without pods that are on hold have no say, and none has where other cells may have the pods.
 */
function hasAnySay(present: PodProtector | undefined): boolean {
  const isOpen = mayHaveOthers(present);
  return cellsOf(present).some(({ totalReplicas, expectedReplicas = 0, isOnHold }) => {
    return totalReplicas > 0 || expectedReplicas > 0 || !(isOnHold || isOpen);
  });
}

/**
 * True where a cell that has pods may have no entry: after the loss of the protector, while its aggregator is down, or
 * after `remove-cell`, while it has another id.
 */
function mayHaveOthers(present: PodProtector | undefined): boolean {
  const wasRemoved = present?.status?.cells.some(({ aggregation }) => isRemoved(aggregation ?? undefined));
  return wasRemoved === true || present?.metadata.annotations?.[RESTORED_ANNOTATION] !== undefined;
}

/** Why no cell's count is believed, for people, once no cell that has counted is on hold. */
export function whyNoSay(present: PodProtector | undefined): string | undefined {
  const cells = cellsOf(present);
  const counted = cells.filter(({ isAwaited }) => !isAwaited);
  if (counted.length === 0 || counted.some(({ isOnHold }) => isOnHold) || hasAnySay(present)) return undefined;
  if (counted.length < cells.length) return whySilent(cells);
  return "no cell that has counted has such pods, and others may: its protector was created again, or a cell removed";
}

/** How many of a budget's pods all cells together ask for. */
interface ExpectedInCells {
  readonly hasAnySay: boolean;
  /** Some cells that counted the lost protector have not counted this one yet. */
  readonly isAwaited: boolean;
  /** How many pods there should be in the cells that have said it. */
  readonly sum: number;
  readonly how: string;
  /** Some cells have not said it. */
  readonly silent: { readonly pods: number; readonly why: string; readonly isAwaited: boolean } | undefined;
}

export function expectedInCells(present: PodProtector | undefined): ExpectedInCells {
  const cells = cellsOf(present);
  const silent = cells.filter(({ expectedReplicas }) => expectedReplicas === undefined);
  const pods = cells.reduce((sum, { totalReplicas }) => sum + totalReplicas, 0);
  const isAwaited = silent.some((cell) => cell.isAwaited);
  return {
    hasAnySay: hasAnySay(present),
    isAwaited: cells.some((cell) => cell.isAwaited),
    sum: cells.reduce((sum, { expectedReplicas = 0 }) => sum + expectedReplicas, 0),
    how: ` (${few(cells.map(({ id, expectedReplicas }) => `cell ${id} ${expectedReplicas}`))})`,
    silent: silent.length === 0 ? undefined : { pods, why: whySilent(silent), isAwaited },
  };
}

function whySilent(silent: readonly CellCount[]): string {
  const awaited = silent.filter(({ isAwaited }) => isAwaited);
  if (awaited.length === 0) {
    const names = few(silent.map(({ id }) => id));
    return `cell ${names} has not said: no workload there has such pods, or its aggregator can't list a kind`;
  }
  return `cell ${few(awaited.map(({ id }) => id))} has not counted since the protector was lost: ${UNTIL}`;
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
  if (present === undefined || (!hasAnySay(present) && waitsForCells(present))) return true;
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
  const isSilent = ({ heartbeatMs, isAwaited }: CellCount): boolean =>
    isAwaited || (heartbeatMs > 0 && nowMs - heartbeatMs > STALE_AFTER_MS);
  const silent = ofOthers(present, selector).filter(isSilent);
  if (silent.length === 0) return whyNoSay(present);
  return (
    `cell ${few(silent.map(({ id }) => id))} has not counted the pods that it selects now, and sends no heartbeat: ` +
    `no available pod can be deleted ${UNTIL}`
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
