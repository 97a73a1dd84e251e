/**
 * The minimum of a disruption budget (docs/design.md#generator): the disruption controller's `desiredHealthy`, which
 * the controllers of PodUnavailableBudgets and XPodDisruptionBudgets compute in the same way.
 */
import { type DerivedMinimum, type IntOrPercent, podCount, scaledValue } from "./workload-minimum.ts";

/** The two limits of a budget, of which one is set. */
export interface DisruptionLimits {
  readonly minAvailable?: IntOrPercent | undefined;
  /** Has precedence over `minAvailable`. */
  readonly maxUnavailable?: IntOrPercent | undefined;
}

/** The limits of a budget, and of the budgets with the same name in worker clusters. */
export interface BudgetLimits extends DisruptionLimits {
  /** Beside the own limits; the strictest counts. */
  readonly ofClusters?: readonly (DisruptionLimits & { readonly cluster: string })[] | undefined;
}

/**
 * The strictest of the budget's own limits and those of each cluster, over `expected` pods. Undefined when one of them
 * is unreadable, because it might be the strictest.
 */
export function strictestMinimum(limits: BudgetLimits, expected: number, how: string): DerivedMinimum | undefined {
  let strictest = disruptionMinimum(limits, expected, how);
  if (strictest === undefined) return undefined;
  for (const { cluster, ...stated } of limits.ofClusters ?? []) {
    const found = disruptionMinimum(stated, expected, how);
    if (found === undefined) return undefined;
    if (found.minAvailable <= strictest.minAvailable) continue;
    strictest = { ...found, derivation: `${found.derivation}, as cluster ${cluster} asks` };
  }
  return strictest;
}

/**
 * The strictest of the readable limits: an unreadable limit of one cluster must not invalidate the limits of another.
 * Undefined when none is readable.
 */
export function readableMinimum(limits: BudgetLimits, expected: number, how: string): DerivedMinimum | undefined {
  const { ofClusters = [], ...own } = limits;
  // The budget's own limits are those of its first cluster.
  const stated = ofClusters.length === 0 ? [own] : ofClusters;
  const found = stated.flatMap((one) => disruptionMinimum(one, expected, how) ?? []);
  return found.toSorted((one, other) => other.minAvailable - one.minAvailable)[0];
}

/** True when the minimum depends on `expectedPods`; a `minAvailable` in pods does not. */
export function needsExpectedCount({ minAvailable, maxUnavailable, ofClusters = [] }: BudgetLimits): boolean {
  const isInPods = minAvailable === undefined || Number.isInteger(minAvailable);
  return maxUnavailable !== undefined || !isInPods || ofClusters.some(needsExpectedCount);
}

/**
 * The minimum of a budget over `expected` pods, whose number `how` explains: `minAvailable`, or `expectedPods` without
 * `maxUnavailable`. The disruption controller rounds percentages of both up. Undefined for an unreadable limit.
 */
function disruptionMinimum(limits: DisruptionLimits, expected: number, how: string): DerivedMinimum | undefined {
  const { minAvailable, maxUnavailable } = limits;
  if (maxUnavailable === undefined && minAvailable === undefined) {
    return { minAvailable: 0, derivation: "the budget sets no limit: minAvailable 0" };
  }
  const scaled = scaledValue(maxUnavailable ?? minAvailable ?? 0, expected, "up");
  if (scaled === undefined) return undefined;
  if (maxUnavailable !== undefined) {
    const minimum = podCount(expected - scaled);
    const stated = typeof maxUnavailable === "string" ? ` (${maxUnavailable} rounded up)` : "";
    const sum = `expected ${expected}${how} - maxUnavailable ${scaled}${stated} = minAvailable ${minimum}`;
    return { minAvailable: minimum, derivation: sum };
  }
  if (typeof minAvailable === "number") {
    const minimum = podCount(minAvailable);
    return { minAvailable: minimum, derivation: `minAvailable ${minimum}, as the budget says` };
  }
  const minimum = podCount(scaled);
  const sum = `${minAvailable} of expected ${expected}${how}, rounded up = minAvailable ${minimum}`;
  return { minAvailable: minimum, derivation: sum };
}
