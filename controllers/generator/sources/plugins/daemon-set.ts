/**
 * DaemonSets (`apps/v1`). There is no number of replicas: `minAvailable` is the number of nodes that should run a pod of it, as the
 * status of the DaemonSet says, less what its controller may stop at once. So it is about the pods of the cluster that the DaemonSet
 * is in; where every worker cluster has a DaemonSet of its own, a generator runs in each of them, with that cluster as its core.
 */
import * as v from "valibot";
import { daemonSetMinimum } from "../../../../shared/decide/minimum/workload-minimum.ts";
import { checker } from "../../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { RequiredProtector, SourcePlugin } from "../protection-source.ts";
import {
  decideWorkload,
  intOrPercent,
  isProtected,
  type PluginContext,
  sourceOf,
  UpdateParameters,
} from "../workload.ts";

const DaemonSet = v.looseObject({
  metadata: ObjectMeta,
  spec: v.looseObject({
    minReadySeconds: v.optional(v.number()),
    selector: LabelSelector,
    updateStrategy: v.optional(v.looseObject({ type: v.optional(v.string()), rollingUpdate: UpdateParameters })),
  }),
  status: v.optional(
    v.looseObject({ desiredNumberScheduled: v.optional(v.number()), observedGeneration: v.optional(v.number()) }),
  ),
});
type DaemonSet = v.InferOutput<typeof DaemonSet>;

const parseDaemonSet = checker(DaemonSet);

function requiredProtector({ metadata, spec, status }: DaemonSet): RequiredProtector {
  const { minAvailable, derivation } = daemonSetMinimum({
    desiredNumberScheduled: status?.desiredNumberScheduled,
    strategy: spec.updateStrategy?.type,
    maxUnavailable: intOrPercent(spec.updateStrategy?.rollingUpdate?.maxUnavailable),
    maxSurge: intOrPercent(spec.updateStrategy?.rollingUpdate?.maxSurge),
  });
  return {
    name: `daemonset-${metadata.name}`,
    spec: { minAvailable, minReadySeconds: spec.minReadySeconds ?? 0, selector: spec.selector },
    derivation: `${derivation} (nodes of this cluster that should run it)`,
  };
}

/** Whether the DaemonSet controller has looked at it: the apiserver itself creates it with a status that says 0. */
function isCounted({ status }: DaemonSet): boolean {
  return (status?.observedGeneration ?? 0) > 0 || (status?.desiredNumberScheduled ?? 0) > 0;
}

export function daemonSetPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "daemonset",
    kind: { group: "apps", version: "v1", kind: "DaemonSet", resource: "daemonsets" },
    interpret(raw) {
      const set = parseDaemonSet(raw);
      const { metadata, status } = set;
      const decision = decideWorkload(context, metadata, status?.desiredNumberScheduled ?? 0);
      if (isProtected(decision) && !isCounted(set)) {
        return sourceOf(metadata, decision, { need: { kind: "status", required: requiredProtector(set) } });
      }
      return sourceOf(metadata, decision, { protectors: () => [requiredProtector(set)] });
    },
  };
}
