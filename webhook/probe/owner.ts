/**
 * What the workload's owner is asked before a disruption (design 9): as the pipeline sees it. Whoever answers is loaded only when a
 * protector with a probe is first met (`probe/`).
 */
import type { AllowReason } from "../../shared/decide/quota.ts";
import { SOURCE_KIND_LABEL, SOURCE_NAME_LABEL } from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";

export type ProbeSpec = NonNullable<PodProtector["spec"]["probe"]>;

/** How asking ended; metric labels. */
export const PROBE_RESULTS = ["allowed", "refused", "failed", "down", "overloaded"] as const;
export type ProbeResult = (typeof PROBE_RESULTS)[number];

export interface OwnerQuestion {
  readonly probe: ProbeSpec;
  readonly podNamespace: string;
  readonly podName: string;
  /** The budget that the owner knows: the XPodDisruptionBudget that the protector was made from, else the protector. */
  readonly budgetNamespace: string;
  readonly budgetName: string;
  /** Monotonic; the answer is there before. */
  readonly deadlineMs: number;
}

export interface OwnerAnswer {
  readonly result: ProbeResult;
  /** For people, as the rest of a sentence that begins with the protector's name; empty when allowed. */
  readonly message: string;
}

/** Asks; never rejects, and resolves before the question's deadline. */
export type AskOwner = (question: OwnerQuestion) => Promise<OwnerAnswer>;

/** What is left of a review's time for the write, at least, once the owner has answered. */
const KEPT_FOR_WRITE_MS = 500;
const KEPT_FRACTION = 0.25;

/** Kind whose objects an x-pdb probe knows by name. */
const X_PDB_KIND = "XPodDisruptionBudget";

/** Disruptions that nobody is asked about: they cost the workload nothing, or are let go whatever anybody says. */
const UNASKED: ReadonlySet<AllowReason> = new Set<AllowReason>([
  "Finished",
  "Terminating",
  "Mirror",
  "Pending",
  "PinnedPending",
  "Forced",
  "Suspended",
  "NotProtected",
]);

/** The question to the owner of `protector` about a pod that it would let go for `reason`; undefined when there is none. */
export function questionOf(
  protector: PodProtector | undefined,
  reason: AllowReason,
  pod: { readonly namespace: string; readonly name: string },
  nowMs: number,
  deadlineMs: number,
): OwnerQuestion | undefined {
  const probe = protector?.spec.probe;
  if (protector === undefined || probe === undefined || UNASKED.has(reason)) return undefined;
  const { namespace = "", name, labels } = protector.metadata;
  const isFromXPdb = labels?.[SOURCE_KIND_LABEL] === X_PDB_KIND;
  const keptMs = Math.min(KEPT_FOR_WRITE_MS, (deadlineMs - nowMs) * KEPT_FRACTION);
  return {
    probe,
    podNamespace: pod.namespace,
    podName: pod.name,
    budgetNamespace: namespace,
    budgetName: (isFromXPdb ? labels?.[SOURCE_NAME_LABEL] : undefined) ?? name,
    deadlineMs: deadlineMs - keptMs,
  };
}
