/**
 * What a protector with `spec.probe` asks the owner of its workload before a disruption (docs/design.md#owner-probe),
 * as the pipeline sees it. The rest of this folder is loaded with the first such protector: `owner-probes`,
 * `probe-endpoints`, then the clients.
 */
import type { AllowReason } from "../../shared/decide/quota.ts";
import { SOURCE_KIND_LABEL, SOURCE_NAME_LABEL } from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";

export type ProbeSpec = NonNullable<PodProtector["spec"]["probe"]>;

/** Results of a probe; metric labels. */
export const PROBE_RESULTS = ["allowed", "refused", "failed", "down", "overloaded"] as const;
export type ProbeResult = (typeof PROBE_RESULTS)[number];

export interface ProbeRequest {
  readonly probe: ProbeSpec;
  readonly podNamespace: string;
  readonly podName: string;
  /** The budget that the owner knows: the XPodDisruptionBudget that the protector was made from, else the protector. */
  readonly budgetNamespace: string;
  readonly budgetName: string;
  /** Monotonic milliseconds; the answer comes before. */
  readonly deadlineMs: number;
}

export interface ProbeAnswer {
  readonly result: ProbeResult;
  /** For people, as the rest of a sentence that begins with the protector's name; empty when allowed. */
  readonly message: string;
}

/** Never rejects, and resolves before the request's deadline. */
export type AskOwner = (request: ProbeRequest) => Promise<ProbeAnswer>;

/** Shortest time that is kept for the write after the owner's answer. */
const KEPT_FOR_WRITE_MS = 500;
const KEPT_FRACTION = 0.25;

/** The kind whose objects an x-pdb probe knows by name. */
const X_PDB_KIND = "XPodDisruptionBudget";

/**
 * Reasons to allow without asking: the disruption costs the workload nothing, or is allowed whatever the owner says.
 */
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

/**
 * The request to the owner of a pod whose disruption quota allows for `reason`; undefined when the owner is not asked.
 */
export function probeRequestOf(
  protector: PodProtector | undefined,
  reason: AllowReason,
  pod: { readonly namespace: string; readonly name: string },
  nowMs: number,
  deadlineMs: number,
): ProbeRequest | undefined {
  const { probe, enforcement } = protector?.spec ?? {};
  if (protector === undefined || probe === undefined || UNASKED.has(reason) || enforcement === "Warn") return undefined;
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
