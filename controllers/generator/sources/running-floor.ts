/** The second protector of a workload that states how many of its pods stay running (docs/decisions/0014). */
import type { DerivedMinimum } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { RequiredProtector } from "./protection-source.ts";

/**
 * `required`, and one that counts the same pods by their phase where `floor` is stated. It protects from deletions
 * under strategy Recreate, too: somebody has asked for the number.
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
