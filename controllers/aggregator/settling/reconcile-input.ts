/** First step of a reconcile, gather: collects everything that the decision reads, at one moment. */

import { specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import type { CellUpdateInput, ExpectedReplicas } from "../../../shared/decide/settling/cell-update.ts";
import { checkHistory, type EtcdRestore, type HistoryCheck } from "../../../shared/decide/settling/lost-history.ts";
import type { SyncTimeAlgorithm } from "../../../shared/decide/settling/settle-history.ts";
import type { CellSnapshot } from "../../../shared/decide/settling/settle-rules.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { RESTORED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type CellStatus, cellEntry, type PodProtector } from "../../../shared/schema/podprotector.ts";
import type { CellPods } from "../counting/cell-pods.ts";
import { countedSelector, type Membership, sameSelector, type TrackedProtector } from "../counting/membership.ts";
import type { EventSink } from "../observe/events.ts";
import type { AliveEvidence } from "./alive-evidence.ts";
import type { ReconcileState } from "./reconcile-state.ts";

/** Protectors with shared pods that the status names; the others are counted. */
const MAX_SHARERS = 5;

/** Settings of the process. */
export interface ReconcileSettings {
  readonly cellID: string;
  readonly ports: Ports;
  readonly settleMs: number;
  readonly heartbeatMs: number;
  /** Aggregation window of protectors that do not set their own; undefined for the default of the algorithm. */
  readonly rateMs: number | undefined;
  /** Changes of pods within this time are written together. */
  readonly coalesceMs: number;
  readonly writeConcurrency: number;
  readonly timeoutMs: number;
  /** True while this process holds the lease for longer than a write can take; asked before each write. */
  readonly mayWrite: () => boolean;
  readonly onEvent: EventSink;
}

/** What the reconciles of one core have in common. */
export interface ReconcileContext extends ReconcileSettings {
  readonly cell: CellPods;
  readonly evidence: AliveEvidence;
  readonly membership: Pick<Membership, "sharersOf">;
  readonly expectedOf: (tracked: TrackedProtector) => ExpectedReplicas;
  /** A cell without a heartbeat for longer is stale. */
  readonly staleAfterMs: number;
  algorithm: SyncTimeAlgorithm;
  /** Fields that the core did not store when they were last written. */
  readonly dropped?: ReadonlySet<string>;
  /** The newest restore of the core or of the cell. */
  etcdRestore: EtcdRestore | undefined;
}

export interface ReconcileInput {
  /** The newest version that this process knows. */
  readonly protector: PodProtector;
  /** False while the watch lags behind the selector of `protector`, so that the pods are those of an older selector. */
  readonly isSelectorCurrent: boolean;
  /** The snapshot may belong to a history that the cell's etcd has rolled back. */
  readonly historyInDoubt: boolean;
  /** Problems with unreadable parts of the selectors. */
  readonly problems: readonly string[];
  readonly account: CellUpdateInput;
  /** The restore that the history check has taken into account. */
  readonly etcdRestoreID: string | undefined;
  readonly settings: Pick<ReconcileContext, "rateMs" | "staleAfterMs">;
  readonly state: Readonly<Pick<ReconcileState, "staleSinceMs" | "unadoptedEpoch" | "windowSinceMs" | "yieldsUntilMs">>;
}

/** Lets `state` adopt the stored epoch when the evidence allows it, and changes nothing else. */
export function gather(tracked: TrackedProtector, state: ReconcileState, context: ReconcileContext): ReconcileInput {
  const { cellID, cell, evidence, ports, settleMs, algorithm } = context;
  const protector = state.newest(tracked.protector);
  const stored = cellEntry(protector, cellID);
  const monotonicMs = ports.clock.monotonicMs();
  const isHeartbeatDue = monotonicMs >= state.heartbeatDueMs;
  state.adoptEpoch(stored?.aggregation?.epoch ?? 0, evidence.reachedSentMs, monotonicMs);
  const account: CellUpdateInput = {
    spec: specFacts(protector.spec),
    cellID,
    stored,
    snapshot: snapshotOf(cell, tracked.id.namespace),
    pods: tracked.pods.values(),
    history: historyOf(protector, stored, state, context),
    adoptedEpoch: state.adoptedEpoch,
    nowMs: ports.clock.nowMs(),
    monotonicMs,
    settleMs,
    seen: state.seen,
    evidence,
    algorithm,
    lastEventMs: cell.lastEventMs ?? 0,
    isHeartbeatDue,
    probesFields: isHeartbeatDue && (context.dropped?.size ?? 0) > 0,
    sharesPodsWith: namesOf(tracked, context.membership.sharersOf(tracked)),
    gone: [...state.gone.values()],
    expected: protector.spec.countExpectedPods === true ? context.expectedOf(tracked) : undefined,
    isSelectorKept: state.selector !== undefined && sameSelector(state.selector, protector.spec.selector),
  };
  const isSelectorCurrent = sameSelector(countedSelector(protector), countedSelector(tracked.protector));
  return {
    protector,
    isSelectorCurrent,
    historyInDoubt: cell.pods.historyInDoubt,
    problems: tracked.problems,
    account,
    etcdRestoreID: context.etcdRestore?.id,
    settings: context,
    state,
  };
}

/** The protectors that share pods with `tracked`, with the core where it is another one. */
function namesOf({ id }: TrackedProtector, sharers: ReadonlySet<TrackedProtector>): readonly string[] {
  const names = [...sharers].map(({ id: { core, name } }) => (core === id.core ? name : `${core}/${name}`)).sort();
  const more = names.length - MAX_SHARERS;
  return more > 0 ? [...names.slice(0, MAX_SHARERS), `+${more}`] : names;
}

function historyOf(
  protector: PodProtector,
  stored: CellStatus | undefined,
  { known }: ReconcileState,
  { algorithm, etcdRestore, ports }: ReconcileContext,
): HistoryCheck {
  // Upstream's algorithms publish no positions and know no lost history.
  if (algorithm !== "exact") {
    return { lost: undefined, epoch: stored?.aggregation?.epoch ?? 0, hold: stored?.aggregation?.hold };
  }
  return checkHistory({
    protectorUID: protector.metadata.uid,
    protectorVersion: protector.metadata.resourceVersion,
    stored,
    known,
    isMarkedRestored: protector.metadata.annotations?.[RESTORED_ANNOTATION] !== undefined,
    etcdRestore,
    token: () => ports.random.token(),
    nowMs: ports.clock.nowMs(),
  });
}

function snapshotOf(cell: CellPods, namespace: string): CellSnapshot {
  return {
    position: cell.position,
    positionOf: (uid) => cell.positionOf(uid),
    podByUID: (uid) => cell.podByUid(uid),
    podByName: (name, isWanted) => cell.podByName(namespace, name, isWanted),
    settledGeneration: (pod) => cell.changes.settledGeneration(pod),
    unconfirmedGeneration: (pod) => cell.changes.unconfirmedGeneration(pod),
    declinedGeneration: (pod) => cell.changes.declinedGeneration(pod),
  };
}
