/**
 * The number of pods that the workloads of the core cluster ask for, as the disruption controller's `expectedPods`
 * (docs/design.md#expected-pods). Pods of a DaemonSet and of a Job, for which that one knows no number, count beside
 * those of other workloads.
 */
import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import type { LabelSelector, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { Budget, ProtectionSource } from "../sources/protection-source.ts";
import { type BudgetPods, isJob } from "./budget-pods.ts";
import { few } from "./cell-counts.ts";
import type { FoundWorkload, WorkloadScales } from "./workload-scales.ts";

/** The disruption controller's `expectedPods`, as a number and in words, and whether it comes from a poll. */
export interface ExpectedCount {
  readonly count: number;
  readonly how: string;
  readonly recheck: boolean;
  readonly soon?: boolean;
  /** The core has neither a pod of the budget nor a workload with such pods. */
  readonly isNowhere?: boolean;
  readonly why?: string | undefined;
  /** The number of the budget's pods in the core, where their controllers were read. */
  readonly pods?: number;
}

/** The core cluster's count of a budget's pods. `pods` of an unknown count is their present number. */
export type CoreCount =
  | ({ readonly kind: "counted" } & ExpectedCount)
  | { readonly kind: "unknown"; readonly pods: number; readonly why: string }
  | { readonly kind: "waiting" }
  | { readonly kind: "failed"; readonly failure: ApiFailure };
export type KnownCoreCount = Extract<CoreCount, { readonly kind: "counted" | "unknown" }>;

export const NOTHING: ExpectedCount = { count: 0, how: " (no workload matches)", recheck: false };

interface CountRequest {
  readonly key: string;
  readonly source: ProtectionSource;
  readonly budget: Budget;
  readonly present: PodProtector | undefined;
  readonly signal: AbortSignal;
}

interface Counted {
  readonly workloads: WorkloadScales;
  readonly pods: Pick<BudgetPods, "of">;
}

/** The number of pods that the workloads of the core cluster ask for. */
export async function coreCount(
  { workloads, pods }: Counted,
  request: CountRequest,
  selector: LabelSelector,
): Promise<CoreCount> {
  const { key, source, budget, signal } = request;
  const members = pods.of(key, source.namespace, selector, budget.ignoresFinishedPods === true);
  if (members === undefined) return { kind: "waiting" };
  if (members.controllers.length === 0) return byTemplate(workloads, request, selector, members.total);
  const nodes = members.controllers.map((ref) => workloads.findDaemonSet(key, ref, source.namespace));
  const scaled = members.controllers.filter((ref, index) => !isJob(ref) && nodes[index] === undefined);
  // Alone, they have no number, as for the disruption controller.
  const asked = scaled.length === 0 ? members.controllers : scaled;
  const found = await workloads.findAll(key, asked, source.namespace, signal);
  const byUid = new Map<string, FoundWorkload>();
  for (const lookup of "kind" in found ? [found] : [...found, ...(scaled.length === 0 ? [] : nodes)]) {
    if (lookup === undefined) continue;
    if (lookup.kind === "missing") return { kind: "unknown", pods: members.total, why: lookup.why };
    if (lookup.kind !== "found") return lookup;
    byUid.set(lookup.uid, lookup);
  }
  return { kind: "counted", ...expectedOf([...byUid.values()], members.jobPods), pods: members.total };
}

/** None of the budget's pods in the core has a controller, so the workloads whose pod template it selects count. */
function byTemplate(
  workloads: WorkloadScales,
  { key, source, present }: CountRequest,
  selector: LabelSelector,
  pods: number,
): CoreCount {
  const { matches } = compileSelector(selector, "fails");
  const found = workloads.byTemplate(key, source.namespace, matches);
  if (found === undefined) return { kind: "waiting" };
  if ("kind" in found) return { kind: "unknown", pods, why: found.why };
  // A workload with zero replicas would be found. A missing one may have been erased while its pods run in other
  // clusters, or deleted without its pods. In this case, the disruption controller expects 0 pods, and allows no
  // eviction.
  if (found.length === 0 && (pods > 0 || (present?.spec.minAvailable ?? 0) > 0)) {
    const why = pods > 0 ? "its pods have no controller" : "no workload with such pods is there any more";
    return { kind: "unknown", pods, why };
  }
  return { kind: "counted", ...expectedOf(found, 0), isNowhere: found.length === 0 };
}

/** Pods of a Job that end are no longer asked for, so its number is that of its unfinished pods. */
function expectedOf(workloads: readonly FoundWorkload[], jobPods: number): ExpectedCount {
  const names = workloads.map(({ what, replicas }) => `${what} ${replicas}`).sort();
  if (jobPods > 0) names.push(`pods of Jobs ${jobPods}`);
  return {
    count: workloads.reduce((sum, { replicas }) => sum + replicas, jobPods),
    how: names.length === 0 ? NOTHING.how : ` (${few(names)})`,
    recheck: workloads.some(({ scale }) => scale === undefined),
    soon: workloads.some(({ isKept }) => isKept),
  };
}
