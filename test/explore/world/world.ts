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
} as const;
export type PodStage = number;

export const OPERATIONS = ["DELETE", "EVICT"] as const;

/** One admission that shares a record. */
export interface Nonce {
  /** An apiserver may still commit the disruption. */
  inFlight: boolean;
  /** By aggregator: it has met the admission. */
  seen: boolean[];
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
  reservation: WorldReservation | undefined;
  /** By index of {@link OPERATIONS}: a disruption that was allowed without a record may still be committed. */
  unrecorded: boolean[];
}

interface WorldAggregator {
  /** The place in the log that its snapshot shows. */
  position: number;
}

export interface WorldCell {
  /** Number of changes in the log. */
  end: number;
  /** The stored counts and their position. */
  total: number;
  available: number;
  position: number;
  aggregators: WorldAggregator[];
  pods: WorldPod[];
}

/** The first four numbers are what is left of the bounds, and pods that became unready by themselves. */
export interface SmallWorld {
  admissions: number;
  changes: number;
  faults: number;
  lost: number;
  cells: WorldCell[];
}

export function isLive(state: PodStage): boolean {
  return state === POD.Unready || state === POD.Ready;
}

/** True when a list has the pod. */
export function isPresent(state: PodStage): boolean {
  return state !== POD.Absent && state !== POD.Gone && state !== POD.TakenGone;
}

export function stateAt({ base, log }: WorldPod, position: number): PodStage {
  let state = base;
  for (const change of log) if (change.place <= position) state = change.state;
  return state;
}

export function versionAt({ log }: WorldPod, position: number): number {
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
function endRequests({ reservation, unrecorded }: WorldPod, operation: number): void {
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

/** Pods of all cells that serve now. */
export function availableNow({ cells }: SmallWorld): number {
  let sum = 0;
  for (const { pods } of cells) for (const pod of pods) if (stateNow(pod) === POD.Ready) sum++;
  return sum;
}

export function cloneWorld(world: SmallWorld): SmallWorld {
  const { admissions, changes, faults, lost } = world;
  return { admissions, changes, faults, lost, cells: world.cells.map(cloneCell) };
}

function cloneCell({ end, total, available, position, aggregators, pods }: WorldCell): WorldCell {
  return {
    ...{ end, total, available, position },
    aggregators: aggregators.map((aggregator) => ({ position: aggregator.position })),
    pods: pods.map(({ base, earlier, log, reservation, unrecorded }) => ({
      ...{ base, earlier },
      log: log.map(({ place, state }) => ({ place, state })),
      reservation: reservation && {
        weight: reservation.weight,
        packed: reservation.packed,
        records: reservation.records.map(cloneRecord),
      },
      unrecorded: unrecorded.slice(),
    })),
  };
}

function cloneRecord(record: WorldRecord | undefined): WorldRecord | undefined {
  if (record === undefined) return undefined;
  const nonces = record.nonces.map(({ inFlight, seen }) => ({ inFlight, seen: seen.slice() }));
  return { version: record.version, paid: record.paid, nonces };
}
