/**
 * How many pods a workload's own controller keeps available (design 7): its arithmetic, rounding included, so that a
 * protector never refuses what the controller itself would do, and never allows more.
 */

/** A count or a percentage such as `"25%"`, as Kubernetes' `IntOrString`. */
export type IntOrPercent = number | string;

export const INT32_MAX = 2_147_483_647;

const PERCENTAGE = /^[+-]?[0-9]+%$/;

/**
 * Returns the absolute number that `value` stands for: a count as it is, a percentage of `total` rounded up or down.
 * Undefined when it is neither. The product is a 64-bit float before it is rounded, as in Kubernetes' `intstr`.
 */
export function scaledValue(value: IntOrPercent, total: number, rounding: "up" | "down"): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) ? value : undefined;
  if (!PERCENTAGE.test(value)) return undefined;
  const scaled = (Number(value.slice(0, -1)) * total) / 100;
  return rounding === "up" ? Math.ceil(scaled) : Math.floor(scaled);
}

/** What of a Deployment's spec decides how many of its pods may be unavailable. */
export interface DeploymentRollout {
  /** Absent: 1, the API's default. */
  readonly replicas?: number | undefined;
  /** Absent: RollingUpdate, the API's default. */
  readonly strategy?: string | undefined;
  /** Absent: 25 %, the API's default. */
  readonly maxSurge?: IntOrPercent | undefined;
  readonly maxUnavailable?: IntOrPercent | undefined;
}

/** The pods that must stay available, and how that number came about in words for a person. */
export interface DerivedMinimum {
  readonly minAvailable: number;
  readonly derivation: string;
}

const DEFAULT_REPLICAS = 1;
const DEFAULT_FENCEPOST = "25%";

interface Fenceposts {
  readonly maxUnavailable: number;
  /** How `maxUnavailable` was read, for the derivation; empty when it was given as a number that applies as it is. */
  readonly how: string;
}

/**
 * The Deployment controller's `ResolveFenceposts` and `MaxUnavailable`: maxSurge is rounded up, maxUnavailable down;
 * when both are zero, 1 pod may be unavailable, because the rollout could not move otherwise; never more than
 * `replicas`. A value that can't be read makes it 0, as it does there.
 */
function fenceposts(rollout: DeploymentRollout, replicas: number): Fenceposts {
  const { maxSurge = DEFAULT_FENCEPOST, maxUnavailable = DEFAULT_FENCEPOST } = rollout;
  const surge = scaledValue(maxSurge, replicas, "up");
  const unavailable = scaledValue(maxUnavailable, replicas, "down");
  if (surge === undefined || unavailable === undefined) {
    return { maxUnavailable: 0, how: ` (maxUnavailable ${maxUnavailable} or maxSurge ${maxSurge} is unreadable)` };
  }
  const stated = typeof maxUnavailable === "string" ? ` (${maxUnavailable} rounded down)` : "";
  if (surge === 0 && unavailable === 0) {
    return atMost(replicas, 1, `${stated || " (0)"}; with maxSurge 0 the rollout takes 1`);
  }
  return atMost(replicas, unavailable, stated);
}

function atMost(replicas: number, unavailable: number, how: string): Fenceposts {
  if (unavailable <= replicas) return { maxUnavailable: Math.max(0, unavailable), how };
  return { maxUnavailable: replicas, how: `${how} (${unavailable}, more than there are)` };
}

/**
 * Returns how many pods of a Deployment its controller keeps available in a rollout: replicas - maxUnavailable.
 * Strategy Recreate stops all pods at once, so that it requires 0.
 */
export function deploymentMinimum(rollout: DeploymentRollout): DerivedMinimum {
  const replicas = Math.max(0, rollout.replicas ?? DEFAULT_REPLICAS);
  const strategy = rollout.strategy ?? "RollingUpdate";
  if (strategy !== "RollingUpdate") {
    return {
      minAvailable: 0,
      derivation: `strategy ${strategy} stops all ${replicas} replicas at once: minAvailable 0`,
    };
  }
  if (replicas === 0) return { minAvailable: 0, derivation: "replicas 0: minAvailable 0" };
  const { maxUnavailable, how } = fenceposts(rollout, replicas);
  const minAvailable = Math.min(INT32_MAX, replicas - maxUnavailable);
  return {
    minAvailable,
    derivation: `replicas ${replicas} - maxUnavailable ${maxUnavailable}${how} = minAvailable ${minAvailable}`,
  };
}
