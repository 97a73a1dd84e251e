/** What a pod says about itself before any protector is asked. */
import {
  FORCE_DELETE_ANNOTATION,
  NO_PROTECT_ANNOTATION,
  PART_OF_LABEL,
  PART_OF_PODSEIDON,
} from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";

interface ExemptionRule {
  readonly name: "Own" | "Terminating" | "Finished" | "Mirror" | "Pending";
  readonly holds: (pod: Pod, ownNamespace: string) => boolean;
}

/** Why a pod may be disrupted without asking any protector. */
export type Exemption = ExemptionRule["name"];

/**
 * Pods that count for no protector, whatever its spec is: allowed even while no core is reachable. The first match
 * counts. The project's own pods are among them, so that a protector cannot keep the project from being repaired.
 */
const EXEMPTIONS: readonly ExemptionRule[] = [
  {
    name: "Own",
    holds: ({ namespace, labels }, own) => namespace === own && labels[PART_OF_LABEL] === PART_OF_PODSEIDON,
  },
  { name: "Terminating", holds: ({ terminating }) => terminating },
  { name: "Finished", holds: ({ phase }) => phase === "Succeeded" || phase === "Failed" },
  { name: "Mirror", holds: ({ mirror }) => mirror },
  { name: "Pending", holds: ({ phase }) => phase === "Pending" },
];

export function exemptionOf(pod: Pod, ownNamespace: string): Exemption | undefined {
  for (const { name, holds } of EXEMPTIONS) if (holds(pod, ownNamespace)) return name;
  return undefined;
}

/** Why a force-delete annotation was ignored; metric labels. Unconfirmed: no live read has shown it. */
export const BYPASS_IGNORED = ["malformed", "expired", "forbidden", "unchecked", "unconfirmed"] as const;
export type BypassIgnored = (typeof BYPASS_IGNORED)[number];

/** True when `bypass.ts` has to be loaded: most pods have no such annotation. */
export function claimsBypass({ annotations }: Pod): boolean {
  return annotations?.[FORCE_DELETE_ANNOTATION] !== undefined || annotations?.[NO_PROTECT_ANNOTATION] === "true";
}
