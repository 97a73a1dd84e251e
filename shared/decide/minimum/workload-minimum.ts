/**
 * How many pods the controllers of StatefulSets, DaemonSets and other workloads keep available (design 7), rounding
 * included; Deployments are in `budget-arithmetic.ts`.
 */
import { type DerivedMinimum, INT32_MAX, type IntOrPercent, scaledValue } from "./deployment-minimum.ts";

const DEFAULT_REPLICAS = 1;

/** `replicas - unavailable`, with its derivation; never below 0. */
export function minimumOf(what: string, total: number, unavailable: number, how: string): DerivedMinimum {
  const minAvailable = Math.min(INT32_MAX, Math.max(0, total - unavailable));
  return {
    minAvailable,
    derivation: `${what} ${total} - maxUnavailable ${unavailable}${how} = minAvailable ${minAvailable}`,
  };
}

/** What of a StatefulSet's spec decides how many of its pods may be unavailable. */
export interface StatefulSetRollout {
  /** Absent: 1, the API's default. */
  readonly replicas?: number | undefined;
  /** RollingUpdate (when absent) or OnDelete. */
  readonly strategy?: string | undefined;
  /** Absent: 1, the API's default. */
  readonly maxUnavailable?: IntOrPercent | undefined;
  /** Pods with a smaller ordinal are not updated. Absent: 0. */
  readonly partition?: number | undefined;
}

/**
 * The StatefulSet controller's `getStatefulSetMaxUnavailable`: a percentage is rounded down, and at least 1 pod may be
 * unavailable. A partition says which pods a rollout touches, not how many may be down: the number is the same with it,
 * so that a rollout that is held by its partition doesn't hold every drain as well. OnDelete: the controller stops no
 * pod by itself, whoever updates the pods does it one by one.
 */
export function statefulSetMinimum(rollout: StatefulSetRollout): DerivedMinimum {
  const replicas = Math.max(0, rollout.replicas ?? DEFAULT_REPLICAS);
  if (replicas === 0) return { minAvailable: 0, derivation: "replicas 0: minAvailable 0" };
  if (rollout.strategy === "OnDelete") return minimumOf("replicas", replicas, 1, " (OnDelete: one by one, by hand)");
  const { maxUnavailable = 1, partition = 0 } = rollout;
  const note = partition > 0 ? `; partition ${partition} changes which pods are updated, not how many may be down` : "";
  const scaled = scaledValue(maxUnavailable, replicas, "down");
  if (scaled === undefined) return minimumOf("replicas", replicas, 1, ` (${maxUnavailable} is unreadable)${note}`);
  const stated = typeof maxUnavailable === "string" ? `${maxUnavailable} rounded down` : "";
  const least = scaled < 1 ? "at least 1" : scaled > replicas ? `${scaled}, more than there are` : "";
  const how = [stated, least].filter((part) => part !== "").join(", ");
  return minimumOf("replicas", replicas, Math.min(replicas, Math.max(1, scaled)), `${how && ` (${how})`}${note}`);
}

/** What of a DaemonSet decides how many of its pods may be unavailable. */
export interface DaemonSetRollout {
  /** `status.desiredNumberScheduled`: nodes that should run a pod of it. Absent: not known yet, taken as 0. */
  readonly desiredNumberScheduled?: number | undefined;
  /** RollingUpdate (when absent) or OnDelete. */
  readonly strategy?: string | undefined;
  /** Absent: 1, the API's default. */
  readonly maxUnavailable?: IntOrPercent | undefined;
  /** Absent: 0, the API's default. */
  readonly maxSurge?: IntOrPercent | undefined;
}

/**
 * The DaemonSet controller's `updatedDesiredNodeCounts`: both are rounded up; when both are 0, 1 pod may be
 * unavailable.
 */
export function daemonSetMinimum(rollout: DaemonSetRollout): DerivedMinimum {
  const nodes = Math.max(0, rollout.desiredNumberScheduled ?? 0);
  if (nodes === 0) return { minAvailable: 0, derivation: "nodes 0: minAvailable 0" };
  if (rollout.strategy === "OnDelete") return minimumOf("nodes", nodes, 1, " (OnDelete: one by one, by hand)");
  const { maxUnavailable = 1, maxSurge = 0 } = rollout;
  const unavailable = scaledValue(maxUnavailable, nodes, "up");
  const surge = scaledValue(maxSurge, nodes, "up");
  if (unavailable === undefined || surge === undefined) {
    return minimumOf("nodes", nodes, 0, ` (maxUnavailable ${maxUnavailable} or maxSurge ${maxSurge} is unreadable)`);
  }
  const stated = typeof maxUnavailable === "string" ? ` (${maxUnavailable} rounded up)` : "";
  if (unavailable <= 0 && surge === 0) return minimumOf("nodes", nodes, 1, " (0; with maxSurge 0 the rollout takes 1)");
  return minimumOf("nodes", nodes, Math.min(nodes, Math.max(0, unavailable)), stated);
}

/**
 * A workload whose controller is not known: a percentage of `replicas` that may be unavailable is rounded down and at
 * least 1, because a controller that can't surge could not roll out otherwise.
 */
export function scaledMinimum(replicas: number, maxUnavailable: IntOrPercent): DerivedMinimum {
  if (replicas <= 0) return { minAvailable: 0, derivation: "replicas 0: minAvailable 0" };
  const scaled = scaledValue(maxUnavailable, replicas, "down");
  if (scaled === undefined) return minimumOf("replicas", replicas, 0, ` (${maxUnavailable} is unreadable)`);
  if (typeof maxUnavailable === "number")
    return minimumOf("replicas", replicas, Math.min(replicas, Math.max(0, scaled)), "");
  const least = scaled < 1 ? ", at least 1" : "";
  return minimumOf(
    "replicas",
    replicas,
    Math.min(replicas, Math.max(1, scaled)),
    ` (${maxUnavailable} rounded down${least})`,
  );
}
