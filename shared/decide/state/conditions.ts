/** `status.conditions` of a protector, which depend only on its status, so that every writer computes the same. */
import type { Condition, PodProtectorStatus } from "../../schema/podprotector.ts";
import { formatMs, parseMs } from "../../schema/time.ts";
import { isRecentlyVanished } from "../settling/vanished-pods.ts";
import { estimate, isReliable } from "./estimate.ts";
import type { CellState, ProtectorState } from "./protector-state.ts";

interface ConditionInput {
  readonly state: ProtectorState;
  /** The stored conditions; unknown types are kept. */
  readonly previous: readonly Condition[] | undefined;
  /** `metadata.generation`. */
  readonly generation: number | undefined;
  /** Wall clock, Unix milliseconds. */
  readonly nowMs: number;
  /** A counted cell whose last heartbeat is older is stale. */
  readonly staleAfterMs: number;
  /** Problems with unreadable parts of the selectors. */
  readonly problems: readonly string[];
}

const SUSPENDED = "Suspended";
const SHARES_PODS = "SharesPods";
const PODS_VANISHED = "PodsVanished";
const NOT_COUNTED = "No cell has been counted yet";

/**
 * Findings that a message lists; the others are counted. The apiserver accepts 32 KiB, and rejects the whole status for
 * a longer message: after an edit of the spec, which makes every cell stale at once, no count could be written.
 */
const MAX_LISTED = 20;

/** The beginning of the types of the generator's conditions, which no cell may change. */
const OF_SOURCE = "Source";
/**
 * Other conditions that are kept, of a newer version, and the characters of a message. A cell that is taken over could
 * else fill the status for good, and no other cell could write its reservations.
 */
const MAX_UNKNOWN = 16;
const MAX_UNKNOWN_MESSAGE = 8_192;

type Finding = Pick<Condition, "type" | "status" | "reason" | "message">;

/** The conditions to write; `previous` itself when nothing has changed, which spares a write. */
export function updateConditions(input: ConditionInput): readonly Condition[] {
  const previous = input.previous ?? [];
  const findings = [
    healthy(input),
    disruptionImpossible(input),
    noPodsMatched(input),
    cellStale(input),
    ...sharesPods(input, previous),
    ...podsVanished(input, previous),
    ...suspended(input, previous),
  ];
  const unknown = previous.filter(({ type }) => findings.every((finding) => finding.type !== type));
  const ofSource = unknown.filter(({ type }) => type.startsWith(OF_SOURCE));
  const isKept = ({ type, message }: Condition): boolean =>
    !type.startsWith(OF_SOURCE) && message.length <= MAX_UNKNOWN_MESSAGE;
  const kept = [...ofSource, ...unknown.filter(isKept).slice(0, MAX_UNKNOWN)];
  const next = findings.map((finding) => upsert(finding, previous, input));
  const isSame =
    next.every((condition) => previous.includes(condition)) && next.length + kept.length === previous.length;
  return isSame && input.previous !== undefined ? input.previous : [...next, ...kept];
}

/** `lastTransitionTime` changes only with the status, as in every `metav1.Condition`. */
function upsert(finding: Finding, previous: readonly Condition[], { generation, nowMs }: ConditionInput): Condition {
  const before = previous.find(({ type }) => type === finding.type);
  const isSame =
    before?.status === finding.status && before.reason === finding.reason && before.message === finding.message;
  if (before !== undefined && isSame && before.observedGeneration === generation) return before;
  return {
    ...before,
    ...finding,
    lastTransitionTime: before?.status === finding.status ? before.lastTransitionTime : formatMs(nowMs),
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  };
}

function finding(type: string, status: Condition["status"], reason: string, message: string): Finding {
  return { type, status, reason, message };
}

/** True when at least `minAvailable` pods count as available. */
function healthy({ state, problems }: ConditionInput): Finding {
  const type = "Healthy";
  const { minAvailable } = state.spec;
  if (problems.length > 0) return finding(type, "False", "InvalidSelector", listed(problems));
  if (!hasCountedCell(state)) return finding(type, "Unknown", "NotCounted", NOT_COUNTED);
  const { available } = estimate(state);
  if (available < minAvailable)
    return finding(type, "False", "TooFewAvailable", `Fewer than ${minAvailable} pods are available`);
  const held = [...state.cells.values()].filter(({ isOnHold }) => isOnHold);
  const inHeld = held.reduce((sum, { aggregation }) => sum + (aggregation?.availableReplicas ?? 0), 0);
  if (held.length === 0 || available - inHeld > minAvailable)
    return finding(type, "True", "EnoughAvailable", "Enough pods are available");
  const why = `${inHeld} of ${available} available pods are in cells on hold: none may be disrupted until it ends`;
  return finding(type, "True", "OnHold", why);
}

/** The protector requires as many pods as there are, so that none can ever be disrupted. */
function disruptionImpossible(input: ConditionInput): Finding {
  const type = "DisruptionImpossible";
  const { state } = input;
  const { minAvailable: least } = state.spec;
  const total = totalOf(state);
  if (total === 0) return { ...noPodsMatched(input), type, status: "False" };
  if (least < total) {
    return finding(type, "False", "DisruptionPossible", "There are more pods than must be available");
  }
  const why = `minAvailable is ${least} and no more than ${least} pods match`;
  const message = `${why}: none of them can be disrupted while it is available`;
  return finding(type, "True", "MinAvailableTooHigh", message);
}

function noPodsMatched({ state }: ConditionInput): Finding {
  const type = "NoPodsMatched";
  if (totalOf(state) > 0) return finding(type, "False", "PodsMatched", "Pods match the selector");
  return hasCountedCell(state)
    ? finding(type, "True", "NoPods", "No running pod matches the selector")
    : finding(type, "Unknown", "NotCounted", NOT_COUNTED);
}

/** True when some cell contributes nothing, or may be dead. */
function cellStale(input: ConditionInput): Finding {
  const type = "CellStale";
  const stale = [...input.state.cells.values()].flatMap((cell) => {
    const why = whyStale(cell, input);
    return why === undefined ? [] : [`${cell.cellID}: ${why}`];
  });
  return stale.length === 0
    ? finding(type, "False", "CellsCurrent", "Every cell is counted and current")
    : finding(type, "True", "CellsNotCurrent", listed(stale.sort()));
}

/** Other protectors have to allow a disruption, too. Only for protectors that share pods, or did. */
function sharesPods({ state }: ConditionInput, previous: readonly Condition[]): readonly Finding[] {
  const found = [...state.cells.values()].flatMap(({ aggregation }) => aggregation?.sharesPodsWith ?? []);
  const names = [...new Set(found.filter((name) => !name.startsWith("+")))].sort();
  // Each cell counts the protectors that it does not name.
  const unnamed = found.filter((name) => name.startsWith("+")).map(Number);
  const more = Math.max(0, ...unnamed.filter(Number.isFinite)) + Math.max(0, names.length - MAX_LISTED);
  if (names.length > 0) {
    const others = `${names.slice(0, MAX_LISTED).join(", ")}${more > 0 ? ` (+${more})` : ""}`;
    const message = `Shares pods with ${others}: a disruption of such a pod needs the quota of each`;
    return [finding(SHARES_PODS, "True", "PodsShared", message)];
  }
  return onceFound(previous, finding(SHARES_PODS, "False", "NotShared", "No other protector counts its pods"));
}

/** Pods were gone without a deletion in the last hour. Only for protectors that such pods have, or had. */
function podsVanished({ state, nowMs }: ConditionInput, previous: readonly Condition[]): readonly Finding[] {
  const found = [...state.cells.values()].flatMap(({ cellID, aggregation }) => {
    if (aggregation === undefined || !isRecentlyVanished(aggregation, nowMs)) return [];
    // Formats the time again: the stored text may have thousands of digits.
    const last = formatMs(parseMs(aggregation.vanishedTime));
    return [`${aggregation.vanishedPods ?? 1} in cell ${cellID}, the last at ${last}`];
  });
  if (found.length > 0) {
    const what = "Pods disappeared without a deletion request, so etcd may have lost them";
    return [finding(PODS_VANISHED, "True", "WithoutDeletion", `${what}: ${listed(found.sort())}`)];
  }
  return onceFound(previous, finding(PODS_VANISHED, "False", "NoneVanished", "No pod has vanished for an hour"));
}

/**
 * While this condition is True, nothing is protected. Only for protectors that are or were suspended: most never are.
 */
function suspended({ state, nowMs }: ConditionInput, previous: readonly Condition[]): readonly Finding[] {
  const { suspendedUntilMs, suspendedCells, suspendReason } = state.spec;
  if (nowMs < suspendedUntilMs) {
    const ends = Number.isFinite(suspendedUntilMs) ? `until ${formatMs(suspendedUntilMs)}` : "until it is switched off";
    const why = suspendReason === undefined ? "" : `: ${suspendReason}`;
    const where = suspendedCells === undefined ? "" : ` in cells ${listed(suspendedCells)}`;
    return [finding(SUSPENDED, "True", "Suspended", `Every disruption${where} is allowed ${ends}${why}`)];
  }
  return onceFound(
    previous,
    suspendedUntilMs > 0
      ? finding(SUSPENDED, "False", "Expired", `The suspension ended at ${formatMs(suspendedUntilMs)}`)
      : finding(SUSPENDED, "False", "NotSuspended", "Disruptions are decided by the counts"),
  );
}

/** `ended`, where the stored conditions have its type: a condition that was never found stays absent. */
function onceFound(previous: readonly Condition[], ended: Finding): readonly Finding[] {
  return previous.some(({ type }) => type === ended.type) ? [ended] : [];
}

/** True when the conditions still report a suspension that has ended by itself. */
export function isSuspensionOver(
  { suspendedUntilMs }: ProtectorState["spec"],
  previous: readonly Condition[] | undefined,
  nowMs: number,
): boolean {
  return (
    nowMs >= suspendedUntilMs && previous?.some(({ type, status }) => type === SUSPENDED && status === "True") === true
  );
}

/**
 * Milliseconds until another cell becomes stale; 0 or less when a cell is stale and the stored conditions do not say
 * so. A dead aggregator writes nothing, so that of another cell has to report it.
 */
export function staleInMs(
  status: PodProtectorStatus | undefined,
  { ownCellID, nowMs, staleAfterMs }: { ownCellID: string } & Pick<ConditionInput, "nowMs" | "staleAfterMs">,
): number {
  const isSaid = status?.conditions?.some((one) => one.type === "CellStale" && one.status === "True") === true;
  let soonestMs = Number.POSITIVE_INFINITY;
  for (const { cellID, aggregation } of status?.cells ?? []) {
    const heartbeatMs = cellID === ownCellID ? 0 : parseMs(aggregation?.heartbeatTime);
    const inMs = heartbeatMs + staleAfterMs + 1 - nowMs;
    if (heartbeatMs > 0 && (inMs > 0 || !isSaid)) soonestMs = Math.min(soonestMs, inMs);
  }
  return soonestMs;
}

function whyStale(cell: CellState, { nowMs, staleAfterMs }: ConditionInput): string | undefined {
  // `remove-cell-once` leaves only the epoch of a cell, which is then rightly not counted.
  if (!cell.isCounted) return cell.aggregation?.epoch === undefined || cell.isOnHold ? "not counted yet" : undefined;
  if (cell.isOnHold) return "on hold, because admission history may have been lost";
  if (!isReliable(cell)) return "not counted under the current spec yet";
  const heartbeatMs = parseMs(cell.aggregation?.heartbeatTime);
  if (heartbeatMs === 0 || nowMs - heartbeatMs <= staleAfterMs) return undefined;
  return `no heartbeat since ${formatMs(heartbeatMs)}`;
}

function listed(findings: readonly string[]): string {
  const rest = findings.length - MAX_LISTED;
  return [...findings.slice(0, MAX_LISTED), ...(rest > 0 ? [`and ${rest} more`] : [])].join("; ");
}

function hasCountedCell({ cells }: ProtectorState): boolean {
  return cells.values().some((cell) => cell.isCounted);
}

function totalOf(state: ProtectorState): number {
  let total = 0;
  for (const { aggregation } of state.cells.values()) total += aggregation?.totalReplicas ?? 0;
  return total;
}
