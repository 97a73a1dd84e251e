/**
 * The kinds of disruption budgets, one row each, and the plugin that all rows share. `budgets/` computes the minimum of
 * a budget, because the budget alone does not show how many pods it covers.
 */
import * as v from "valibot";
import { podCount } from "../../../shared/decide/minimum/workload-minimum.ts";
import {
  CLUSTER_BUDGETS_ANNOTATION,
  EXPECTED_PODS_ANNOTATION,
  SUSPEND_CELLS_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import { MAX_NAME_LENGTH } from "../../../shared/schema/lengths.ts";
import { LabelSelector, ObjectMeta, OPERATIONS, PROTECTED_OPERATIONS } from "../../../shared/schema/podprotector.ts";
import { SchemaError } from "../../../shared/schema/schema-error.ts";
import { readClusterParts } from "../cluster-budgets/cluster-parts.ts";
import { budgetSelector } from "./budget-selector.ts";
import { decide, intOrPercent, isProtected, type PluginContext, sourceOf } from "./interpret.ts";
import { endpointProblem } from "./probe-endpoint.ts";
import { type Budget, type ProtectionSource, pluginName, type SourcePlugin, sourceKind } from "./protection-source.ts";

/** The plugin's description, and how an object of the kind is read. */
interface BudgetKind extends Pick<SourcePlugin, "kind" | "optional" | "olderVersions"> {
  /** Throws `SchemaError` for an object of another kind. */
  readonly read: (raw: unknown) => {
    readonly metadata: ObjectMeta;
    readonly budget: Budget;
    readonly budgetStatus?: ProtectionSource["budgetStatus"];
  };
}

export const BUDGET_KINDS: readonly BudgetKind[] = [
  { kind: sourceKind("policy", "v1", "PodDisruptionBudget"), read: readPodDisruptionBudget },
  {
    kind: sourceKind("policy.kruise.io", "v1beta1", "PodUnavailableBudget"),
    optional: true,
    olderVersions: ["v1alpha1"],
    read: readPodUnavailableBudget,
  },
  {
    kind: sourceKind("x-pdb.form3.tech", "v1alpha1", "XPodDisruptionBudget"),
    optional: true,
    read: readXPodDisruptionBudget,
  },
];

const WHY_NOTHING = "it has no selector, so that it selects no pod; an empty one selects all pods of the namespace";

export function budgetPlugin({ read, ...plugin }: BudgetKind, context: PluginContext): SourcePlugin {
  return {
    name: pluginName(plugin.kind),
    ...plugin,
    interpret(raw) {
      const { metadata, budget, budgetStatus } = read(raw);
      const decision = decide(context, metadata, 0);
      const selectsPods = budget.selector !== undefined || budget.targetRef !== undefined;
      return sourceOf(metadata, decision, {
        ...(isProtected(decision) ? (selectsPods ? { need: { kind: "budget", budget } } : { why: WHY_NOTHING }) : {}),
        ...(budgetStatus === undefined ? {} : { budgetStatus }),
      });
    },
  };
}

/**
 * Fields that all kinds have. A budget without a selector selects no pod, unless it is an XPodDisruptionBudget; a
 * budget with an empty selector selects all pods.
 */
const Limits = {
  minAvailable: v.optional(v.unknown()),
  maxUnavailable: v.optional(v.unknown()),
  selector: v.nullish(LabelSelector),
};

/** Parses a budget with the `fields` that only its kind has. */
function budgetParser<const Fields extends v.ObjectEntries>(fields: Fields) {
  return checker(v.looseObject({ metadata: ObjectMeta, spec: v.optional(v.looseObject({ ...Limits, ...fields })) }));
}

function limitsOf(
  { annotations = {} }: ObjectMeta,
  spec: {
    readonly minAvailable?: unknown;
    readonly maxUnavailable?: unknown;
    readonly selector?: LabelSelector | null | undefined;
  },
): Pick<Budget, "minAvailable" | "maxUnavailable" | "selector" | "expectedPods" | "countedIn"> {
  const stated = annotations[EXPECTED_PODS_ANNOTATION];
  return {
    expectedPods: positiveInteger(stated),
    countedIn: stated === "core" || stated === "cells" ? stated : undefined,
    minAvailable: intOrPercent(spec.minAvailable),
    maxUnavailable: intOrPercent(spec.maxUnavailable),
    selector: budgetSelector("selector", spec.selector),
  };
}

/**
 * A budget's policy only concerns evictions: it does not deny the deletion of a dead pod, or the rollback of a bad
 * image.
 */
const EVICTIONS_ONLY = { unhealthyPodPolicies: { DELETE: "AlwaysAllow", UPDATE: "AlwaysAllow" } };
const OWNS_POLICY = ["unhealthyPodPolicy", "unhealthyPodPolicies"] as const;

const parsePodDisruptionBudget = budgetParser({ unhealthyPodEvictionPolicy: v.nullish(v.string()) });

function readPodDisruptionBudget(raw: unknown): ReturnType<BudgetKind["read"]> {
  const { metadata, spec = {} } = parsePodDisruptionBudget(raw);
  // The default of the API, which is the stricter policy (KEP-3017). A client is to take a policy that it does not know
  // for a strict one; the core would refuse a protector with it.
  const unhealthyPodPolicy = spec.unhealthyPodEvictionPolicy === "AlwaysAllow" ? "AlwaysAllow" : "IfHealthyBudget";
  const budget = { ...limitsOf(metadata, spec), spec: { unhealthyPodPolicy, ...EVICTIONS_ONLY }, owns: OWNS_POLICY };
  return { metadata, budget };
}

const Name = v.optional(v.string());
const parsePodUnavailableBudget = budgetParser({
  targetRef: v.nullish(v.looseObject({ apiVersion: Name, kind: Name, name: Name })),
  ignoredPodSelector: v.nullish(LabelSelector),
  protectOperations: v.nullish(v.array(v.string())),
  protectTotalReplicas: v.nullish(v.number()),
});

/** OpenKruise's budget covers in-place changes, too. v1alpha1 has annotations for two fields of v1beta1. */
function readPodUnavailableBudget(raw: unknown): ReturnType<BudgetKind["read"]> {
  const { metadata, spec = {}, status } = parsePodUnavailableBudget(raw);
  const { annotations = {} } = metadata;
  const { apiVersion, kind, name } = spec.targetRef ?? {};
  const hasTarget = apiVersion !== undefined && kind !== undefined && name !== undefined;
  const budget: Budget = {
    ...limitsOf(metadata, spec),
    targetRef: hasTarget ? { apiVersion, kind, name } : undefined,
    ignoresFinishedPods: true,
    ...expectedBy(spec.protectTotalReplicas ?? annotations["pub.kruise.io/protect-total-replicas"]),
    ignoredPodSelector: budgetSelector("ignoredPodSelector", spec.ignoredPodSelector),
    spec: {
      // OpenKruise never denies the disruption of a pod that is not ready.
      unhealthyPodPolicy: "AlwaysAllow",
      // OpenKruise does not count a pod with such a label.
      unavailableLabelPrefix: "unavailable-pod.kruise.io/",
      protectedOperations: operationsOf(
        spec.protectOperations ?? [],
        annotations["kruise.io/pub-protect-operations"]?.split(",").map((name) => name.trim()) ?? [],
      ),
    },
    owns: [...OWNS_POLICY, "protectedOperations", "unavailableLabelPrefix"],
  };
  return { metadata, budget, budgetStatus: { generation: metadata.generation ?? 0, stored: status ?? undefined } };
}

/** The operations of the first list that names any; all operations if no list does. */
function operationsOf(...stated: (readonly string[])[]): string[] {
  const known = stated.map((names) => PROTECTED_OPERATIONS.filter((operation) => names.includes(operation)));
  return known.find((names) => names.length > 0) ?? [...OPERATIONS];
}

/**
 * OpenKruise's annotation has precedence over this project's. Its value may be 0, which requires no pods, and which
 * JavaScript also reads in white space.
 */
function expectedBy(stated: number | string | undefined): Pick<Budget, "expectedPods"> {
  return /^[+-]?[0-9]+$/.test(String(stated)) ? { expectedPods: podCount(Number(stated)) } : {};
}

/** In digits alone: JavaScript also reads `1e3` and white space as numbers. */
function positiveInteger(stated = ""): number | undefined {
  return /^0*[1-9][0-9]*$/.test(stated) ? podCount(Number(stated)) : undefined;
}

/** Unreadable text counts as an unreadable limit. */
function clusterLimits(text: string | undefined): Budget["ofClusters"] {
  if (text === undefined) return undefined;
  try {
    const clusters = Object.entries(readClusterParts(text).clusters);
    return clusters.map(([cluster, { minAvailable, maxUnavailable }]) => ({ cluster, minAvailable, maxUnavailable }));
  } catch {
    return [{ cluster: "", minAvailable: UNREADABLE }];
  }
}

const UNREADABLE = "unreadable";

const parseXPodDisruptionBudget = budgetParser({
  suspend: v.nullish(v.boolean()),
  probe: v.nullish(v.looseObject({ endpoint: v.optional(v.string()), enabled: v.nullish(v.boolean()) })),
});

const MAX_CELLS = 256;

/** Each cell once: the apiserver rejects a protector with a duplicate or an invalid id as a whole. */
function suspendedCells(stated: string | undefined): string[] | undefined {
  if (stated === undefined) return undefined;
  const cells = stated.split(",").map((cell) => cell.trim());
  return [...new Set(cells)].filter((cell) => cell !== "" && cell.length <= MAX_NAME_LENGTH);
}

/** x-pdb's budget over several clusters, with a probe and a suspension. */
function readXPodDisruptionBudget(raw: unknown): ReturnType<BudgetKind["read"]> {
  const { metadata, spec = {} } = parseXPodDisruptionBudget(raw);
  const { endpoint = "", enabled } = spec.probe ?? {};
  // A probe is enabled by default.
  const asksProbe = endpoint !== "" && enabled !== false;
  const problem = asksProbe ? endpointProblem(endpoint) : undefined;
  if (problem !== undefined) throw new SchemaError("spec.probe.endpoint", problem);
  const cells = suspendedCells(metadata.annotations?.[SUSPEND_CELLS_ANNOTATION]);
  // A protector can't name more than MAX_CELLS cells. Beyond this, no cell is suspended, because suspending all would
  // exceed the budget's list.
  const isSuspended = spec.suspend === true && cells?.length !== 0 && (cells ?? []).length <= MAX_CELLS;
  const reason = `XPodDisruptionBudget ${metadata.name} is suspended`;
  // x-pdb can't distinguish an absent selector from an empty one, which selects all pods of the namespace.
  const limits = limitsOf(metadata, { ...spec, selector: spec.selector ?? {} });
  const ofClusters = clusterLimits(metadata.annotations?.[CLUSTER_BUDGETS_ANNOTATION]);
  const budget: Budget = {
    ...limits,
    // Worker clusters with budgets also have the workloads of these pods.
    ...(ofClusters === undefined ? {} : { ofClusters, countedIn: limits.countedIn ?? "cells" }),
    spec: {
      // x-pdb allows the eviction of a pod that is not ready only while enough others are healthy.
      unhealthyPodPolicy: "IfHealthyBudget",
      ...EVICTIONS_ONLY,
      ...(isSuspended ? { suspend: { enabled: true, reason, ...(cells === undefined ? {} : { cells }) } } : {}),
      ...(asksProbe ? { probe: { endpoint, protocol: "GRPC" } } : {}),
    },
    owns: [...OWNS_POLICY, "suspend", "probe"],
  };
  return { metadata, budget };
}
