/**
 * Lost history (design 5.4): has an admission possibly been forgotten that this cell's entry should know of? Then the
 * epoch rises and the cell goes on hold until evidence taken a settle period later. Asked by the aggregator before each
 * accounting.
 */
import type { CellStatus } from "../../schema/podprotector.ts";
import { isBehind, isOlderVersion } from "../../schema/resource-version.ts";
import { isCounted } from "../state/protector-state.ts";

/** What an aggregator wrote or read last of one protector's entry for its cell. */
export interface KnownEntry {
  readonly protectorUID: string;
  /** `metadata.resourceVersion` of the protector. */
  readonly protectorVersion: string;
  /** The entry was there, counted by an aggregator. */
  readonly wasCounted: boolean;
  readonly epoch: number;
  readonly position: string | undefined;
  /** The last incident that was written ({@link HistoryCheckInput.etcdRestore}). */
  readonly etcdRestoreID?: string | undefined;
}

/** A loss that concerns the whole cell or core, which no single entry shows. */
export interface EtcdRestore {
  /** Distinguishes it from others, so that it is answered once. */
  readonly id: string;
  /** The core is older than it was seen (design 5.4, "highest version"), or the cell's etcd went back. */
  readonly reason: "CoreRestored" | "CellRestored";
}

export type LossReason =
  /** Epoch, position or the protector's version went back. */
  | "Behind"
  /** The entry was there before. */
  | "Gone"
  /** Counted by a component that knows no positions, or that dropped them. */
  | "NoPosition"
  /** Another protector of the same name. */
  | "Recreated"
  /** The protector was created again from a copy and says so. */
  | "Restored"
  /** The entry was removed and has left its epoch behind. */
  | "CellRemoved"
  | EtcdRestore["reason"];

export interface HistoryCheckInput {
  readonly protectorUID: string;
  /**
   * Of the object that is judged. It must be the newest that is known: a watch that has not caught up with an own write
   * is lag, not loss; a list or a quorum read that is older than an own write is loss.
   */
  readonly protectorVersion: string;
  readonly stored: CellStatus | undefined;
  /** Undefined for a protector that this process has not met before. */
  readonly known: KnownEntry | undefined;
  /** The protector carries the mark of a copy (annotation `restored`). */
  readonly isMarkedRestored: boolean;
  readonly etcdRestore: EtcdRestore | undefined;
  /** A fresh token, for the identity of a hold. */
  readonly token: string;
}

export interface HistoryCheck {
  readonly lost: LossReason | undefined;
  /** The epoch to write. */
  readonly epoch: number;
  /** The hold to write: a new one, the stored one, or none. */
  readonly hold: string | undefined;
}

/**
 * What the stored entry says about the history, given what was known of it. For exact accounting only: upstream's
 * algorithms publish no positions and know no lost history.
 */
export function checkHistory(input: HistoryCheckInput): HistoryCheck {
  const { stored, known, token } = input;
  const storedEpoch = stored?.aggregation?.epoch ?? 0;
  const lost = lossOf(input);
  if (lost === undefined) return { lost, epoch: storedEpoch, hold: stored?.aggregation?.hold };
  return { lost, epoch: Math.max(storedEpoch, known?.epoch ?? 0) + 1, hold: `${lost}/${token}` };
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
  // From here on nobody has counted with a position. A hold that a webhook has put there is kept as it is.
  if (aggregation?.hold !== undefined) return undefined;
  if (input.isMarkedRestored) return "Restored";
  if (isCounted(aggregation)) return "NoPosition";
  // Never counted: nothing was admitted there, unless an entry that was removed has left its epoch behind (design 5.4).
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
