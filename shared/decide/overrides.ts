/** Annotations of a pod that a decision follows, and which operations a protector asks for. */
import { PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import type { Pod } from "../schema/pod.ts";
import type { Operation } from "../schema/podprotector.ts";
import { isCondemned } from "./availability/availability.ts";
import type { ProtectorState } from "./state/protector-state.ts";

const NONE: readonly never[] = [];

export interface Overrides {
  /** The pod has the annotation `force-delete`. */
  readonly forced: boolean;
  /** The pod has OpenKruise's annotation `no-protect`, which exempts it from PodUnavailableBudgets. */
  readonly noProtect?: boolean;
}

/** True when an annotation of the pod overrides every denial by this protector. */
export function isForced({ followsNoProtect }: ProtectorState, { forced, noProtect }: Overrides): boolean {
  return forced || (followsNoProtect === true && noProtect === true);
}

/**
 * The pod's annotations of x-pdb that deny disruptions until they are removed. Returns none for a pod that is not Ready
 * and that Kubernetes is about to end: on a dead node, no program is left to do the work and remove them.
 */
export function preActivitiesOf(pod: Pod): readonly string[] {
  if (isCondemned(pod)) return NONE;
  return Object.keys(pod.annotations ?? {}).filter((annotation) => annotation.startsWith(PRE_ACTIVITY_PREFIX));
}

/** True when the protector protects from the operation. */
export function isProtectedFrom(
  { spec: { protectedOperations } }: ProtectorState,
  { operation, isResize }: { readonly operation: Operation; readonly isResize?: boolean },
): boolean {
  return protectedOperations.includes(operation) || (isResize === true && protectedOperations.includes("RESIZE"));
}
