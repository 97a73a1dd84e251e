/**
 * What a disruption budget comes to in pods (design 7): the disruption controller's `desiredHealthy`, which
 * PodUnavailableBudget and XPodDisruptionBudget compute in the same way.
 */
import { type DerivedMinimum, INT32_MAX, type IntOrPercent, scaledValue } from "./deployment-minimum.ts";

/** The two limits of a budget, of which one is set. */
export interface DisruptionLimits {
  readonly minAvailable?: IntOrPercent | undefined;
  /** Counts when both are set. */
  readonly maxUnavailable?: IntOrPercent | undefined;
}

/** Whether the budget's number depends on how many pods there should be; a `minAvailable` in pods does not. */
export function needsExpectedCount({ minAvailable, maxUnavailable }: DisruptionLimits): boolean {
  return maxUnavailable !== undefined || typeof minAvailable === "string";
}

/**
 * The minimum of a budget over `expected` pods, which `how` explains. Percentages of both limits are rounded up, as the
 * disruption controller rounds them; undefined when a limit can't be read.
 */
export function disruptionMinimum(limits: DisruptionLimits, expected: number, how: string): DerivedMinimum | undefined {
  const { minAvailable, maxUnavailable } = limits;
  if (maxUnavailable !== undefined) {
    const scaled = scaledValue(maxUnavailable, expected, "up");
    if (scaled === undefined) return undefined;
    const minimum = Math.min(INT32_MAX, Math.max(0, expected - scaled));
    return {
      minAvailable: minimum,
      derivation: `expected ${expected}${how} - maxUnavailable ${scaled}${stated(maxUnavailable)} = minAvailable ${minimum}`,
    };
  }
  if (typeof minAvailable === "number") {
    const minimum = Math.min(INT32_MAX, Math.max(0, minAvailable));
    return { minAvailable: minimum, derivation: `minAvailable ${minimum}, as the budget says` };
  }
  if (minAvailable === undefined) return { minAvailable: 0, derivation: "the budget sets no limit: minAvailable 0" };
  const scaled = scaledValue(minAvailable, expected, "up");
  if (scaled === undefined) return undefined;
  const minimum = Math.min(INT32_MAX, Math.max(0, scaled));
  return {
    minAvailable: minimum,
    derivation: `${minAvailable} of expected ${expected}${how}, rounded up = minAvailable ${minimum}`,
  };
}

function stated(value: IntOrPercent): string {
  return typeof value === "string" ? ` (${value} rounded up)` : "";
}
