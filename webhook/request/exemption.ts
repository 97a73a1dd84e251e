import { PART_OF_LABEL, PART_OF_PODSEIDON } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";

/** Why a pod may go without asking any protector (design 6); a metric label. */
export type Exemption = "Own" | "Terminating" | "Finished" | "Mirror" | "Pending";

/**
 * Pods whose loss takes nothing from any protector, whatever its spec is: they are let go even when no core cluster can be
 * reached. The project's own pods are among them, because a safety net that protects itself from being repaired is none.
 */
export function exemptionOf(pod: Pod, ownNamespace: string): Exemption | undefined {
  if (pod.namespace === ownNamespace && pod.labels[PART_OF_LABEL] === PART_OF_PODSEIDON) return "Own";
  if (pod.terminating) return "Terminating";
  if (pod.phase === "Succeeded" || pod.phase === "Failed") return "Finished";
  if (pod.mirror) return "Mirror";
  if (pod.phase === "Pending") return "Pending";
  return undefined;
}
