/** The safety invariants of a world, judged by its own record of the pods (docs/design.md#invariants). */
import { availableNow, POD, type SmallWorld, stateAt, stateNow, type WorldCell, type WorldPod } from "./world.ts";

/** A sentence that begins with the name of the invariant. */
export type BrokenInvariant = string;

/** S1: the pods that are counted, and neither possibly deleted nor deleted since the snapshot, are the minimum. */
export function quotaViolation({ cells }: SmallWorld, minAvailable: number): BrokenInvariant | undefined {
  let left = 0;
  for (const { pods, position } of cells)
    for (const pod of pods) if (stateAt(pod, position) === POD.Ready && !isTaken(pod) && !mayBeTaken(pod)) left++;
  return left < minAvailable ? `S1: only ${left} counted pods are certain to stay` : undefined;
}

function isTaken(pod: WorldPod): boolean {
  const state = stateNow(pod);
  return state === POD.TakenTerminating || state === POD.TakenGone;
}

/** The disruption of a pod that is unavailable by itself takes nothing. */
function mayBeTaken(pod: WorldPod): boolean {
  return stateNow(pod) === POD.Ready && isRequested(pod);
}

function isRequested({ reservation, unrecorded }: WorldPod): boolean {
  if (unrecorded.includes(true)) return true;
  for (const record of reservation?.records ?? [])
    for (const { inFlight } of record?.nonces ?? []) if (inFlight) return true;
  return false;
}

/** S2: fewer than the minimum are available only by as many as were lost without a request. */
export function supplyViolation(world: SmallWorld, minAvailable: number): BrokenInvariant | undefined {
  const left = availableNow(world);
  return left + world.lost < minAvailable ? `S2: only ${left} pods are available` : undefined;
}

/** S3, S4 and S6 after an aggregator's write; `stored` is the position before. */
export function countViolation(cell: WorldCell, snapshot: number, stored: number): BrokenInvariant | undefined {
  const { pods, available, position } = cell;
  if (position !== snapshot) return `S3: the count of position ${snapshot} is said to be of ${position}`;
  let counted = 0;
  let unreserved = 0;
  let weight = 0;
  for (const pod of pods) {
    weight += pod.reservation?.weight ?? 0;
    if (stateAt(pod, position) !== POD.Ready) continue;
    counted++;
    if (pod.reservation === undefined) unreserved++;
  }
  if (counted !== available) return `S3: ${available} pods are counted, ${counted} were available`;
  if (position < stored) return "S4: the stored position went back";
  if (available - weight !== unreserved)
    return `S6: A - sum(w) is ${available - weight}, and ${unreserved} available pods have no reservation`;
  return undefined;
}
