import type { Bounds } from "../bounds.ts";
import { POD, type PodStage, type SmallWorld, type WorldCell, type WorldPod } from "./world.ts";

/** What an aggregator knows that starts. */
export const NEW_LEADER = {
  isKnowing: false,
  knewCounts: false,
  knownEpoch: 0,
  seenEpoch: 0,
  adoptedEpoch: 0,
  sawHold: false,
  isLost: false,
  hasIncident: false,
};

/** Every cell is counted, nothing is reserved. */
export function firstWorld({ cells, pods, later, admissions, changes, faults }: Bounds): SmallWorld {
  const edits = { isMinimumRaised: false, isSelectorEdited: false, isSuspended: false };
  const left = { admissions, changes, faults };
  return { ...left, lost: 0, clock: 0, edits, cells: times(cells, () => cellOf(pods, later)) };
}

function cellOf(pods: number, later: number): WorldCell {
  const counts = { total: pods, ready: pods, available: pods, position: 0, isOfEditedSelector: false, cutoff: 0 };
  return {
    ...counts,
    end: 0,
    isCounted: true,
    epoch: 0,
    isOnHold: false,
    isCountLost: false,
    aggregators: [{ ...NEW_LEADER, position: 0, isKnowing: true, knewCounts: true }],
    pods: [...times(pods, () => podOf(POD.Ready)), ...times(later, () => podOf(POD.Absent))],
  };
}

function podOf(base: PodStage): WorldPod {
  const unknown = { earlier: POD.Absent, log: [], lost: [], reservation: undefined };
  return { base, ...unknown, unrecorded: [false, false], isOutside: false };
}

function times<T>(count: number, make: () => T): T[] {
  return Array.from({ length: count }, make);
}
