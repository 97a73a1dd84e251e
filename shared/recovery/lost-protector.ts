/**
 * A protector that is gone from its core cluster (design 7): was that meant, and what of its last known version still holds. Pure.
 */

import { classifyPod } from "../decide/availability/availability.ts";
import { type Allowed, type AllowReason, type DisruptionRequest, factsOf, preActivitiesOf } from "../decide/quota.ts";
import type { ProtectorState } from "../decide/state/protector-state.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION, SOURCE_NAME_LABEL } from "../schema/annotations.ts";
import type { PodProtector } from "../schema/podprotector.ts";
import { parseMs } from "../schema/time.ts";

/** True for a protector that nobody but its author keeps: deleting it releases it. */
export function isMadeByHand({ metadata }: PodProtector): boolean {
  return (
    metadata.finalizers?.includes(GENERATOR_FINALIZER) !== true && metadata.labels?.[SOURCE_NAME_LABEL] === undefined
  );
}

/** True when the end of the protector was announced on the object itself, by the mark that precedes the removal of its finalizer. */
export function isMarkedReleased({ metadata }: PodProtector): boolean {
  return metadata.annotations?.[RELEASED_ANNOTATION] !== undefined;
}

/** What a protector that has vanished lets go, as a decision; undefined when it refuses. */
export function decideLost(state: ProtectorState, request: DisruptionRequest): Allowed | undefined {
  const reason = passesVanished(state, request);
  if (reason === undefined) return undefined;
  return { allowed: true, reason, write: "none", facts: factsOf(state, request.criterion) };
}

/**
 * Why a pod may go although its protector has vanished; undefined when it may not (S11). Frozen: no quota is given, because nothing can
 * be recorded. A Ready pod that may not be mature yet counts as available.
 */
function passesVanished({ spec }: ProtectorState, request: DisruptionRequest): AllowReason | undefined {
  if (parseMs(request.startTime) < spec.suspendedUntilMs) return "Suspended";
  if (!spec.protectedOperations.includes(request.operation)) return "NotProtected";
  const podClass = classifyPod(request.pod, spec, undefined);
  if (podClass === "Available" || podClass === "Immature") return request.forced ? "Forced" : undefined;
  if (podClass !== "Unavailable") return podClass;
  // What has to be done before the pod goes is still to be done: that rests on the pod alone, and needs no count.
  const isKept = spec.unhealthyPodPolicy === "IfHealthyBudget" || preActivitiesOf(request.pod).length > 0;
  if (isKept) return request.forced ? "Forced" : undefined;
  return "Unavailable";
}
