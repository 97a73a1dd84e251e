/**
 * One state of the explored world, as small plain data. Versions and nonces have no names here: a version of a pod is
 * the place of its change in the log of its cell, and a nonce is what the world still knows of its request. So states
 * that differ by names only are equal.
 */

/** What an apiserver stores of a pod. `Taken`: it was available when its disruption was committed. */
export const POD = {
  Absent: 0,
  Unready: 1,
  Ready: 2,
  Terminating: 3,
  Gone: 4,
  TakenTerminating: 5,
  TakenGone: 6,
  /** Ready, and not mature before the clock ticks, or never. */
  Maturing: 7,
  Immature: 8,
} as const;
export type PodStage = number;

export const OPERATIONS = ["DELETE", "EVICT"] as const;

/** One admission that shares a record. */
export interface Nonce {
  /** An apiserver may still commit the disruption. */
  inFlight: boolean;
  /** By aggregator: it has met the admission. */
  seen: boolean[];
  /** It was admitted after a restore of the cell that some aggregator does not know of. */
  isAfterRestore: boolean;
}

/** `version` is a place in the log of the cell, 0 for the version of `base`, {@link OLDER} for any older one. */
export interface WorldRecord {
  version: number;
  paid: boolean;
  nonces: Nonce[];
}
export const OLDER = -1;

export interface WorldReservation {
  weight: number;
  packed: boolean;
  /** By index of {@link OPERATIONS}. */
  records: (WorldRecord | undefined)[];
}

interface Change {
  /** In the log of the cell, from 1. */
  place: number;
  state: PodStage;
}

export interface WorldPod {
  /** At the oldest position that anybody knows. */
  base: PodStage;
  /** A live state before that one, in which a late review may have seen the pod; Absent where there was none. */
  earlier: PodStage;
  /** Later changes, oldest first. */
  log: Change[];
  /** The log of the history that a restore of the cell has ended. */
  lost: Change[];
  reservation: WorldReservation | undefined;
  /** By index of {@link OPERATIONS}: a disruption without a record may still be committed. */
  unrecorded: boolean[];
  /** The counted selector does not match it once the selector is edited. */
  isOutside: boolean;
}

interface WorldAggregator {
  /** The place in the log that its snapshot shows. */
  position: number;
  /** It knows the cell's entry. */
  isKnowing: boolean;
  /** The entry that it knows was counted. */
  knewCounts: boolean;
  knownEpoch: number;
  /** The newest epoch that it has met; it adopts it by a LIST that is sent later. */
  seenEpoch: number;
  adoptedEpoch: number;
  /** It has met the stored hold. */
  sawHold: boolean;
  /** Its snapshot is of the lost history, and its stream is silent. */
  isLost: boolean;
  /** It has noticed a restore of the cell, and has not written so. */
  hasIncident: boolean;
}

export interface WorldCell {
  /** Number of changes in the log. */
  end: number;
  /** False for an entry that was removed: nothing of it is left but the epoch. */
  isCounted: boolean;
  /** The stored counts, and what they are of. */
  total: number;
  ready: number;
  available: number;
  position: number;
  isOfEditedSelector: boolean;
  /** The clock at the published cutoff. */
  cutoff: number;
  epoch: number;
  isOnHold: boolean;
  /** The stored count is of the lost history. */
  isCountLost: boolean;
  aggregators: WorldAggregator[];
  pods: WorldPod[];
}

/** The spec as it is now. */
export interface Edits {
  readonly isMinimumRaised: boolean;
  readonly isSelectorEdited: boolean;
  readonly isSuspended: boolean;
}

export interface SmallWorld {
  /** What is left of the bounds. */
  admissions: number;
  changes: number;
  faults: number;
  /** Pods that S2 does not promise: they became unready by themselves, or nobody promises anything. */
  lost: number;
  /** 0, or 1 once pods that became ready at 0 are mature. */
  clock: number;
  edits: Edits;
  cells: WorldCell[];
}

/** More than there are pods. */
export const NOTHING_PROMISED = 100;

export function isReady(state: PodStage): boolean {
  return state === POD.Ready || state === POD.Maturing || state === POD.Immature;
}

/** Available by a cutoff. */
export function isMature(state: PodStage, cutoff: number): boolean {
  return state === POD.Ready || (state === POD.Maturing && cutoff > 0);
}

export function isLive(state: PodStage): boolean {
  return state === POD.Unready || isReady(state);
}

/** True when a list has the pod. */
export function isPresent(state: PodStage): boolean {
  return state !== POD.Absent && state !== POD.Gone && state !== POD.TakenGone;
}

/** A pod in one of both histories. */
export type PodView = Pick<WorldPod, "base" | "log">;

export function viewOf({ base, log, lost }: WorldPod, isLost: boolean): PodView {
  return { base, log: isLost ? lost : log };
}

export function stateAt({ base, log }: PodView, position: number): PodStage {
  let state = base;
  for (const change of log) if (change.place <= position) state = change.state;
  return state;
}

export function versionAt({ log }: PodView, position: number): number {
  let version = 0;
  for (const { place } of log) if (place <= position) version = place;
  return version;
}

/** The pod as its apiserver stores it now. */
export function stateNow({ base, log }: WorldPod): PodStage {
  return log.at(-1)?.state ?? base;
}

export function versionNow({ log }: WorldPod): number {
  return log.at(-1)?.place ?? 0;
}

/** No request of this operation can be committed any more. */
export function endRequests({ reservation, unrecorded }: WorldPod, operation: number): void {
  unrecorded[operation] = false;
  for (const nonce of reservation?.records[operation]?.nonces ?? []) nonce.inFlight = false;
}

/** The pod changes in its cell: a DELETE commits at the reviewed version only, an eviction while the pod lives. */
export function changePod(cell: WorldCell, pod: WorldPod, state: PodStage): void {
  cell.end++;
  pod.log.push({ place: cell.end, state });
  endRequests(pod, 0);
  if (!isLive(state)) endRequests(pod, 1);
}

/** A disruption of the pod that was allowed may still be committed. */
export function isRequested({ reservation, unrecorded }: WorldPod): boolean {
  if (unrecorded.includes(true)) return true;
  for (const record of reservation?.records ?? [])
    for (const { inFlight } of record?.nonces ?? []) if (inFlight) return true;
  return false;
}

/** Pods of all cells that the protector counts as available now. */
export function availableNow({ cells, clock, edits }: SmallWorld): number {
  let sum = 0;
  for (const { pods } of cells)
    for (const pod of pods) if (isMature(stateNow(pod), clock) && !(edits.isSelectorEdited && pod.isOutside)) sum++;
  return sum;
}

export function cloneWorld(world: SmallWorld): SmallWorld {
  return { ...world, cells: world.cells.map(cloneCell) };
}

function cloneCell(cell: WorldCell): WorldCell {
  return {
    ...cell,
    aggregators: cell.aggregators.map((aggregator) => ({ ...aggregator })),
    pods: cell.pods.map((pod) => ({
      ...pod,
      log: pod.log.map(({ place, state }) => ({ place, state })),
      lost: pod.lost.map(({ place, state }) => ({ place, state })),
      reservation: pod.reservation && {
        weight: pod.reservation.weight,
        packed: pod.reservation.packed,
        records: pod.reservation.records.map(cloneRecord),
      },
      unrecorded: pod.unrecorded.slice(),
    })),
  };
}

function cloneRecord(record: WorldRecord | undefined): WorldRecord | undefined {
  if (record === undefined) return undefined;
  const nonces = record.nonces.map((nonce) => ({ ...nonce, seen: nonce.seen.slice() }));
  return { version: record.version, paid: record.paid, nonces };
}
