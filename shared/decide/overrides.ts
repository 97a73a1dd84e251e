/** Annotations of a pod that a decision follows, and which operations a protector asks for. */
import { PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import type { Pod } from "../schema/pod.ts";
import type { Operation } from "../schema/podprotector.ts";
import type { ProtectorState } from "./state/protector-state.ts";

export interface Overrides {
  /** The pod has the annotation `force-delete`. */
  readonly forced: boolean;
  /** The pod has OpenKruise's annotation `no-protect`, which exempts it from PodUnavailableBudgets. */
  readonly noProtect?: boolean;
}

/** An annotation of the pod overrides every denial by this protector. */
export function isForced({ followsNoProtect }: ProtectorState, { forced, noProtect }: Overrides): boolean {
  return forced || (followsNoProtect === true && noProtect === true);
}

/** Annotations of x-pdb that hold a disruption back until they are removed. */
export function preActivitiesOf({ annotations }: Pod): readonly string[] {
  return Object.keys(annotations ?? {}).filter((annotation) => annotation.startsWith(PRE_ACTIVITY_PREFIX));
}

/** The protector asks for the operation. */
export function isProtectedFrom(
  { spec: { protectedOperations } }: ProtectorState,
  { operation, isResize }: { readonly operation: Operation; readonly isResize?: boolean },
): boolean {
  return protectedOperations.includes(operation) || (isResize === true && protectedOperations.includes("RESIZE"));
}
