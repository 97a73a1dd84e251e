/** Builders for tests of the decisions: a pod, a protector, a request, with defaults for what a test leaves open. */

import { specFacts, specHash } from "../../../shared/decide/availability/spec-facts.ts";
import { type Decision, type DisruptionRequest, decide } from "../../../shared/decide/quota.ts";
import { apply } from "../../../shared/decide/reserve.ts";
import {
  type CellUpdate,
  type CellUpdateInput,
  computeCellUpdate,
} from "../../../shared/decide/settling/cell-update.ts";
import { FirstSeenTimes } from "../../../shared/decide/settling/first-seen.ts";
import { checkHistory, type HistoryCheck } from "../../../shared/decide/settling/lost-history.ts";
import type { Evidence } from "../../../shared/decide/settling/settle-rules.ts";
import type { Criterion } from "../../../shared/decide/state/estimate.ts";
import type { ProtectorState } from "../../../shared/decide/state/protector-state.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type {
  Aggregation,
  Bucket,
  CellStatus,
  PodProtector,
  PodProtectorSpec,
} from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";

/** A moment, in Unix milliseconds; whole seconds. */
export const NOW_MS = Date.UTC(2026, 4, 1, 12);
export const SETTLE_MS = 75_000;

export interface PodOptions extends Partial<Omit<Pod, "conditions">> {
  /** Ready since so many seconds before {@link NOW_MS}; undefined for a pod that is not Ready. */
  readonly readyForSeconds?: number | undefined;
  readonly conditions?: Readonly<Record<string, boolean>>;
}

/** A Running pod named `name` with UID `uid-NAME`, Ready for an hour unless `readyForSeconds` says otherwise. */
export function makePod(name: string, options: PodOptions = {}): Pod {
  const { readyForSeconds = "readyForSeconds" in options ? undefined : 3600, conditions = {}, ...rest } = options;
  const sinceMs = NOW_MS - (readyForSeconds ?? 0) * 1000;
  return {
    namespace: "default",
    name,
    uid: `uid-${name}`,
    resourceVersion: "100",
    generation: 1,
    labels: { app: "web" },
    annotations: undefined,
    terminating: false,
    phase: "Running",
    readinessGates: undefined,
    waitsForGates: false,
    scheduled: true,
    mirror: false,
    ...rest,
    conditions: Object.entries({
      Ready: readyForSeconds !== undefined,
      ContainersReady: readyForSeconds !== undefined,
      ...conditions,
    }).map(([type, status]) => ({ type, status, sinceMs })),
  };
}

export function makeSpec(spec: Partial<PodProtectorSpec> = {}): PodProtectorSpec {
  return { minAvailable: 2, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, ...spec };
}

/** A counted cell: `available` pods at position 1000, under the spec `spec`. */
export function makeCell(
  cellID: string,
  available: number,
  buckets: Bucket[] = [],
  aggregation: Partial<Aggregation> = {},
  spec: PodProtectorSpec = makeSpec(),
): CellStatus {
  return {
    cellID,
    aggregation: {
      totalReplicas: available,
      availableReplicas: available,
      readyReplicas: available,
      scheduledReplicas: available,
      runningReplicas: available,
      lastEventTime: formatMs(NOW_MS),
      resourceVersion: "1000",
      specHash: specHash(spec),
      epoch: 0,
      ...aggregation,
    },
    admissionHistory: { buckets },
  };
}

export function makeProtector(cells: CellStatus[], spec: Partial<PodProtectorSpec> = {}): PodProtector {
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  return {
    metadata: { name: "web", namespace: "default", uid: "protector", resourceVersion: "5000" },
    spec: makeSpec(spec),
    status: { cells, summary },
  };
}

let nonces = 0;

export interface RequestOptions extends Partial<Omit<DisruptionRequest, "pod">> {
  readonly criterion?: Criterion;
}

/** A DELETE of `pod` in cell `a`, with a nonce of its own. */
export function makeRequest(pod: Pod, options: RequestOptions = {}): DisruptionRequest {
  nonces++;
  return {
    cell: "a",
    operation: "DELETE",
    nonce: `n${String(nonces).padStart(7, "0")}`,
    pod,
    forced: false,
    criterion: "Available",
    startTime: formatMs(NOW_MS),
    staleRefreshBefore: formatMs(NOW_MS - 2 * SETTLE_MS),
    ...options,
  };
}

/** Decides and, when it is allowed, applies. */
export function admit(state: ProtectorState, request: DisruptionRequest): Decision {
  const decision = decide(state, request);
  apply(state, request, decision);
  return decision;
}

export const NO_EVIDENCE: Evidence = {
  reachedSentMs: undefined,
  heardMs: () => Number.POSITIVE_INFINITY,
  aliveSentMs: () => undefined,
};

export interface CellUpdateOptions extends Partial<Omit<CellUpdateInput, "spec" | "pods" | "snapshot" | "stored">> {
  readonly stored?: CellStatus | undefined;
  readonly spec?: PodProtectorSpec;
  /** All pods of the snapshot; those with label `app: web` are counted. */
  readonly pods?: readonly Pod[];
  readonly position?: string;
  /** Of a pod's shard, where there are several; by default `position`. */
  readonly positionOf?: (uid: string | undefined) => string | undefined;
  readonly settledGeneration?: (pod: Pod) => number | undefined;
  readonly unconfirmedGeneration?: (pod: Pod) => number | undefined;
  readonly declinedGeneration?: (pod: Pod) => number | undefined;
}

/** Accounts for cell `a`; the history is what `judgeHistory` says of an entry that was not met before. */
export function cellUpdate(options: CellUpdateOptions = {}): CellUpdate {
  return computeCellUpdate(cellUpdateInput(options));
}

export function cellUpdateInput(options: CellUpdateOptions = {}): CellUpdateInput {
  const {
    pods = [],
    position = "1000",
    positionOf = () => position,
    spec = makeSpec(),
    stored,
    settledGeneration = () => undefined,
    unconfirmedGeneration = () => undefined,
    declinedGeneration = () => undefined,
    ...rest
  } = options;
  const stays = { lost: undefined, epoch: stored?.aggregation?.epoch ?? 0, hold: stored?.aggregation?.hold };
  const history = options.history ?? (rest.algorithm === undefined ? checkStored(stored) : stays);
  return {
    spec: specFacts(spec),
    cellID: "a",
    stored,
    snapshot: {
      position,
      positionOf,
      podByUID: (uid) => pods.find((pod) => pod.uid === uid),
      podByName: (name, isWanted) => pods.find((pod) => pod.name === name && isWanted(pod)),
      settledGeneration,
      unconfirmedGeneration,
      declinedGeneration,
    },
    pods: pods.filter((pod) => pod.labels.app === "web"),
    history,
    adoptedEpoch: history.epoch,
    nowMs: NOW_MS,
    monotonicMs: 0,
    settleMs: SETTLE_MS,
    seen: new FirstSeenTimes(),
    evidence: NO_EVIDENCE,
    algorithm: "exact",
    lastEventMs: NOW_MS,
    isHeartbeatDue: false,
    ...rest,
  };
}

function checkStored(stored: CellStatus | undefined): HistoryCheck {
  return checkHistory({
    protectorUID: "protector",
    protectorVersion: "5000",
    stored,
    known: undefined,
    isMarkedRestored: false,
    etcdRestore: undefined,
    token: () => "token",
    nowMs: NOW_MS,
  });
}

export function bucketsOf(entry: CellStatus): readonly Bucket[] {
  return entry.admissionHistory?.buckets ?? [];
}
