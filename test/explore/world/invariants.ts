/** The safety invariants of a world, judged by its own record of the pods (docs/design.md#invariants). */
import {
  availableNow,
  isMature,
  isReady,
  isRequested,
  POD,
  type SmallWorld,
  stateAt,
  stateNow,
  viewOf,
  type WorldCell,
  type WorldPod,
} from "./world.ts";

/** A sentence that begins with the name of the invariant. */
export type BrokenInvariant = string;

/**
 * S1: the pods that are counted, and neither possibly deleted nor deleted since the snapshot, are the minimum. Only
 * cells that are counted by the present spec, and not on hold, have any.
 */
export function quotaViolation({ cells, edits }: SmallWorld, minAvailable: number): BrokenInvariant | undefined {
  let left = 0;
  for (const cell of cells) {
    if (!cell.isCounted || cell.isOnHold || cell.isOfEditedSelector !== edits.isSelectorEdited) continue;
    for (const pod of cell.pods) if (isCountedIn(cell, pod) && !isTaken(pod) && !mayBeTaken(pod)) left++;
  }
  const minimum = minAvailable + (edits.isMinimumRaised ? 1 : 0);
  return left < minimum ? `S1: only ${left} counted pods are certain to stay, and ${minimum} have to` : undefined;
}

/** The stored count has the pod, if it is right. */
function isCountedIn({ position, cutoff, isOfEditedSelector, isCountLost }: WorldCell, pod: WorldPod): boolean {
  return isMature(stateAt(viewOf(pod, isCountLost), position), cutoff) && !(isOfEditedSelector && pod.isOutside);
}

function isTaken(pod: WorldPod): boolean {
  const state = stateNow(pod);
  return state === POD.TakenTerminating || state === POD.TakenGone;
}

/** The disruption of a pod that is unavailable by itself takes nothing. */
function mayBeTaken(pod: WorldPod): boolean {
  return isReady(stateNow(pod)) && isRequested(pod);
}

/** S2: fewer than the minimum are available only by as many as were lost without a request. */
export function supplyViolation(world: SmallWorld, minAvailable: number): BrokenInvariant | undefined {
  const left = availableNow(world);
  return left + world.lost < minAvailable ? `S2: only ${left} pods are available` : undefined;
}

/** S3, S4 and S6 after an aggregator's write; `before` is the stored entry before. */
export function countViolation(
  cell: WorldCell,
  snapshot: number,
  before: Pick<WorldCell, "isCounted" | "position" | "epoch">,
): BrokenInvariant | undefined {
  const { pods, available, position, epoch } = cell;
  if (!cell.isCounted) return undefined;
  if (position !== snapshot) return `S3: the count of position ${snapshot} is said to be of ${position}`;
  let counted = 0;
  let unreserved = 0;
  let weight = 0;
  for (const pod of pods) {
    weight += pod.reservation?.weight ?? 0;
    if (!isCountedIn(cell, pod)) continue;
    counted++;
    if (pod.reservation === undefined) unreserved++;
  }
  if (counted !== available) return `S3: ${available} pods are counted, ${counted} were available`;
  if (before.isCounted && epoch === before.epoch && position < before.position)
    return "S4: the stored position went back";
  if (available - weight !== unreserved)
    return `S6: A - sum(w) is ${available - weight}, and ${unreserved} available pods have no reservation`;
  return undefined;
}
