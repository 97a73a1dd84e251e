/** StatefulSets (`apps/v1`): one pod may be down, or as many as `maxUnavailable` lets the StatefulSet controller stop. */
import * as v from "valibot";
import { statefulSetMinimum } from "../../../../shared/decide/minimum/workload-minimum.ts";
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

const StatefulSet = v.looseObject({
  metadata: ObjectMeta,
  spec: v.looseObject({
    replicas: Replicas,
    minReadySeconds: v.optional(v.number()),
    selector: LabelSelector,
    template: Template,
    updateStrategy: v.optional(v.looseObject({ type: v.optional(v.string()), rollingUpdate: UpdateParameters })),
  }),
});
type StatefulSet = v.InferOutput<typeof StatefulSet>;

const parseStatefulSet = checker(StatefulSet);

function requiredProtector({ metadata, spec }: StatefulSet): RequiredProtector {
  const { minAvailable, derivation } = statefulSetMinimum({
    replicas: spec.replicas ?? undefined,
    strategy: spec.updateStrategy?.type,
    maxUnavailable: intOrPercent(spec.updateStrategy?.rollingUpdate?.maxUnavailable),
    partition: spec.updateStrategy?.rollingUpdate?.partition ?? undefined,
  });
  return {
    name: `statefulset-${metadata.name}`,
    spec: { minAvailable, minReadySeconds: spec.minReadySeconds ?? 0, selector: spec.selector },
    derivation,
  };
}

export function statefulSetPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "statefulset",
    kind: { group: "apps", version: "v1", kind: "StatefulSet", resource: "statefulsets" },
    interpret(raw) {
      const set = parseStatefulSet(raw);
      const { metadata, spec } = set;
      const replicas = spec.replicas ?? 1;
      return sourceOf(metadata, decideWorkload(context, metadata, replicas), {
        protectors: () => [requiredProtector(set)],
        ...scaleOf(metadata, replicas, spec.selector, spec.template),
      });
    },
  };
}
