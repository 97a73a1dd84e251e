/** `status.conditions` of a protector (design 4), made from its status alone so that every writer comes to the same. */
import type { Condition } from "../../schema/podprotector.ts";
import { formatMs, parseMs } from "../../schema/time.ts";
import { estimate, isReliable } from "./estimate.ts";
import type { CellState, ProtectorState } from "./protector-state.ts";

export interface ConditionInput {
  readonly state: ProtectorState;
  /** The stored ones; unknown types are kept. */
  readonly previous: readonly Condition[] | undefined;
  /** `metadata.generation`. */
  readonly generation: number | undefined;
  /** Wall clock, Unix milliseconds. */
  readonly nowMs: number;
  /** A counted cell without a heartbeat for longer than this is stale. */
  readonly staleAfterMs: number;
  /** What could not be read of the selectors (`selector.ts`). */
  readonly problems: readonly string[];
}

const SUSPENDED = "Suspended";

/**
 * What a message lists; the rest is counted. The apiserver takes 32 KiB, and refuses the whole status for one longer
 * message: an edit of the spec, which makes every cell stale at once, would keep all of them from being counted again.
 */
const MAX_LISTED = 20;

type Finding = Pick<Condition, "type" | "status" | "reason" | "message">;

/** The conditions to write; `previous` itself when nothing has changed, which spares a write. */
export function updateConditions(input: ConditionInput): readonly Condition[] {
  const previous = input.previous ?? [];
  const findings = [
    healthy(input),
    disruptionImpossible(input),
    noPodsMatched(input),
    cellStale(input),
    ...suspended(input, previous),
  ];
  const kept = previous.filter(({ type }) => findings.every((finding) => finding.type !== type));
  const next = findings.map((finding) => upsert(finding, previous, input));
  const isSame = next.every((condition) => previous.includes(condition));
  return isSame && input.previous !== undefined ? input.previous : [...next, ...kept];
}

/** `lastTransitionTime` moves with the status only, as for every `metav1.Condition`. */
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

/** At least `minAvailable` pods are counted as available. */
function healthy({ state, problems }: ConditionInput): Finding {
  const type = "Healthy";
  const { minAvailable } = state.spec;
  const cells = [...state.cells.values()];
  if (problems.length > 0) {
    return { type, status: "False", reason: "InvalidSelector", message: listed(problems) };
  }
  if (!cells.some((cell) => cell.isCounted)) {
    return { type, status: "Unknown", reason: "NotCounted", message: "No cell has been counted yet" };
  }
  const { counted } = estimate(state);
  const isHealthy = counted >= minAvailable;
  return {
    type,
    status: isHealthy ? "True" : "False",
    reason: isHealthy ? "EnoughAvailable" : "TooFewAvailable",
    message: isHealthy ? "Enough pods are available" : `Fewer than ${minAvailable} pods are available`,
  };
}

/** The protector promises as many pods as there are, so that none can ever be disrupted. */
function disruptionImpossible({ state }: ConditionInput): Finding {
  const type = "DisruptionImpossible";
  const { minAvailable } = state.spec;
  const total = totalOf(state);
  if (total === 0 || minAvailable < total) {
    return {
      type,
      status: "False",
      reason: "DisruptionPossible",
      message: "There are more pods than must be available",
    };
  }
  return {
    type,
    status: "True",
    reason: "MinAvailableTooHigh",
    message: `minAvailable is ${minAvailable} and no more than ${minAvailable} pods match: none of them can be disrupted while it is available`,
  };
}

function noPodsMatched({ state }: ConditionInput): Finding {
  const type = "NoPodsMatched";
  if (totalOf(state) > 0) return { type, status: "False", reason: "PodsMatched", message: "Pods match the selector" };
  const isCounted = [...state.cells.values()].some((cell) => cell.isCounted);
  return {
    type,
    status: isCounted ? "True" : "Unknown",
    reason: isCounted ? "NoPods" : "NotCounted",
    message: isCounted ? "No running pod matches the selector" : "No cell has been counted yet",
  };
}

/** Some cell contributes nothing, or may be dead. */
function cellStale(input: ConditionInput): Finding {
  const type = "CellStale";
  const stale = [...input.state.cells.values()].flatMap((cell) => {
    const why = whyStale(cell, input);
    return why === undefined ? [] : [`${cell.cellID}: ${why}`];
  });
  return stale.length === 0
    ? { type, status: "False", reason: "CellsCurrent", message: "Every cell is counted and current" }
    : { type, status: "True", reason: "CellsNotCurrent", message: listed(stale.sort()) };
}

/**
 * Nothing is protected while it is True (design 9). Only for protectors that are, or were, suspended: most never are.
 */
function suspended({ state, nowMs }: ConditionInput, previous: readonly Condition[]): readonly Finding[] {
  const type = SUSPENDED;
  const { suspendedUntilMs, suspendReason } = state.spec;
  if (nowMs < suspendedUntilMs) {
    const ends = Number.isFinite(suspendedUntilMs) ? `until ${formatMs(suspendedUntilMs)}` : "until it is switched off";
    const why = suspendReason === undefined ? "" : `: ${suspendReason}`;
    return [{ type, status: "True", reason: "Suspended", message: `Every disruption is admitted ${ends}${why}` }];
  }
  if (previous.every((condition) => condition.type !== type)) return [];
  const hasEnded = suspendedUntilMs > 0;
  return [
    {
      type,
      status: "False",
      reason: hasEnded ? "Expired" : "NotSuspended",
      message: hasEnded
        ? `The suspension ended at ${formatMs(suspendedUntilMs)}`
        : "Disruptions are decided by the counts",
    },
  ];
}

/** True when the conditions still say that a suspension is under way which has ended by itself. */
export function isSuspensionOver(
  { suspendedUntilMs }: ProtectorState["spec"],
  previous: readonly Condition[] | undefined,
  nowMs: number,
): boolean {
  return (
    nowMs >= suspendedUntilMs && previous?.some(({ type, status }) => type === SUSPENDED && status === "True") === true
  );
}

function whyStale(cell: CellState, { nowMs, staleAfterMs }: ConditionInput): string | undefined {
  // An epoch alone is what `remove-cell-once` leaves of a cell: nobody counts there any more, and nobody should.
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

function totalOf(state: ProtectorState): number {
  let total = 0;
  for (const { aggregation } of state.cells.values()) total += aggregation?.totalReplicas ?? 0;
  return total;
}
