/** Copies of a world, with the parts that a step is about, and how a step is told. */
import type { BrokenInvariant } from "./invariants.ts";
import { cloneWorld, OPERATIONS, type SmallWorld, type WorldCell, type WorldPod } from "./world.ts";

/** `tell` says what has happened, for people. */
export type Emit = (next: SmallWorld, tell: () => string, violation?: BrokenInvariant) => void;

export interface Parts {
  readonly world: SmallWorld;
  readonly cell: WorldCell;
  readonly pod: WorldPod;
}

export interface PodPlace {
  readonly cell: number;
  readonly pod: number;
}

/** One operation on one pod. */
export interface RequestPlace extends PodPlace {
  readonly operation: number;
}

export function partsOf(world: SmallWorld, place: PodPlace): Parts {
  const cell = world.cells[place.cell];
  const pod = cell?.pods[place.pod];
  if (cell === undefined || pod === undefined) throw new Error(`there is no pod ${place.cell}.${place.pod}`);
  return { world, cell, pod };
}

export function copyOf(world: SmallWorld, place: PodPlace): Parts {
  return partsOf(cloneWorld(world), place);
}

export function nameOf({ cell, pod }: PodPlace): string {
  return `pod ${cell}.${pod}`;
}

export function requestOf(place: RequestPlace): string {
  return `${OPERATIONS[place.operation]} of ${nameOf(place)}`;
}

export function leaderOf({ aggregators }: WorldCell, at: number, which: number): string {
  return `aggregator ${at}${aggregators.length > 1 ? `, leader ${which + 1},` : ""}`;
}
