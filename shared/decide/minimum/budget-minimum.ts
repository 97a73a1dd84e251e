/**
 * The minimum of a disruption budget (docs/design.md#generator): the disruption controller's `desiredHealthy`, which
 * PodUnavailableBudget and XPodDisruptionBudget compute in the same way.
 */
import { type DerivedMinimum, INT32_MAX, type IntOrPercent, scaledValue } from "./workload-minimum.ts";

/** The two limits of a budget, of which one is set. */
interface DisruptionLimits {
  readonly minAvailable?: IntOrPercent | undefined;
  /** Counts when both are set. */
  readonly maxUnavailable?: IntOrPercent | undefined;
}

/** True when the budget's number depends on how many pods there should be; a `minAvailable` in pods does not. */
export function needsExpectedCount({ minAvailable, maxUnavailable }: DisruptionLimits): boolean {
  return maxUnavailable !== undefined || typeof minAvailable === "string";
}

/**
 * The minimum of a budget over `expected` pods, which `how` explains. Percentages of both limits are rounded up, as the
 * disruption controller rounds them. Undefined for an unreadable limit.
 */
export function disruptionMinimum(limits: DisruptionLimits, expected: number, how: string): DerivedMinimum | undefined {
  const { minAvailable, maxUnavailable } = limits;
  if (maxUnavailable === undefined && minAvailable === undefined) {
    return { minAvailable: 0, derivation: "the budget sets no limit: minAvailable 0" };
  }
  const scaled = scaledValue(maxUnavailable ?? minAvailable ?? 0, expected, "up");
  if (maxUnavailable !== undefined) {
    if (scaled === undefined) return undefined;
    const minimum = bounded(expected - scaled);
    const stated = typeof maxUnavailable === "string" ? ` (${maxUnavailable} rounded up)` : "";
    const sum = `expected ${expected}${how} - maxUnavailable ${scaled}${stated} = minAvailable ${minimum}`;
    return { minAvailable: minimum, derivation: sum };
  }
  if (typeof minAvailable === "number") {
    const minimum = bounded(minAvailable);
    return { minAvailable: minimum, derivation: `minAvailable ${minimum}, as the budget says` };
  }
  if (scaled === undefined) return undefined;
  const minimum = bounded(scaled);
  const sum = `${minAvailable} of expected ${expected}${how}, rounded up = minAvailable ${minimum}`;
  return { minAvailable: minimum, derivation: sum };
}

function bounded(pods: number): number {
  return Math.min(INT32_MAX, Math.max(0, pods));
}
