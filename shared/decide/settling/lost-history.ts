/**
 * Lost history (docs/design.md#lost-history): whether this cell's entry may lack an admission that was recorded there.
 * If so, the epoch rises, and the cell is on hold until there is evidence from a settle period later. The aggregator
 * checks before each update.
 */
import type { CellStatus } from "../../schema/podprotector.ts";
import { isBehind, isOlderVersion } from "../../schema/resource-version.ts";
import { holdOf } from "../state/hold.ts";
import { isCounted } from "../state/protector-state.ts";

/** The state of one protector's entry for the cell that an aggregator last wrote or read. */
export interface KnownEntry {
  readonly protectorUID: string;
  /** `metadata.resourceVersion` of the protector. */
  readonly protectorVersion: string;
  /** The entry existed, counted by an aggregator. */
  readonly wasCounted: boolean;
  readonly epoch: number;
  readonly position: string | undefined;
  /** The last restore that was written ({@link HistoryCheckInput.etcdRestore}). */
  readonly etcdRestoreID?: string | undefined;
}

/** A restore of the core's or the cell's etcd, which a single entry does not show. */
export interface EtcdRestore {
  /** Distinguishes restores, so that each is handled once. */
  readonly id: string;
  /** Whether the core or the cell's etcd is older than a version that was seen before. */
  readonly reason: "CoreRestored" | "CellRestored";
}

type LossReason =
  /** Epoch, position or the protector's version went back. */
  | "Behind"
  /** The entry existed before. */
  | "Gone"
  /** The entry was counted by a component that publishes no position, or lost its position. */
  | "NoPosition"
  /** The protector is another object of the same name. */
  | "Recreated"
  /** The protector was restored from a backup and is marked so. */
  | "Restored"
  /** The entry was removed, except for its epoch. */
  | "CellRemoved"
  | EtcdRestore["reason"];

export interface HistoryCheckInput {
  readonly protectorUID: string;
  /**
   * Version of the checked object, which must be the newest known one: a watch that lags behind an own write does not
   * mean a loss, but a list or quorum read that is older than an own write does.
   */
  readonly protectorVersion: string;
  readonly stored: CellStatus | undefined;
  /** Undefined for a protector that this process has not seen before. */
  readonly known: KnownEntry | undefined;
  /** The protector has the annotation `restored`. */
  readonly isMarkedRestored: boolean;
  readonly etcdRestore: EtcdRestore | undefined;
  /** Draws a fresh token, for the identity of a new hold. */
  readonly token: () => string;
  /** Wall clock, Unix milliseconds. */
  readonly nowMs: number;
}

export interface HistoryCheck {
  readonly lost: LossReason | undefined;
  /** The epoch to write. */
  readonly epoch: number;
  /** The hold to write: a new one, the stored one, or none. */
  readonly hold: string | undefined;
}

/**
 * Compares the stored entry with the known state. Only for `exact`: upstream's algorithms publish no positions, and do
 * not detect lost history.
 */
export function checkHistory(input: HistoryCheckInput): HistoryCheck {
  const { stored, known, token, nowMs } = input;
  const storedEpoch = stored?.aggregation?.epoch ?? 0;
  const lost = lossOf(input);
  if (lost === undefined) return { lost, epoch: storedEpoch, hold: stored?.aggregation?.hold };
  // A user who may write the status can set the highest number: then the epoch stays, and the hold alone tells of it.
  const epoch = Math.min(Math.max(storedEpoch, known?.epoch ?? 0) + 1, Number.MAX_SAFE_INTEGER);
  return { lost, epoch, hold: holdOf(lost, token(), nowMs) };
}

function lossOf(input: HistoryCheckInput): LossReason | undefined {
  const { known, stored, etcdRestore } = input;
  if (known !== undefined && known.protectorUID !== input.protectorUID) return "Recreated";
  if (known !== undefined && isEntryBehind(input, known)) return "Behind";
  if (etcdRestore !== undefined && etcdRestore.id !== known?.etcdRestoreID && isOrWasCounted(input))
    return etcdRestore.reason;
  const aggregation = stored?.aggregation ?? undefined;
  if (known?.wasCounted === true && !isCounted(aggregation)) return "Gone";
  if (aggregation?.resourceVersion !== undefined) return undefined;
  // The entry has no position. A hold from a webhook stays.
  if (aggregation?.hold !== undefined) return undefined;
  if (input.isMarkedRestored) return "Restored";
  if (isCounted(aggregation)) return "NoPosition";
  // Nothing was admitted in a cell that was never counted. Only a removed entry has an epoch without counts.
  return aggregation?.epoch === undefined ? undefined : "CellRemoved";
}

function isEntryBehind({ stored, protectorVersion }: HistoryCheckInput, known: KnownEntry): boolean {
  if (isOlderVersion(protectorVersion, known.protectorVersion)) return true;
  const aggregation = stored?.aggregation ?? undefined;
  if (!isCounted(aggregation)) return false;
  const epoch = aggregation?.epoch ?? 0;
  if (epoch !== known.epoch) return epoch < known.epoch;
  return isBehind(aggregation?.resourceVersion, known.position);
}

function isOrWasCounted({ stored, known }: HistoryCheckInput): boolean {
  return known?.wasCounted === true || isCounted(stored?.aggregation ?? undefined);
}
