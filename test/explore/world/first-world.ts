import type { Bounds } from "../bounds.ts";
import { POD, type PodStage, type SmallWorld, type WorldCell, type WorldPod } from "./world.ts";

/** Every cell is counted, nothing is reserved. */
export function firstWorld({ cells, pods, later, admissions, changes, faults }: Bounds): SmallWorld {
  const cell = (): WorldCell => ({
    end: 0,
    total: pods,
    available: pods,
    position: 0,
    aggregators: [{ position: 0 }],
    pods: [...times(pods, () => podOf(POD.Ready)), ...times(later, () => podOf(POD.Absent))],
  });
  return { admissions, changes, faults, lost: 0, cells: times(cells, cell) };
}

function podOf(base: PodStage): WorldPod {
  return { base, earlier: POD.Absent, log: [], reservation: undefined, unrecorded: [false, false] };
}

function times<T>(count: number, make: () => T): T[] {
  return Array.from({ length: count }, make);
}
