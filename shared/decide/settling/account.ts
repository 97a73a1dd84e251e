import type { Pod } from "../../schema/pod.ts";
import type { Aggregation, CellStatus } from "../../schema/podprotector.ts";
import { hasReached } from "../../schema/resource-version.ts";
import { type Availability, countPods, maturityCutoffMs } from "../availability/availability.ts";
import { isBehind, oldestComponent } from "../position.ts";
import { isCounted } from "../state/protector-state.ts";
import { formatMs, parseMs } from "../time.ts";
import type { AccountInput } from "./account-input.ts";
import { type Dropped, type Settlement, settle, type Wants } from "./account-settle.ts";

export { type AccountInput, SYNC_TIME_ALGORITHMS, type SyncTimeAlgorithm } from "./account-input.ts";
export type { Dropped, Pending, SettleRule, Wants } from "./account-settle.ts";
export type { CellSnapshot, Evidence } from "./settle.ts";

export type WriteReason =
  /** First count of this cell, with pods. */
  | "New"
  /** First count of this cell, and none of its pods match: may be left unwritten where there are many cells. */
  | "Empty"
  | "Counts"
  | "Settled"
  | "Weights"
  | "Spec"
  | "Epoch"
  | "Hold"
  /** Pods that the published cutoff or position knows nothing of. */
  | "Maturity"
  | "Fields"
  | "Heartbeat";

export type WriteRefusal =
  /** The stored position is newer than the snapshot (design 5.2, the fence). */
  | "StalePosition"
  /** The stored epoch was not adopted yet (design 5.4). */
  | "StaleEpoch";

export interface AccountResult {
  /** Set when nothing may be written. */
  readonly refused: WriteRefusal | undefined;
  /** Why the entry should be written; empty when it need not be. */
  readonly reasons: readonly WriteReason[];
  /** `reasons` is not empty. */
  readonly write: boolean;
  /** The entry to write; the stored one's unknown fields are kept. */
  readonly entry: CellStatus;
  readonly dropped: readonly Dropped[];
  readonly wants: Wants;
  /** Wall clock, Unix milliseconds at which the next pod matures. */
  readonly nextMaturityMs: number | undefined;
  /** There is something to publish once the position has moved: a shard that is behind does not know an immature pod's version yet. */
  readonly awaitsPosition: boolean;
  /** UIDs of the available pods. */
  readonly available: ReadonlySet<string>;
}

/** Accounts for one cell. Pure but for `seen`. The same input twice gives nothing more to write. */
export function accountCell(input: AccountInput): AccountResult {
  const cutoffMs = maturityCutoffMs(input.nowMs, input.spec);
  const availability = countPods(input.pods, input.spec, cutoffMs);
  const settlement = settle(input, availability.available);
  const entry = entryOf(input, availability, settlement, cutoffMs);
  const refused = refusalOf(input);
  const reasons = refused === undefined ? reasonsToWrite(input, availability, settlement, entry) : [];
  return {
    refused,
    reasons,
    write: reasons.length > 0,
    entry,
    dropped: settlement.dropped,
    wants: settlement.wants,
    nextMaturityMs: availability.nextMaturityMs,
    awaitsPosition: unknownImmature(input, availability, input.snapshot.position).length > 0,
    available: availability.available,
  };
}

/** The fences against an old leader and a stale list. */
function refusalOf({ stored, history, adoptedEpoch, snapshot }: AccountInput): WriteRefusal | undefined {
  const storedEpoch = stored?.aggregation?.epoch ?? 0;
  if (storedEpoch > adoptedEpoch) return "StaleEpoch";
  if (history.epoch > storedEpoch) return undefined;
  const isStale = isBehind(snapshot.position, stored?.aggregation?.resourceVersion);
  return isStale ? "StalePosition" : undefined;
}

function entryOf(
  input: AccountInput,
  { counts }: Availability,
  { ledger, hold }: Settlement,
  cutoffMs: number,
): CellStatus {
  const { stored, cellID, spec } = input;
  const buckets = ledger.changed ? ledger.encode(spec.compactThreshold) : (stored?.admissionHistory?.buckets ?? []);
  const { hold: _, ...kept } = stored?.aggregation ?? {};
  const aggregation: Aggregation = {
    ...withoutExactFields(kept),
    totalReplicas: counts.total,
    availableReplicas: counts.available,
    readyReplicas: counts.ready,
    scheduledReplicas: counts.scheduled,
    runningReplicas: counts.running,
    lastEventTime: formatMs(input.lastEventMs),
    heartbeatTime: formatMs(input.nowMs),
    epoch: input.history.epoch,
    ...(hold === undefined ? {} : { hold }),
    ...(input.algorithm === "exact" ? exactFields(input, cutoffMs) : {}),
  };
  return { ...stored, cellID, aggregation, admissionHistory: { ...stored?.admissionHistory, buckets } };
}

/** What upstream's algorithms do not publish: beside an upstream webhook they would be dropped and written again for ever. */
function withoutExactFields(kept: Partial<Aggregation>): Partial<Aggregation> {
  const { resourceVersion, specHash, maturityCutoff, ...rest } = kept;
  return rest;
}

function exactFields({ snapshot, spec }: AccountInput, cutoffMs: number): Partial<Aggregation> {
  return {
    ...(snapshot.position === undefined ? {} : { resourceVersion: snapshot.position }),
    specHash: spec.specHash,
    ...(spec.minReadySeconds === 0 ? {} : { maturityCutoff: formatMs(cutoffMs) }),
  };
}

function reasonsToWrite(
  input: AccountInput,
  availability: Availability,
  settlement: Settlement,
  { aggregation: next }: CellStatus,
): WriteReason[] {
  const before = input.stored?.aggregation ?? undefined;
  const reasons: WriteReason[] = [];
  if (!isCounted(before)) reasons.push(availability.counts.total > 0 ? "New" : "Empty");
  if (COUNTS.some((field) => (before?.[field] ?? 0) !== next?.[field])) reasons.push("Counts");
  if (settlement.dropped.length > 0) reasons.push("Settled");
  if (settlement.isReweighed) reasons.push("Weights");
  if (before !== undefined) {
    if (before.specHash !== next?.specHash) reasons.push("Spec");
    if ((before.epoch ?? 0) !== next?.epoch) reasons.push("Epoch");
    const hasPosition = before.resourceVersion !== undefined;
    if (hasPosition !== (next?.resourceVersion !== undefined)) reasons.push("Fields");
    if (isMaturityUnpublished(input, availability, before)) reasons.push("Maturity");
  }
  if (before?.hold !== settlement.hold) reasons.push("Hold");
  if (input.isHeartbeatDue) reasons.push("Heartbeat");
  return reasons;
}

const COUNTS = ["totalReplicas", "availableReplicas", "readyReplicas", "scheduledReplicas", "runningReplicas"] as const;

/**
 * The webhook judges maturity by what is published (design 5.3). A pod that has matured since must be published even when another
 * one went and the number stayed; and an immature pod of a version that the published position does not know costs quota there.
 */
function isMaturityUnpublished(input: AccountInput, availability: Availability, before: Aggregation): boolean {
  const { spec, algorithm, snapshot } = input;
  if (spec.minReadySeconds === 0 || algorithm !== "exact") return false;
  if (before.maturityCutoff === undefined || availability.newestSinceMs > parseMs(before.maturityCutoff)) return true;
  const unknown = unknownImmature(input, availability, before.resourceVersion);
  // To publish a position that does not know them either would be written again and again, until the shard that is behind has caught up.
  return unknown.length > unknownImmature(input, availability, snapshot.position).length;
}

/** Immature pods of versions that some shard of `position` has not reached. */
function unknownImmature(
  { spec, algorithm }: AccountInput,
  { immature }: Availability,
  position: string | undefined,
): readonly Pod[] {
  const oldest = oldestComponent(position);
  if (spec.minReadySeconds === 0 || algorithm !== "exact" || oldest === undefined) return [];
  return immature.filter(({ resourceVersion }) => !hasReached(oldest, resourceVersion));
}
