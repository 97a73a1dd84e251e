/**
 * ReplicaSets (`apps/v1`) that nothing controls. They have no rollout: whoever replaces their pods does so by hand, a quarter at a
 * time as a Deployment would by default, and at least one. One that belongs to a Deployment is protected by that.
 */
import * as v from "valibot";
import { scaledMinimum } from "../../../../shared/decide/minimum/workload-minimum.ts";
import { checker } from "../../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { RequiredProtector, SourcePlugin } from "../protection-source.ts";
import {
  controllerOf,
  decideWorkload,
  type PluginContext,
  Replicas,
  scaleOf,
  sourceOf,
  Template,
} from "../workload.ts";

const DEFAULT_MAX_UNAVAILABLE = "25%";

const ReplicaSet = v.looseObject({
  metadata: ObjectMeta,
  spec: v.looseObject({
    replicas: Replicas,
    minReadySeconds: v.optional(v.number()),
    selector: LabelSelector,
    template: Template,
  }),
});
type ReplicaSet = v.InferOutput<typeof ReplicaSet>;

const parseReplicaSet = checker(ReplicaSet);

function requiredProtector({ metadata, spec }: ReplicaSet): RequiredProtector {
  const { minAvailable, derivation } = scaledMinimum(spec.replicas ?? 1, DEFAULT_MAX_UNAVAILABLE);
  return {
    name: `replicaset-${metadata.name}`,
    spec: { minAvailable, minReadySeconds: spec.minReadySeconds ?? 0, selector: spec.selector },
    derivation,
  };
}

export function replicaSetPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "replicaset",
    kind: { group: "apps", version: "v1", kind: "ReplicaSet", resource: "replicasets" },
    interpret(raw) {
      const set = parseReplicaSet(raw);
      const { metadata, spec } = set;
      const replicas = spec.replicas ?? 1;
      const decision = decideWorkload(context, metadata, replicas);
      const controlled = controllerOf(metadata) !== undefined && decision !== "OutOfScope";
      return sourceOf(metadata, controlled ? "Controlled" : decision, {
        protectors: () => [requiredProtector(set)],
        // Nobody asks for the template of one that belongs to another, and there are many of these.
        ...scaleOf(metadata, replicas, spec.selector, controlled ? undefined : spec.template),
      });
    },
  };
}
