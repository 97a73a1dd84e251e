/** The second protector of a workload that states a minimum of running pods (docs/decisions/0014). */
import type { DerivedMinimum } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { RequiredProtector } from "./protection-source.ts";

/**
 * Returns `required`, and where `floor` is stated, a protector that counts the same pods by their phase. The second
 * protector denies deletions under strategy Recreate, too, because a user asked for this number.
 */
export function withRunningFloor(
  required: RequiredProtector,
  floor: DerivedMinimum | undefined,
): readonly RequiredProtector[] {
  if (floor === undefined) return [required];
  const { minAvailable, derivation } = floor;
  const { selector } = required.spec;
  return [
    required,
    {
      name: `${required.name}.running`,
      spec: { minAvailable, minReadySeconds: 0, selector, healthCriterion: "Running" },
      derivation: `${derivation}, of pods in phase Running`,
    },
  ];
}
