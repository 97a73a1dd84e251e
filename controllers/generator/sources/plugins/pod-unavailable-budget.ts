/**
 * OpenKruise's PodUnavailableBudgets (`policy.kruise.io`, v1beta1 or v1alpha1): as a PodDisruptionBudget, over deletions and
 * changes in place too, for a selector or for one workload.
 */
import * as v from "valibot";
import { checker } from "../../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta, OPERATIONS, type Operation } from "../../../../shared/schema/podprotector.ts";
import type { Budget, SourcePlugin, WorkloadRef } from "../protection-source.ts";
import { decideBudget, intOrPercent, isProtected, type PluginContext, sourceOf } from "../workload.ts";

/** What v1alpha1 says by annotations and v1beta1 by fields. */
const OPERATIONS_ANNOTATION = "kruise.io/pub-protect-operations";
const TOTAL_REPLICAS_ANNOTATION = "kruise.io/pub-protect-total-replicas";

const TargetRef = v.looseObject({
  apiVersion: v.optional(v.string()),
  kind: v.optional(v.string()),
  name: v.optional(v.string()),
});
const PodUnavailableBudget = v.looseObject({
  metadata: ObjectMeta,
  spec: v.optional(
    v.looseObject({
      minAvailable: v.optional(v.unknown()),
      maxUnavailable: v.optional(v.unknown()),
      selector: v.optional(v.nullable(LabelSelector)),
      targetRef: v.optional(v.nullable(TargetRef)),
      ignoredPodSelector: v.optional(v.nullable(LabelSelector)),
      protectOperations: v.optional(v.nullable(v.array(v.string()))),
      protectTotalReplicas: v.optional(v.nullable(v.number())),
    }),
    {},
  ),
});
type PodUnavailableBudget = v.InferOutput<typeof PodUnavailableBudget>;

const parseBudget = checker(PodUnavailableBudget);

/** All three when none is named. A resize that restarts containers is an UPDATE here. */
function operationsOf({ metadata, spec = {} }: PodUnavailableBudget): readonly Operation[] {
  const annotated = metadata.annotations?.[OPERATIONS_ANNOTATION]?.split(",").map((one) => one.trim());
  const stated = spec.protectOperations ?? annotated ?? [];
  const known = OPERATIONS.filter(
    (operation) => stated.includes(operation) || (operation === "UPDATE" && stated.includes("RESIZE")),
  );
  return known.length === 0 ? OPERATIONS : known;
}

function expectedOf({ metadata, spec = {} }: PodUnavailableBudget): number | undefined {
  const annotated = metadata.annotations?.[TOTAL_REPLICAS_ANNOTATION];
  const expected = spec.protectTotalReplicas ?? (annotated === undefined ? undefined : Number(annotated));
  return expected !== undefined && Number.isInteger(expected) && expected > 0 ? expected : undefined;
}

function targetOf({ spec = {} }: PodUnavailableBudget): WorkloadRef | undefined {
  const { apiVersion, kind, name } = spec.targetRef ?? {};
  return apiVersion === undefined || kind === undefined || name === undefined ? undefined : { apiVersion, kind, name };
}

function budgetOf(object: PodUnavailableBudget): Budget {
  const { spec = {} } = object;
  return {
    minAvailable: intOrPercent(spec.minAvailable),
    maxUnavailable: intOrPercent(spec.maxUnavailable),
    selector: spec.selector ?? undefined,
    target: targetOf(object),
    expected: expectedOf(object),
    exempt: spec.ignoredPodSelector ?? undefined,
    // A pod that is not ready may always go there.
    spec: { unhealthyPodPolicy: "AlwaysAllow", protectedOperations: [...operationsOf(object)] },
    owns: ["unhealthyPodPolicy", "protectedOperations"],
  };
}

export function podUnavailableBudgetPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "podunavailablebudget",
    kind: {
      group: "policy.kruise.io",
      version: "v1beta1",
      kind: "PodUnavailableBudget",
      resource: "podunavailablebudgets",
    },
    optional: true,
    olderVersions: ["v1alpha1"],
    interpret(raw) {
      const object = parseBudget(raw);
      const { metadata } = object;
      const decision = decideBudget(context, metadata);
      const budget = budgetOf(object);
      const inForce = isProtected(decision) && (budget.selector !== undefined || budget.target !== undefined);
      return sourceOf(metadata, decision, inForce ? { need: { kind: "budget", budget } } : {});
    },
  };
}
