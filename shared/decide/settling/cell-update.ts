/**
 * The aggregator's update of one cell's status entry (docs/design.md#settling): new counts, position and reservations
 * in one write, so that no pod is ever both counted as available and forgotten as reserved. Read `settle-rules.ts` (R1
 * to R3) first, then `settle-history.ts`, then this file; `lost-history.ts` runs before an update, and
 * `trigger-mark.ts` shows a restore of the cell's etcd.
 */
import type { Pod } from "../../schema/pod.ts";
import type { Aggregation, CellStatus } from "../../schema/podprotector.ts";
import { hasReached, isBehind, oldestComponent } from "../../schema/resource-version.ts";
import { formatMs, parseMs } from "../../schema/time.ts";
import {
  type Availability,
  countPods,
  leftOutMark,
  maturityCutoffMs,
  notReadyMark,
} from "../availability/availability.ts";
import type { SpecFacts } from "../availability/spec-facts.ts";
import { notReadyIn } from "../state/estimate.ts";
import { isCounted } from "../state/protector-state.ts";
import { type SettledHistory, type SettleInput, settleHistory } from "./settle-history.ts";
import { type VanishedPod, vanishedFields, vanishedPods } from "./vanished-pods.ts";

export interface CellUpdateInput extends SettleInput {
  readonly spec: SpecFacts;
  readonly cellID: string;
  /** The pods of the snapshot that match the aggregation selector. */
  readonly pods: Iterable<Pod>;
  /**
   * The highest epoch that is older than the snapshot: a quorum list was sent after this process had seen the epoch.
   */
  readonly adoptedEpoch: number;
  /** Wall clock, Unix milliseconds, for maturity and for times in the status. */
  readonly nowMs: number;
  readonly isHeartbeatDue: boolean;
  /** The core has dropped fields before, so all fields are written, even empty ones. */
  readonly probesFields?: boolean;
  /**
   * Names of other protectors that count pods of this one. Published with the next write, but not a reason for a write.
   */
  readonly sharesPodsWith?: readonly string[];
  /** Pods that are gone without a sign of a deletion. */
  readonly gone?: readonly VanishedPod[];
  /** Undefined where the protector does not need the number. */
  readonly expected?: ExpectedReplicas | undefined;
  /** The stored counts are known to be by the present selector, whatever else of the spec has changed. */
  readonly isSelectorKept?: boolean;
}

/**
 * The number of pods that the workloads of the cell ask for (docs/design.md#expected-pods), and the number of these
 * workloads. "Unknown" while they are not listed.
 */
export type ExpectedReplicas = "Unknown" | { readonly workloads: number; readonly replicas: number };

export type WriteReason =
  /** First count of this cell, with pods. */
  | "New"
  /** First count of this cell, without matching pods: where there are many cells, the entry may stay unwritten. */
  | "Empty"
  | "Counts"
  | "Settled"
  | "Weights"
  | "Spec"
  | "Epoch"
  | "Hold"
  /** The published cutoff or position does not cover some pods. */
  | "Maturity"
  | "Fields"
  /** The workloads of the cell ask for another number of pods. */
  | "Expected"
  /** Pods have vanished, and the stored version, which this write replaces, has no record of a deletion. */
  | "Vanished"
  | "Heartbeat";

export type StaleSnapshot =
  /** The stored position is newer than the snapshot. */
  | "StalePosition"
  /** The stored epoch is not adopted yet. */
  | "StaleEpoch";

export interface CellUpdate extends Pick<SettledHistory, "ledger" | "settled" | "unsettled" | "listDueMs"> {
  /** Why the snapshot must not be written; undefined when it may be written. */
  readonly stale: StaleSnapshot | undefined;
  /** Why the entry should be written; empty when a write is not needed. */
  readonly reasons: readonly WriteReason[];
  /** The entry to write, with the unknown fields of the stored one. */
  readonly entry: CellStatus;
  /** The pods of `gone` that vanished without an admission, once this entry is stored. */
  readonly vanished: readonly VanishedPod[];
  /** Wall clock, Unix milliseconds at which the next pod matures. */
  readonly nextMaturityMs: number | undefined;
  /** A write is needed once the position advances: a lagging shard does not cover an immature pod's version yet. */
  readonly awaitsPosition: boolean;
}

/**
 * Pure, except that the function records first sights in `input.seen`. Applied to its own result, it finds nothing to
 * write.
 */
export function computeCellUpdate(input: CellUpdateInput): CellUpdate {
  const cutoffMs = maturityCutoffMs(input.nowMs, input.spec);
  const availability = countPods(input.pods, input.spec, cutoffMs);
  const history = settleHistory(input, availability.available);
  const vanished = vanishedOf(input);
  const entry = entryOf(input, availability, history, cutoffMs, vanished.length);
  const stale = staleness(input);
  const { ledger, settled, unsettled, listDueMs } = history;
  return {
    stale,
    reasons: stale === undefined ? reasonsToWrite(input, availability, history, entry, vanished.length) : [],
    entry,
    vanished: stale === undefined ? vanished : [],
    ledger,
    settled,
    unsettled,
    listDueMs,
    nextMaturityMs: availability.nextMaturityMs,
    awaitsPosition: uncoveredImmature(availability, input.snapshot.position).length > 0,
  };
}

/** Empty under upstream's algorithms, which settle a record before its deletion is seen. */
function vanishedOf({ algorithm, history, gone = [], stored, spec }: CellUpdateInput): readonly VanishedPod[] {
  return algorithm === "exact" && history.lost === undefined ? vanishedPods(gone, stored, spec) : [];
}

/** The fences against an old leader and a stale list. */
function staleness({ stored, history, adoptedEpoch, snapshot }: CellUpdateInput): StaleSnapshot | undefined {
  const storedEpoch = stored?.aggregation?.epoch ?? 0;
  if (storedEpoch > adoptedEpoch) return "StaleEpoch";
  if (history.lost !== undefined) return undefined;
  const isStale = isBehind(snapshot.position, stored?.aggregation?.resourceVersion);
  return isStale ? "StalePosition" : undefined;
}

function entryOf(
  input: CellUpdateInput,
  availability: Availability,
  { ledger, hold }: SettledHistory,
  cutoffMs: number,
  vanished: number,
): CellStatus {
  const { counts } = availability;
  const { stored, cellID, spec } = input;
  const buckets = ledger.changed ? ledger.encode(spec.compactThreshold) : (stored?.admissionHistory?.buckets ?? []);
  // Upstream's algorithms do not publish the exact fields: an upstream webhook would drop them, and each write would
  // add them again.
  const {
    hold: _,
    resourceVersion,
    specHash,
    maturityCutoff,
    expectedReplicas: __,
    sharesPodsWith: ___,
    leftOut: ____,
    vanishedPods: _____,
    vanishedTime: ______,
    notReady: _______,
    ...kept
  }: Partial<Aggregation> = stored?.aggregation ?? {};
  const expectedReplicas = expectedOf(input, counts.total);
  const aggregation: Aggregation = {
    ...kept,
    totalReplicas: counts.total,
    availableReplicas: counts.available,
    readyReplicas: counts.ready,
    scheduledReplicas: counts.scheduled,
    runningReplicas: counts.running,
    lastEventTime: formatMs(input.lastEventMs),
    heartbeatTime: formatMs(input.nowMs),
    epoch: input.history.epoch,
    ...(hold === undefined ? {} : { hold }),
    ...(expectedReplicas === undefined ? {} : { expectedReplicas }),
    ...vanishedFields(stored?.aggregation ?? undefined, vanished, input.nowMs),
    ...(input.algorithm === "exact" || input.probesFields === true
      ? exactFields(input, cutoffMs, availability.notReady?.size ?? 0)
      : {}),
  };
  return { ...stored, cellID, aggregation, admissionHistory: { ...stored?.admissionHistory, buckets } };
}

/**
 * The number of expected pods to publish. Without a workload, the number is unknown: present pods may have a controller
 * of another kind, and a workload that asked for pods may have been erased. So the published number stays. A 0 from
 * before the first pods is removed when pods appear. A 0 of a workload that is gone before its last pods allows their
 * disruption. A number that was counted by another selector is of other pods, and does not stay. Where it is not known
 * whether only other fields have changed, it passes for one.
 */
function expectedOf({ expected, stored, spec, isSelectorKept }: CellUpdateInput, pods: number): number | undefined {
  if (expected === undefined) return undefined;
  const { expectedReplicas, totalReplicas = 0, specHash = spec.specHash } = stored?.aggregation ?? {};
  const before = isSelectorKept === true || specHash === spec.specHash ? expectedReplicas : undefined;
  if (expected === "Unknown") return before;
  if (expected.workloads > 0 || (pods === 0 && !before)) return expected.replicas;
  return before === 0 && pods > totalReplicas ? undefined : before;
}

function exactFields(
  { snapshot, spec, sharesPodsWith = [], probesFields = false }: CellUpdateInput,
  cutoffMs: number,
  waiting: number,
): Partial<Aggregation> {
  const notReady = notReadyMark(waiting, snapshot.position, probesFields);
  const leftOut = leftOutMark(spec, snapshot.position);
  return {
    ...(sharesPodsWith.length === 0 ? {} : { sharesPodsWith: [...sharesPodsWith] }),
    ...(snapshot.position === undefined ? {} : { resourceVersion: snapshot.position }),
    specHash: spec.specHash,
    ...(leftOut === undefined ? {} : { leftOut }),
    ...(notReady === undefined ? {} : { notReady }),
    ...(spec.minReadySeconds === 0 ? {} : { maturityCutoff: formatMs(cutoffMs) }),
  };
}

const COUNTS = ["totalReplicas", "availableReplicas", "readyReplicas", "scheduledReplicas", "runningReplicas"] as const;

function reasonsToWrite(
  input: CellUpdateInput,
  availability: Availability,
  history: SettledHistory,
  { aggregation: next }: CellStatus,
  vanished: number,
): WriteReason[] {
  const before = input.stored?.aggregation ?? undefined;
  const reasons: WriteReason[] = [];
  if (!isCounted(before)) reasons.push(availability.counts.total > 0 ? "New" : "Empty");
  if (COUNTS.some((field) => (before?.[field] ?? 0) !== next?.[field])) reasons.push("Counts");
  else if (isLessReady(before, next)) reasons.push("Counts");
  if (history.settled.length > 0) reasons.push("Settled");
  if (history.isReweighed) reasons.push("Weights");
  if (before !== undefined) {
    const isExact = input.algorithm === "exact";
    // Fields that only probe the core are not a reason to write: under upstream's algorithms, such a write would not
    // wait for the window.
    const published = input.probesFields === true && !isExact ? before : next;
    const isLeftOutSame = before.leftOut === leftOutMark(input.spec, before.resourceVersion);
    if (before.specHash !== published?.specHash || (isExact && !isLeftOutSame)) reasons.push("Spec");
    if ((before.epoch ?? 0) !== next?.epoch) reasons.push("Epoch");
    const hasPosition = before.resourceVersion !== undefined;
    if (hasPosition !== (published?.resourceVersion !== undefined)) reasons.push("Fields");
    if (isMaturityUnpublished(input, availability, before)) reasons.push("Maturity");
  }
  if (before?.hold !== history.hold) reasons.push("Hold");
  if (before?.expectedReplicas !== next?.expectedReplicas) reasons.push("Expected");
  if (vanished > 0) reasons.push("Vanished");
  if (input.isHeartbeatDue) reasons.push("Heartbeat");
  return reasons;
}

/**
 * True when the number of pods that are not Ready yet differs from the published one. Only compared at another
 * position: where the CRD drops the field, it would be written again and again.
 */
function isLessReady(before: Aggregation | undefined, next: Aggregation | null | undefined): boolean {
  return before?.resourceVersion !== next?.resourceVersion && notReadyIn(before) !== notReadyIn(next);
}

/**
 * The webhook judges maturity by the published cutoff and position. A pod that has matured since must be published,
 * even if another pod left and the number is the same. An immature pod costs quota at the webhook while the published
 * position does not cover its version.
 */
function isMaturityUnpublished(input: CellUpdateInput, availability: Availability, before: Aggregation): boolean {
  const { spec, algorithm, snapshot } = input;
  if (spec.minReadySeconds === 0 || algorithm !== "exact") return false;
  if (before.maturityCutoff === undefined || availability.newestSinceMs > parseMs(before.maturityCutoff)) return true;
  const uncovered = uncoveredImmature(availability, before.resourceVersion);
  // Only a position that covers more of these pods is written; otherwise the write would be repeated until the lagging
  // shard has caught up.
  return uncovered.length > uncoveredImmature(availability, snapshot.position).length;
}

/** Immature pods whose version some shard of `position` has not reached. */
function uncoveredImmature({ immature }: Availability, position: string | undefined): readonly Pod[] {
  const oldest = oldestComponent(position);
  if (oldest === undefined) return [];
  return immature.filter(({ resourceVersion }) => !hasReached(oldest, resourceVersion));
}
