/**
 * How many pods a workload's own controller keeps available (docs/design.md#generator): the same arithmetic and
 * rounding, so that a protector allows exactly what the controller itself would do. `budget-minimum.ts` does the same
 * for budgets.
 */

/** A count, or a percentage such as `"25%"`: Kubernetes' `IntOrString`. */
export type IntOrPercent = number | string;

export const INT32_MAX = 2_147_483_647;

const PERCENTAGE = /^[+-]?[0-9]+%$/;

/**
 * The number that `value` means: a count unchanged, a percentage of `total` rounded up or down. Undefined for any other
 * value. As in Kubernetes' `intstr`, the product is a 64-bit float before it is rounded, and numbers that are too large
 * are unreadable.
 */
export function scaledValue(value: IntOrPercent, total: number, rounding: "up" | "down"): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) ? value : undefined;
  if (!PERCENTAGE.test(value)) return undefined;
  const percent = Number(value.slice(0, -1));
  if (!Number.isSafeInteger(percent)) return undefined;
  const scaled = (percent * total) / 100;
  return rounding === "up" ? Math.ceil(scaled) : Math.floor(scaled);
}

/** The pods that must stay available, and the derivation of that number in words. */
export interface DerivedMinimum {
  readonly minAvailable: number;
  readonly derivation: string;
}

/** A number of pods in the range of the API: an int32, at least 0. */
export function podCount(pods: number): number {
  return clamp(pods, 0, INT32_MAX);
}

function minimumOf(what: string, total: number, unavailable: number, how: string): DerivedMinimum {
  const minAvailable = podCount(total - unavailable);
  return {
    minAvailable,
    derivation: `${what} ${total} - maxUnavailable ${unavailable}${how} = minAvailable ${minAvailable}`,
  };
}

function none(derivation: string): DerivedMinimum {
  return { minAvailable: 0, derivation: `${derivation}: minAvailable 0` };
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}

const DEFAULT_REPLICAS = 1;
const DEPLOYMENT_FENCEPOST = "25%";

/**
 * The fields of a workload that decide how many of its pods may be unavailable. An absent field has the default of the
 * workload's API.
 */
export interface Rollout {
  /** `spec.replicas`; for a DaemonSet `status.desiredNumberScheduled`, the nodes that should run a pod of it. */
  readonly replicas?: number | undefined;
  /** `type` of the strategy: RollingUpdate, Recreate (Deployments) or OnDelete (StatefulSets, DaemonSets). */
  readonly strategy?: string | undefined;
  readonly maxSurge?: IntOrPercent | undefined;
  readonly maxUnavailable?: IntOrPercent | undefined;
  /** For StatefulSets: pods with a smaller ordinal are not updated. */
  readonly partition?: number | undefined;
}

/**
 * The Deployment controller's `ResolveFenceposts` and `MaxUnavailable`: maxSurge is rounded up, maxUnavailable down;
 * when both are zero, 1 pod may be unavailable, because the rollout could not proceed otherwise; never more than
 * `replicas`. An unreadable value counts as 0, like in the controller. For Recreate, see {@link recreateMinimum}.
 */
export function deploymentMinimum(rollout: Rollout): DerivedMinimum {
  const { maxSurge = DEPLOYMENT_FENCEPOST, maxUnavailable = DEPLOYMENT_FENCEPOST } = rollout;
  const replicas = Math.max(0, rollout.replicas ?? DEFAULT_REPLICAS);
  const strategy = rollout.strategy ?? "RollingUpdate";
  if (strategy === "Recreate") return recreateMinimum(replicas);
  if (strategy !== "RollingUpdate") return none(`strategy ${strategy} is unknown`);
  if (replicas === 0) return none("replicas 0");
  const surge = scaledValue(maxSurge, replicas, "up");
  const unavailable = scaledValue(maxUnavailable, replicas, "down");
  if (surge === undefined || unavailable === undefined)
    return unreadable("replicas", replicas, maxUnavailable, maxSurge);
  const stated = typeof maxUnavailable === "string" ? ` (${maxUnavailable} rounded down)` : "";
  if (surge === 0 && unavailable === 0) {
    return minimumOf("replicas", replicas, 1, `${stated || " (0)"}; with maxSurge 0 the rollout takes 1`);
  }
  const excess = unavailable > replicas ? ` (${unavailable}, more than there are)` : "";
  return minimumOf("replicas", replicas, clamp(unavailable, 0, replicas), `${stated}${excess}`);
}

/** A rollout deletes all pods at once, so the minimum applies only to evictions: upstream's 75 %. */
function recreateMinimum(replicas: number): DerivedMinimum {
  const { minAvailable, derivation } = scaledMinimum(replicas, DEPLOYMENT_FENCEPOST);
  return { minAvailable, derivation: `${derivation}; of evictions alone, because strategy Recreate deletes all pods` };
}

function unreadable(what: string, total: number, maxUnavailable: IntOrPercent, maxSurge: IntOrPercent): DerivedMinimum {
  return minimumOf(what, total, 0, ` (maxUnavailable ${maxUnavailable} or maxSurge ${maxSurge} is unreadable)`);
}

/**
 * The StatefulSet controller's `getStatefulSetMaxUnavailable`: a percentage is rounded down, and at least 1 pod may be
 * unavailable. A partition limits which pods a rollout updates, not how many may be down. It does not change the
 * number, so that a rollout that waits at its partition does not block every drain. With OnDelete, a person updates the
 * pods one by one. For Recreate (KEP-3541), see {@link recreateMinimum}.
 */
export function statefulSetMinimum(rollout: Rollout): DerivedMinimum {
  const replicas = Math.max(0, rollout.replicas ?? DEFAULT_REPLICAS);
  if (rollout.strategy === "Recreate") return recreateMinimum(replicas);
  if (replicas === 0) return none("replicas 0");
  if (rollout.strategy === "OnDelete") return minimumOf("replicas", replicas, 1, ON_DELETE);
  const { maxUnavailable = 1, partition = 0 } = rollout;
  const note = partition > 0 ? `; partition ${partition} changes which pods are updated, not how many may be down` : "";
  const scaled = scaledValue(maxUnavailable, replicas, "down");
  if (scaled === undefined) return minimumOf("replicas", replicas, 1, ` (${maxUnavailable} is unreadable)${note}`);
  const stated = typeof maxUnavailable === "string" ? `${maxUnavailable} rounded down` : "";
  const least = scaled < 1 ? "at least 1" : scaled > replicas ? `${scaled}, more than there are` : "";
  const how = [stated, least].filter((part) => part !== "").join(", ");
  return minimumOf("replicas", replicas, clamp(scaled, 1, replicas), `${how && ` (${how})`}${note}`);
}

const ON_DELETE = " (OnDelete: one by one, by hand)";

/**
 * The DaemonSet controller's `updatedDesiredNodeCounts`: both are rounded up; when both are 0, 1 pod may be
 * unavailable.
 */
export function daemonSetMinimum(rollout: Rollout): DerivedMinimum {
  const nodes = Math.max(0, rollout.replicas ?? 0);
  if (nodes === 0) return none("nodes 0");
  if (rollout.strategy === "OnDelete") return minimumOf("nodes", nodes, 1, ON_DELETE);
  const { maxUnavailable = 1, maxSurge = 0 } = rollout;
  const unavailable = scaledValue(maxUnavailable, nodes, "up");
  const surge = scaledValue(maxSurge, nodes, "up");
  if (unavailable === undefined || surge === undefined) return unreadable("nodes", nodes, maxUnavailable, maxSurge);
  const stated = typeof maxUnavailable === "string" ? ` (${maxUnavailable} rounded up)` : "";
  if (unavailable <= 0 && surge === 0) return minimumOf("nodes", nodes, 1, " (0; with maxSurge 0 the rollout takes 1)");
  return minimumOf("nodes", nodes, clamp(unavailable, 0, nodes), stated);
}

/**
 * A workload whose controller is unknown: a percentage of `replicas` that may be unavailable is rounded down and at
 * least 1, because a controller that does not surge could not roll out otherwise.
 */
export function scaledMinimum(replicas: number, maxUnavailable: IntOrPercent): DerivedMinimum {
  if (replicas <= 0) return none("replicas 0");
  const scaled = scaledValue(maxUnavailable, replicas, "down");
  if (scaled === undefined) return minimumOf("replicas", replicas, 0, ` (${maxUnavailable} is unreadable)`);
  if (typeof maxUnavailable === "number") return minimumOf("replicas", replicas, clamp(scaled, 0, replicas), "");
  // A stated 0 % stays 0, like a stated 0.
  const least = clamp(scaledValue(maxUnavailable, replicas, "up") ?? 1, 0, 1);
  const how = ` (${maxUnavailable} rounded down${scaled < least ? ", at least 1" : ""})`;
  return minimumOf("replicas", replicas, clamp(scaled, least, replicas), how);
}

/** What a workload's annotations state, as text: counts or percentages. */
export interface StatedLimits {
  readonly minAvailable: string | undefined;
  readonly maxUnavailable: string | undefined;
  /** A separate minimum of running pods, which does not affect the minimum of available pods. */
  readonly minRunning: string | undefined;
}

/**
 * The minimum that annotations state: the greater one of both, but never more than `replicas`, so that a workload can
 * be scaled down. An unreadable value requires all replicas. Undefined without annotations.
 */
export function statedMinimum(replicas: number, stated: StatedLimits): DerivedMinimum | undefined {
  const least = stated.minAvailable === undefined ? undefined : leastOf(replicas, stated.minAvailable);
  const { maxUnavailable } = stated;
  const rest = maxUnavailable === undefined ? undefined : scaledMinimum(replicas, countOrText(maxUnavailable));
  return least === undefined || (rest !== undefined && rest.minAvailable > least.minAvailable) ? rest : least;
}

/** The minimum of running pods, where the annotations state one. */
export function runningMinimum(replicas: number, { minRunning }: StatedLimits): DerivedMinimum | undefined {
  return minRunning === undefined ? undefined : leastOf(replicas, minRunning);
}

/** A percentage is rounded up, like in a budget. A negative one is unreadable: no apiserver validates an annotation. */
function leastOf(replicas: number, text: string): DerivedMinimum {
  const scaled = text.startsWith("-") ? undefined : scaledValue(countOrText(text), replicas, "up");
  const minAvailable = podCount(clamp(scaled ?? replicas, 0, replicas));
  const how = scaled === undefined ? "unreadable" : "by annotation";
  return { minAvailable, derivation: `${text} of replicas ${replicas} (${how}) = minAvailable ${minAvailable}` };
}

function countOrText(text: string): IntOrPercent {
  return /^[0-9]+$/.test(text) ? Number(text) : text;
}
