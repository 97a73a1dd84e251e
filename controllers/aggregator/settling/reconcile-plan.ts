/**
 * One accounting of one protector (design 5.2): from the newest object known and the snapshot to the status to write, the evidence that
 * is wanted, and when to look again. Reads everything at one moment and awaits nothing.
 */

import { type SpecFacts, specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import {
  type AccountResult,
  accountCell,
  type CellSnapshot,
  type SyncTimeAlgorithm,
  type WriteReason,
} from "../../../shared/decide/settling/account.ts";
import { type HistoryVerdict, type Incident, judgeHistory } from "../../../shared/decide/settling/lost-history.ts";
import { isSuspensionOver, updateConditions } from "../../../shared/decide/state/conditions.ts";
import { parseProtector } from "../../../shared/decide/state/protector-state.ts";
import { summarize } from "../../../shared/decide/state/summary.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { RESTORED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { CellStatus, PodProtector, PodProtectorStatus, Summary } from "../../../shared/schema/podprotector.ts";
import { cellEntry } from "../../../shared/schema/podprotector.ts";
import type { CellPods } from "../counting/cell-pods.ts";
import { countedSelector, sameSelector, type TrackedProtector } from "../counting/membership.ts";
import type { AliveEvidence, EvidenceNeed, PodNeed } from "./alive-evidence.ts";
import type { ReconcileState } from "./reconcile-state.ts";

export interface PlanContext {
  readonly cellID: string;
  readonly cell: CellPods;
  readonly evidence: AliveEvidence<TrackedProtector>;
  readonly ports: Ports;
  readonly settleMs: number;
  readonly heartbeatMs: number;
  readonly algorithm: SyncTimeAlgorithm;
  /** Least time between two writes where the protector does not say. */
  readonly rateMs: number;
  readonly incident: Incident | undefined;
  /** A cell without a heartbeat for longer is stale. */
  readonly staleAfterMs: number;
}

export interface ReconcilePlan {
  readonly protector: PodProtector;
  readonly history: HistoryVerdict;
  readonly result: AccountResult;
  /** The pods that were counted are those of the newest selector. */
  readonly isMatched: boolean;
  /** Nothing is written from pods that may be of a history that is gone, but that it may be: the hold does not wait for the list. */
  readonly isWithheld: boolean;
  /** Undefined when nothing is to be written. */
  readonly status: PodProtectorStatus | undefined;
  /** The stored position is newer than a quorum read sent after it had been seen: the cell's etcd was restored (design 5.4). */
  readonly isCellRestored: boolean;
  readonly need: EvidenceNeed | undefined;
  /** Milliseconds after which to look again, whatever happens or does not. */
  readonly againMs: number;
}

const BLANK: Summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

/** Reasons that do not wait for the protector's aggregation rate. */
const AT_ONCE: ReadonlySet<WriteReason> = new Set<WriteReason>(["New", "Empty", "Spec", "Epoch", "Hold"]);

/** How soon a protector is looked at again whose newest selector the watch has not brought yet. */
const SELECTOR_WAIT_MS = 100;

/** Updates what `progress` knows of epochs and positions; writes nothing. */
export function makePlan(entry: TrackedProtector, progress: ReconcileState, context: PlanContext): ReconcilePlan {
  const { cellID, cell, ports } = context;
  const protector = progress.newest(entry.protector);
  // `entry.pods` are those of the watched selector: after a conflict, the newest one may be another.
  const isMatched = sameSelector(countedSelector(protector), countedSelector(entry.protector));
  const stored = cellEntry(protector, cellID);
  const spec = specFacts(protector.spec);
  const nowMs = ports.clock.monotonicMs();
  adoptEpoch(progress, stored, context, nowMs);
  const history = judge(protector, stored, progress, context);
  const result = accountCell({
    spec,
    cellID,
    stored,
    snapshot: snapshotOf(cell, entry.id.namespace),
    pods: entry.pods.values(),
    history,
    adoptedEpoch: progress.adoptedEpoch,
    nowMs: ports.clock.nowMs(),
    monotonicMs: nowMs,
    settleMs: context.settleMs,
    seen: progress.seen,
    evidence: context.evidence,
    algorithm: context.algorithm,
    lastEventMs: cell.lastEventMs ?? 0,
    isHeartbeatDue: nowMs >= progress.heartbeatDueMs,
  });
  progress.pending = result.wants.records;
  if (history.lost === undefined) progress.remember(protector, stored, context.incident?.id);
  const isCellRestored = noteStalePosition(progress, result, context, nowMs);
  const waitMs = rateWaitMs(protector, progress, result, context, nowMs);
  const isWithheld = cell.isDoubted && history.lost === undefined;
  const isWanted =
    result.write ||
    isGenerationNew(result, protector, stored) ||
    isSuspensionEnded(result, protector, spec, ports.clock.nowMs());
  return {
    protector,
    history,
    result,
    isMatched,
    isWithheld,
    status:
      isWanted && isMatched && !isWithheld && waitMs <= 0 ? wantedStatus(entry, protector, result, context) : undefined,
    isCellRestored,
    need: needOf(entry, progress, result),
    againMs: isMatched ? againMs(progress, result, spec, context, nowMs, waitMs) : SELECTOR_WAIT_MS,
  };
}

/** Upstream's rules know no positions and so no lost history (design 5.6). */
function judge(
  protector: PodProtector,
  stored: CellStatus | undefined,
  progress: ReconcileState,
  { algorithm, incident, ports }: PlanContext,
): HistoryVerdict {
  if (algorithm !== "exact") {
    return { lost: undefined, epoch: stored?.aggregation?.epoch ?? 0, hold: stored?.aggregation?.hold };
  }
  const question = {
    protectorUID: protector.metadata.uid,
    protectorVersion: protector.metadata.resourceVersion,
    stored,
    known: progress.known,
    isMarkedRestored: protector.metadata.annotations?.[RESTORED_ANNOTATION] !== undefined,
    incident,
  };
  const verdict = judgeHistory({ ...question, token: "" });
  // Drawn only for a new hold, which is rare: randomness costs more than the rest of the judgement.
  return verdict.lost === undefined ? verdict : judgeHistory({ ...question, token: ports.random.token() });
}

/** A stored epoch counts as adopted once the snapshot has reached a quorum list sent after it was first seen (design 5.4). */
function adoptEpoch(
  progress: ReconcileState,
  stored: CellStatus | undefined,
  context: PlanContext,
  nowMs: number,
): void {
  const epoch = stored?.aggregation?.epoch ?? 0;
  if (epoch <= progress.adoptedEpoch) {
    progress.foreignEpoch = undefined;
    return;
  }
  if (progress.foreignEpoch?.epoch !== epoch) progress.foreignEpoch = { epoch, sinceMs: nowMs };
  if ((context.evidence.reachedSentMs ?? Number.NEGATIVE_INFINITY) < progress.foreignEpoch.sinceMs) return;
  progress.adoptedEpoch = epoch;
  progress.foreignEpoch = undefined;
}

function noteStalePosition(
  progress: ReconcileState,
  result: AccountResult,
  context: PlanContext,
  nowMs: number,
): boolean {
  if (result.refused !== "StalePosition") {
    progress.staleSinceMs = undefined;
    return false;
  }
  progress.staleSinceMs ??= nowMs;
  return (context.evidence.reachedSentMs ?? Number.NEGATIVE_INFINITY) >= progress.staleSinceMs;
}

function snapshotOf(cell: CellPods, namespace: string): CellSnapshot {
  return {
    position: cell.position,
    positionOf: (uid) => cell.positionOf(uid),
    podByUID: (uid) => cell.podByUid(uid),
    podByName: (name, isWanted) => cell.podByName(namespace, name, isWanted),
    settledGeneration: (pod) => cell.changes.settledGeneration(pod),
    declinedGeneration: (pod) => cell.changes.declinedGeneration(pod),
  };
}

/** How long a write has to wait because the last one was too short a time ago; 0 or less: not at all. */
function rateWaitMs(
  { spec }: PodProtector,
  { lastWriteMs }: ReconcileState,
  { reasons }: AccountResult,
  { rateMs }: PlanContext,
  nowMs: number,
): number {
  if (lastWriteMs === undefined || reasons.some((reason) => AT_ONCE.has(reason))) return 0;
  return lastWriteMs + Math.max(0, spec.admissionHistoryConfig?.aggregationRateMillis ?? rateMs) - nowMs;
}

/**
 * No pod of this cell matches, and another cell already speaks for the protector: an entry would only be one more to keep alive. What is
 * to be said of the others, that one is dead for example, is written all the same.
 */
function isNeedlessEntry({ write, reasons, entry }: AccountResult, { status }: PodProtector): boolean {
  const cells = status?.cells ?? [];
  if (!write || !reasons.includes("Empty") || cells.length === 0) return false;
  // One that is there and not counted is called stale for as long.
  if (cells.some(({ cellID }) => cellID === entry.cellID)) return false;
  return reasons.every((reason) => reason === "Empty" || reason === "Heartbeat");
}

/** The spec was changed in a way that the counts do not show: the conditions are made again, by whichever cell is first. */
function isGenerationNew({ refused }: AccountResult, protector: PodProtector, stored: CellStatus | undefined): boolean {
  const { generation } = protector.metadata;
  return refused === undefined && stored !== undefined && protector.status?.observedGeneration !== generation;
}

/** Nobody changes the object when a suspension ends by itself; its conditions say so all the same. */
function isSuspensionEnded(
  { refused }: AccountResult,
  { status }: PodProtector,
  spec: SpecFacts,
  nowMs: number,
): boolean {
  return refused === undefined && isSuspensionOver(spec, status?.conditions, nowMs);
}

function wantedStatus(
  entry: TrackedProtector,
  protector: PodProtector,
  result: AccountResult,
  context: PlanContext,
): PodProtectorStatus | undefined {
  if (!isNeedlessEntry(result, protector)) return statusOf(entry, protector, result.entry, context);
  if (!result.reasons.includes("Heartbeat")) return undefined;
  const status = statusOf(entry, protector, undefined, context);
  return sameConditions(status.conditions, protector.status?.conditions) ? undefined : status;
}

/** Those that say the same as before are the same objects. */
function sameConditions(a: PodProtectorStatus["conditions"], b: PodProtectorStatus["conditions"]): boolean {
  return a?.length === b?.length && a?.every((condition, index) => condition === b?.[index]) === true;
}

/** The status with this entry, or as the entries of the others make it. */
function statusOf(
  { problems }: TrackedProtector,
  protector: PodProtector,
  cell: CellStatus | undefined,
  { ports, staleAfterMs }: PlanContext,
): PodProtectorStatus {
  const { status: previous, metadata } = protector;
  const cells = [...(previous?.cells ?? [])];
  const at = cells.findIndex(({ cellID }) => cellID === cell?.cellID);
  if (cell !== undefined && at < 0) cells.push(cell);
  else if (cell !== undefined) cells[at] = cell;
  const nowMs = ports.clock.nowMs();
  const { generation } = metadata;
  const state = parseProtector({ ...protector, status: { ...previous, cells, summary: previous?.summary ?? BLANK } });
  const conditions = updateConditions({
    state,
    previous: previous?.conditions,
    generation,
    nowMs,
    staleAfterMs,
    problems,
  });
  return {
    ...previous,
    cells,
    summary: summarize(state, previous?.summary, nowMs),
    conditions: [...conditions],
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  };
}

function needOf(entry: TrackedProtector, progress: ReconcileState, { wants }: AccountResult): EvidenceNeed | undefined {
  const pods: PodNeed[] = [];
  const listDues = [progress.foreignEpoch?.sinceMs, progress.staleSinceMs, wants.listAtMs];
  for (const { uid, podName, dueMs, needsList } of wants.records) {
    if (needsList || uid === undefined || podName === undefined) listDues.push(dueMs);
    else pods.push({ uid, namespace: entry.id.namespace, name: podName, dueMs });
  }
  const known = listDues.filter((dueMs) => dueMs !== undefined);
  const listDueMs = known.length === 0 ? undefined : Math.min(...known);
  return pods.length === 0 && listDueMs === undefined ? undefined : { pods, listDueMs };
}

function againMs(
  progress: ReconcileState,
  { nextMaturityMs }: AccountResult,
  { suspendedUntilMs }: SpecFacts,
  { ports, heartbeatMs }: PlanContext,
  nowMs: number,
  waitMs: number,
): number {
  const heartbeatInMs = progress.heartbeatDueMs > nowMs ? progress.heartbeatDueMs - nowMs : heartbeatMs;
  const wallMs = ports.clock.nowMs();
  const maturesInMs = nextMaturityMs === undefined ? heartbeatMs : nextMaturityMs - wallMs;
  const resumesInMs = suspendedUntilMs > wallMs ? suspendedUntilMs - wallMs : heartbeatMs;
  const soonestMs = Math.min(heartbeatInMs, maturesInMs, resumesInMs, waitMs > 0 ? waitMs : Number.POSITIVE_INFINITY);
  return Math.max(1, soonestMs);
}
