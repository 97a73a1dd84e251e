/** Second step of a reconcile, decide: what to write, which evidence to request, when to reconcile again. */

import {
  type CellUpdate,
  type CellUpdateInput,
  computeCellUpdate,
  type WriteReason,
} from "../../../shared/decide/settling/cell-update.ts";
import { isSuspensionOver, staleInMs, updateConditions } from "../../../shared/decide/state/conditions.ts";
import { summarize } from "../../../shared/decide/state/encode-status.ts";
import { notReadyIn } from "../../../shared/decide/state/estimate.ts";
import { type CellState, parseCell } from "../../../shared/decide/state/protector-state.ts";
import type { CellStatus, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";
import type { EvidenceNeed, PodNeed } from "./alive-evidence.ts";
import type { ReconcileInput } from "./reconcile-input.ts";

export interface ReconcilePlan {
  readonly input: ReconcileInput;
  readonly result: CellUpdate;
  /** The status to write now, if any. */
  readonly status: PodProtectorStatus | undefined;
  /** The stored entry says what the snapshot says. */
  readonly isStored: boolean;
  /** The stored entry may lack what the snapshot says, and will be written later. */
  readonly isPostponed: boolean;
  /** Since when (monotonic) the stored position is newer than the snapshot. */
  readonly staleSinceMs: number | undefined;
  /** Since when (monotonic) a write waits for the window of the aggregation rate. */
  readonly windowSinceMs: number | undefined;
  /** The stored position is newer than a quorum read sent after it was seen, so the cell's etcd was restored. */
  readonly isCellRestored: boolean;
  readonly evidence: EvidenceNeed | undefined;
  /** Any progress of the pods' stream may allow a write, without an event of one of the protector's pods. */
  readonly waitsForProgress: boolean;
  /** Milliseconds until something becomes due without any event; infinite when nothing does. */
  readonly againMs: number;
}

/** Reasons for a write at once, without a window, under any algorithm. */
const AT_ONCE: ReadonlySet<WriteReason> = new Set<WriteReason>(["New", "Empty", "Spec", "Epoch", "Hold"]);
/**
 * Upstream's default. With upstream's algorithms, only the window keeps a count from settling reservations of a burst
 * whose deletions it lacks (docs/design.md#sync-time-algorithms).
 */
const SYNC_TIME_RATE_MS = 5_000;
/** How long to wait for the watch to deliver the newest selector. */
const SELECTOR_WAIT_MS = 100;

export function planReconcile(input: ReconcileInput): ReconcilePlan {
  const { account, isSelectorCurrent, historyInDoubt, state } = input;
  const result = computeCellUpdate(account);
  // While the history of the pods is in doubt, only the hold is written, which must not wait for the relist.
  const isWithheld = historyInDoubt && account.history.lost === undefined;
  const windowSinceMs = waitsForWindow(account, result) ? (state.windowSinceMs ?? account.monotonicMs) : undefined;
  const isWanted = isWriteWanted(input, result);
  const rateWaitMs = windowSinceMs === undefined ? 0 : rateWaitOf(input, windowSinceMs);
  const yieldMs = isWanted && !isAtOnce(result) ? state.yieldsUntilMs - account.monotonicMs : 0;
  const waitMs = Math.max(rateWaitMs, yieldMs);
  const mayWrite = isSelectorCurrent && !isWithheld;
  const status = mayWrite && waitMs <= 0 && isWanted ? statusToWrite(input, result) : undefined;
  const staleSinceMs = result.stale === "StalePosition" ? (state.staleSinceMs ?? account.monotonicMs) : undefined;
  const { reachedSentMs = Number.NEGATIVE_INFINITY } = account.evidence;
  return {
    input,
    result,
    status,
    isStored: mayWrite && status === undefined && result.reasons.length === 0 && result.stale === undefined,
    isPostponed: !mayWrite || waitMs > 0 || result.stale !== undefined,
    staleSinceMs,
    windowSinceMs,
    isCellRestored: staleSinceMs !== undefined && reachedSentMs >= staleSinceMs,
    evidence: evidenceNeed(input, result, staleSinceMs),
    waitsForProgress: isWithheld || isSettledByProgress(input, result),
    againMs: isSelectorCurrent ? againMs(input, result, waitMs) : SELECTOR_WAIT_MS,
  };
}

function isAtOnce({ reasons }: Pick<CellUpdate, "reasons">): boolean {
  return reasons.some((reason) => AT_ONCE.has(reason));
}

/** Milliseconds until the window of the aggregation rate ends; 0 or less: write now. */
function rateWaitOf({ protector, account, settings }: ReconcileInput, windowSinceMs: number): number {
  const { algorithm, monotonicMs } = account;
  const defaultMs = settings.rateMs ?? (algorithm === "exact" ? 0 : SYNC_TIME_RATE_MS);
  const rateMs = protector.spec.admissionHistoryConfig?.aggregationRateMillis ?? defaultMs;
  return windowSinceMs + Math.max(0, rateMs) - monotonicMs;
}

/**
 * Writes that return quota, heartbeats and holds do not wait. Upstream's algorithms need the window for every write.
 */
function waitsForWindow({ algorithm, stored }: CellUpdateInput, { reasons, entry }: CellUpdate): boolean {
  if (algorithm !== "exact") return reasons.length > 0 && !isAtOnce({ reasons });
  const spendable = ({ aggregation }: Pick<CellStatus, "aggregation"> = {}): number =>
    (aggregation?.availableReplicas ?? 0) - notReadyIn(aggregation);
  const isRise = spendable(entry) > spendable(stored);
  return reasons.length > 0 && !isRise && reasons.every((reason) => reason === "Counts");
}

function isWriteWanted(input: ReconcileInput, result: CellUpdate): boolean {
  const { account } = input;
  const { metadata, status } = input.protector;
  if (result.reasons.length > 0) return true;
  if (result.stale !== undefined) return false;
  // A change of the spec that the counts do not show: any counting cell may bring the conditions up to date.
  if (account.stored !== undefined && status?.observedGeneration !== metadata.generation) return true;
  if (staleInMsOf(input) <= 0) return true;
  // A suspension ends by time, without a change of the object.
  return isSuspensionOver(account.spec, status?.conditions, account.nowMs);
}

function statusToWrite(input: ReconcileInput, result: CellUpdate): PodProtectorStatus | undefined {
  if (!isEntryNeedless(input, result)) return statusWith(result, input);
  if (!result.reasons.includes("Heartbeat")) return undefined;
  // Without its own entry, this cell still reports in the conditions that another cell is dead.
  const { conditions: before } = input.protector.status ?? {};
  const status = statusWith(undefined, input);
  const isSame = status.conditions?.every((condition, index) => condition === before?.[index]) === true;
  return isSame && status.conditions?.length === before?.length ? undefined : status;
}

/** No pod of this cell matches and another cell has an entry: an entry would only cost heartbeats. */
function isEntryNeedless({ protector: { status }, account }: ReconcileInput, { reasons }: CellUpdate): boolean {
  const cells = status?.cells ?? [];
  if (!reasons.includes("Empty") || cells.length === 0) return false;
  // An entry that a webhook has added counts as stale until this cell has counted it.
  if (cells.some(({ cellID }) => cellID === account.cellID)) return false;
  return reasons.every((reason) => reason === "Empty" || reason === "Heartbeat");
}

/** The status with the entry of this cell replaced or added, and with what follows from the entries of all cells. */
function statusWith(result: CellUpdate | undefined, input: ReconcileInput): PodProtectorStatus {
  const entry = result?.entry;
  const { problems } = input;
  const { spec, nowMs } = input.account;
  const { staleAfterMs } = input.settings;
  const { status: previous, metadata } = input.protector;
  const { generation } = metadata;
  const cells = [...(previous?.cells ?? [])];
  const at = cells.findIndex(({ cellID }) => cellID === entry?.cellID);
  if (entry !== undefined) cells.splice(at < 0 ? cells.length : at, 1, entry);
  const parse = (cell: CellStatus): CellState => parseCell(cell, spec, cell === entry ? result?.ledger : undefined);
  const state = { spec, cells: new Map(cells.map((cell) => [cell.cellID, parse(cell)])) };
  const before = previous?.conditions;
  const conditions = updateConditions({ state, previous: before, generation, nowMs, staleAfterMs, problems });
  return {
    ...previous,
    cells,
    summary: summarize(state, previous?.summary),
    conditions: [...conditions],
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  };
}

function evidenceNeed(
  { protector, state }: ReconcileInput,
  result: CellUpdate,
  staleSinceMs: number | undefined,
): EvidenceNeed | undefined {
  const { namespace = "" } = protector.metadata;
  const pods: PodNeed[] = [];
  const listDues = [state.unadoptedEpoch?.sinceMs, staleSinceMs, result.listDueMs];
  for (const { uid, podName, dueMs, needsList } of result.unsettled) {
    if (needsList || uid === undefined || podName === undefined) listDues.push(dueMs);
    else pods.push({ uid, namespace, name: podName, dueMs });
  }
  // A forged history has more records than a call may have arguments.
  const listDueMs = listDues.reduce<number>((least, dueMs = least) => Math.min(least, dueMs), Number.POSITIVE_INFINITY);
  return pods.length > 0 || Number.isFinite(listDueMs) ? { pods, listDueMs } : undefined;
}

/**
 * Progress may show that a reserved pod is dead, or that a lagging shard has caught up. Upstream's algorithms settle by
 * any event.
 */
function isSettledByProgress({ account }: ReconcileInput, { entry, awaitsPosition, unsettled }: CellUpdate): boolean {
  if (account.algorithm !== "exact") return (entry.admissionHistory?.buckets ?? []).length > 0;
  return awaitsPosition || unsettled.some(({ needsList }) => needsList);
}

/** Infinite for a cell without an entry, which reports stale cells with its heartbeats. */
function staleInMsOf({ protector, account, settings }: ReconcileInput): number {
  if (account.stored === undefined) return Number.POSITIVE_INFINITY;
  const { cellID: ownCellID, nowMs } = account;
  return staleInMs(protector.status, { ownCellID, nowMs, staleAfterMs: settings.staleAfterMs });
}

function againMs(input: ReconcileInput, { nextMaturityMs }: CellUpdate, waitMs: number): number {
  const { nowMs, spec } = input.account;
  const staleMs = staleInMsOf(input);
  return Math.min(
    staleMs > 0 ? staleMs : Number.POSITIVE_INFINITY,
    nextMaturityMs === undefined ? Number.POSITIVE_INFINITY : nextMaturityMs - nowMs,
    spec.suspendedUntilMs > nowMs ? spec.suspendedUntilMs - nowMs : Number.POSITIVE_INFINITY,
    waitMs > 0 ? waitMs : Number.POSITIVE_INFINITY,
  );
}
