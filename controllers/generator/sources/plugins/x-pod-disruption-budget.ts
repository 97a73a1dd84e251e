/** x-pdb's XPodDisruptionBudgets (`x-pdb.form3.tech/v1alpha1`): a budget over several clusters, with a probe and a suspension. */
import * as v from "valibot";
import { checker } from "../../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { Budget, SourcePlugin } from "../protection-source.ts";
import { decideBudget, intOrPercent, isProtected, type PluginContext, sourceOf } from "../workload.ts";

const XPodDisruptionBudget = v.looseObject({
  metadata: ObjectMeta,
  spec: v.optional(
    v.looseObject({
      minAvailable: v.optional(v.unknown()),
      maxUnavailable: v.optional(v.unknown()),
      selector: v.optional(v.nullable(LabelSelector)),
      suspend: v.optional(v.nullable(v.boolean())),
      probe: v.optional(
        v.nullable(v.looseObject({ endpoint: v.optional(v.string()), enabled: v.optional(v.nullable(v.boolean())) })),
      ),
    }),
    {},
  ),
});
type XPodDisruptionBudget = v.InferOutput<typeof XPodDisruptionBudget>;

const parseBudget = checker(XPodDisruptionBudget);

function budgetOf({ metadata, spec = {} }: XPodDisruptionBudget): Budget {
  const { endpoint = "", enabled } = spec.probe ?? {};
  // Enabled unless it says otherwise.
  const asked = endpoint !== "" && enabled !== false;
  const reason = `XPodDisruptionBudget ${metadata.name} is suspended`;
  return {
    minAvailable: intOrPercent(spec.minAvailable),
    maxUnavailable: intOrPercent(spec.maxUnavailable),
    selector: spec.selector ?? undefined,
    spec: {
      // x-pdb lets a pod that is not ready go only while enough others are healthy.
      unhealthyPodPolicy: "IfHealthyBudget",
      ...(spec.suspend === true ? { suspend: { enabled: true, reason } } : {}),
      ...(asked ? { probe: { endpoint, protocol: "GRPC" } } : {}),
    },
    owns: ["unhealthyPodPolicy", "suspend", "probe"],
  };
}

export function xPodDisruptionBudgetPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "xpoddisruptionbudget",
    kind: {
      group: "x-pdb.form3.tech",
      version: "v1alpha1",
      kind: "XPodDisruptionBudget",
      resource: "xpoddisruptionbudgets",
    },
    optional: true,
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
