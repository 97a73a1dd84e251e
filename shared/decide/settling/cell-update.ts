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
   * The highest epoch that the snapshot is newer than: a quorum list was taken after this process had seen the epoch.
   */
  readonly adoptedEpoch: number;
  /** Wall clock, Unix milliseconds, for maturity and for times that people read. */
  readonly nowMs: number;
  readonly isHeartbeatDue: boolean;
  /** The core has dropped fields before: all are written, also those that have nothing to say. */
  readonly probesFields?: boolean;
  /** Names of the protectors that count pods of this one, too. Published with the next write, and no reason for one. */
  readonly sharesPodsWith?: readonly string[];
  /** Pods that are gone without a sign of a deletion. */
  readonly gone?: readonly VanishedPod[];
  /** Undefined where the protector does not ask for it. */
  readonly expected?: ExpectedReplicas | undefined;
}

/**
 * How many pods the workloads of the cell ask for (docs/design.md#expected-pods), and how many workloads these are.
 * "Unknown": they are not listed yet.
 */
export type ExpectedReplicas = "Unknown" | { readonly workloads: number; readonly replicas: number };

export type WriteReason =
  /** First count of this cell, with pods. */
  | "New"
  /** First count of this cell, and no pod matches: where there are many cells, the entry may stay unwritten. */
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
  /** Pods have vanished, and the stored version, which is to be written over, knows of no deletion. */
  | "Vanished"
  | "Heartbeat";

export type StaleSnapshot =
  /** The stored position is newer than the snapshot. */
  | "StalePosition"
  /** The stored epoch is not adopted yet. */
  | "StaleEpoch";

export interface CellUpdate extends Pick<SettledHistory, "ledger" | "settled" | "unsettled" | "listDueMs"> {
  /** Why the snapshot must not be written; undefined when it may be. */
  readonly stale: StaleSnapshot | undefined;
  /** Why the entry should be written; empty when there is no need. */
  readonly reasons: readonly WriteReason[];
  /** The entry to write; it keeps unknown fields of the stored one. */
  readonly entry: CellStatus;
  /** Those of `gone` that nobody may have deleted, if this entry is stored. */
  readonly vanished: readonly VanishedPod[];
  /** Wall clock, Unix milliseconds at which the next pod matures. */
  readonly nextMaturityMs: number | undefined;
  /**
   * There is something to publish once the position has moved: a lagging shard does not cover an immature pod's version
   * yet.
   */
  readonly awaitsPosition: boolean;
}

/**
 * Pure, except that it records first sights in `input.seen`. Computed again from its own result, it finds nothing to
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
    awaitsPosition: uncoveredImmature(input, availability, input.snapshot.position).length > 0,
  };
}

/** Upstream's algorithms settle a record before its deletion is seen. */
function vanishedOf({ algorithm, history, gone = [], stored, spec }: CellUpdateInput): readonly VanishedPod[] {
  return algorithm === "exact" && history.lost === undefined ? vanishedPods(gone, stored, spec) : [];
}

/** The fences against an old leader and a stale list. */
function staleness({ stored, history, adoptedEpoch, snapshot }: CellUpdateInput): StaleSnapshot | undefined {
  const storedEpoch = stored?.aggregation?.epoch ?? 0;
  if (storedEpoch > adoptedEpoch) return "StaleEpoch";
  if (history.epoch > storedEpoch) return undefined;
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
  // Upstream's algorithms do not publish the exact fields: an upstream webhook drops them, and each write would bring
  // them back.
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
 * What to publish. Without a workload, nothing says how many pods there should be: those that are there may have a
 * controller of another kind, and a workload that asked for pods before may have been erased. So nothing new is said,
 * and a 0 of before the first pods is taken back when pods come. That of a workload which is gone before its last pods
 * lets them go.
 */
function expectedOf({ expected, stored }: CellUpdateInput, pods: number): number | undefined {
  if (expected === undefined) return undefined;
  const { expectedReplicas: before, totalReplicas = 0 } = stored?.aggregation ?? {};
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
    // What only probes the core is no news: under upstream's algorithms it would not wait for the window.
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
 * Another number of pods than published is not Ready yet. Only another position says so: where the CRD drops the field,
 * it would be written again and again.
 */
function isLessReady(before: Aggregation | undefined, next: Aggregation | null | undefined): boolean {
  return before?.resourceVersion !== next?.resourceVersion && notReadyIn(before) !== notReadyIn(next);
}

/**
 * The webhook judges maturity by the published cutoff and position. A pod that has matured since must be published,
 * even when another pod left and the number stayed; and at the webhook an immature pod costs quota while the published
 * position does not cover its version.
 */
function isMaturityUnpublished(input: CellUpdateInput, availability: Availability, before: Aggregation): boolean {
  const { spec, algorithm, snapshot } = input;
  if (spec.minReadySeconds === 0 || algorithm !== "exact") return false;
  if (before.maturityCutoff === undefined || availability.newestSinceMs > parseMs(before.maturityCutoff)) return true;
  const uncovered = uncoveredImmature(input, availability, before.resourceVersion);
  // A position that covers no more of these pods would be written again and again until the lagging shard has caught
  // up.
  return uncovered.length > uncoveredImmature(input, availability, snapshot.position).length;
}

/** Immature pods of versions that some shard of `position` has not reached. */
function uncoveredImmature(
  { spec, algorithm }: CellUpdateInput,
  { immature }: Availability,
  position: string | undefined,
): readonly Pod[] {
  const oldest = oldestComponent(position);
  if (spec.minReadySeconds === 0 || algorithm !== "exact" || oldest === undefined) return [];
  return immature.filter(({ resourceVersion }) => !hasReached(oldest, resourceVersion));
}
