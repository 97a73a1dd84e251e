/** Deployments (`apps/v1`): the numbers of a protector are those that the Deployment controller keeps in a rollout. */
import * as v from "valibot";
import { deploymentMinimum } from "../../../../shared/decide/minimum/workload-minimum.ts";
import { checker } from "../../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { RequiredProtector, SourcePlugin } from "../protection-source.ts";
import {
  decideWorkload,
  intOrPercent,
  type PluginContext,
  Replicas,
  scaleOf,
  sourceOf,
  Template,
  UpdateParameters,
} from "../workload.ts";

const Deployment = v.looseObject({
  metadata: ObjectMeta,
  spec: v.looseObject({
    replicas: Replicas,
    minReadySeconds: v.optional(v.number()),
    selector: LabelSelector,
    template: Template,
    strategy: v.optional(v.looseObject({ type: v.optional(v.string()), rollingUpdate: UpdateParameters })),
  }),
});
type Deployment = v.InferOutput<typeof Deployment>;

const parseDeployment = checker(Deployment);

function requiredProtector({ metadata, spec }: Deployment): RequiredProtector {
  const { minAvailable, derivation } = deploymentMinimum({
    replicas: spec.replicas ?? undefined,
    strategy: spec.strategy?.type,
    maxSurge: intOrPercent(spec.strategy?.rollingUpdate?.maxSurge),
    maxUnavailable: intOrPercent(spec.strategy?.rollingUpdate?.maxUnavailable),
  });
  return {
    name: `deployment-${metadata.name}`,
    spec: { minAvailable, minReadySeconds: spec.minReadySeconds ?? 0, selector: spec.selector },
    derivation,
  };
}

export function deploymentPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "deployment",
    kind: { group: "apps", version: "v1", kind: "Deployment", resource: "deployments" },
    interpret(raw) {
      const deployment = parseDeployment(raw);
      const { metadata, spec } = deployment;
      const replicas = spec.replicas ?? 1;
      return sourceOf(metadata, decideWorkload(context, metadata, replicas), {
        protectors: () => [requiredProtector(deployment)],
        ...scaleOf(metadata, replicas, spec.selector, spec.template),
      });
    },
  };
}
