/**
 * PodDisruptionBudgets (`policy/v1`): the protector requires what the disruption controller computes as `desiredHealthy`, so that
 * a budget holds for deletions too, and over several clusters.
 */
import * as v from "valibot";
import { checker } from "../../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { Budget, SourcePlugin } from "../protection-source.ts";
import { decideBudget, intOrPercent, isProtected, type PluginContext, sourceOf } from "../workload.ts";

const PodDisruptionBudget = v.looseObject({
  metadata: ObjectMeta,
  spec: v.optional(
    v.looseObject({
      minAvailable: v.optional(v.unknown()),
      maxUnavailable: v.optional(v.unknown()),
      selector: v.optional(v.nullable(LabelSelector)),
      unhealthyPodEvictionPolicy: v.optional(v.nullable(v.string())),
    }),
    {},
  ),
});
type PodDisruptionBudget = v.InferOutput<typeof PodDisruptionBudget>;

const parseBudget = checker(PodDisruptionBudget);

function budgetOf({ spec = {} }: PodDisruptionBudget): Budget {
  return {
    minAvailable: intOrPercent(spec.minAvailable),
    maxUnavailable: intOrPercent(spec.maxUnavailable),
    // Absent, it selects no pod; empty, it selects all.
    selector: spec.selector ?? undefined,
    // Unset is the stricter one there (KEP-3017).
    spec: { unhealthyPodPolicy: spec.unhealthyPodEvictionPolicy ?? "IfHealthyBudget" },
    owns: ["unhealthyPodPolicy"],
  };
}

export function podDisruptionBudgetPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "poddisruptionbudget",
    kind: { group: "policy", version: "v1", kind: "PodDisruptionBudget", resource: "poddisruptionbudgets" },
    interpret(raw) {
      const object = parseBudget(raw);
      const { metadata } = object;
      const decision = decideBudget(context, metadata);
      const budget = budgetOf(object);
      const inForce = isProtected(decision) && budget.selector !== undefined;
      return sourceOf(metadata, decision, inForce ? { need: { kind: "budget", budget } } : {});
    },
  };
}
