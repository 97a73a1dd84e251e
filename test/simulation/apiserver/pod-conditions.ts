/** The readiness of pods, from raw objects. */
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Json } from "./etcd.ts";
import { record } from "./objects.ts";

/** True when every condition of the pod's readiness gates is True. */
export function areGatesOpen(pod: Json): boolean {
  return gatesOf(pod).every((type) => isTrue(pod, type));
}

export function isGated(pod: Json): boolean {
  return gatesOf(pod).includes(COUNTED_CONDITION);
}

export function isTrue(pod: Json, wanted: string): boolean {
  return conditionOf(pod, wanted)?.status === "True";
}

const NONE: readonly string[] = [];

export function gatesOf(pod: Json): readonly string[] {
  const { readinessGates } = record(pod.spec);
  return Array.isArray(readinessGates) ? readinessGates.map((gate) => String(record(gate).conditionType)) : NONE;
}

export function conditionOf({ status }: Json, wanted: string): Json | undefined {
  const { conditions } = record(status);
  return Array.isArray(conditions) ? conditions.map(record).find(({ type }) => type === wanted) : undefined;
}

/** OpenKruise's gate. A controller closes it at will, before it changes a pod in place. */
export const VOLUNTARY_GATE = "InPlaceUpdateReady";

/** True when a write takes a pod out of service by its gate. Decided here without code of the product. */
export function closesGate(before: Json, after: Json): boolean {
  return gatesOf(before).includes(VOLUNTARY_GATE) && isTrue(before, VOLUNTARY_GATE) && !isTrue(after, VOLUNTARY_GATE);
}

/**
 * True while the pod is out of service by its gate. A failed pod has lost all conditions, and those of an odd one can't
 * be read: its gate is no cause.
 */
export function isGateClosed(pod: Json): boolean {
  const { phase, conditions } = record(pod.status);
  const hasConditions = conditions === undefined || Array.isArray(conditions);
  return phase !== "Failed" && hasConditions && gatesOf(pod).includes(VOLUNTARY_GATE) && !isTrue(pod, VOLUNTARY_GATE);
}
