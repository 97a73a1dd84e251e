/** ReplicationControllers (`v1`) that nothing controls: as ReplicaSets, with a selector that is a plain map of labels. */
import * as v from "valibot";
import { scaledMinimum } from "../../../../shared/decide/minimum/workload-minimum.ts";
import { checker } from "../../../../shared/schema/check.ts";
import { type LabelSelector, ObjectMeta } from "../../../../shared/schema/podprotector.ts";
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

const Labels = v.optional(v.nullable(v.record(v.string(), v.string())));
const ReplicationController = v.looseObject({
  metadata: ObjectMeta,
  spec: v.looseObject({
    replicas: Replicas,
    minReadySeconds: v.optional(v.number()),
    selector: Labels,
    template: Template,
  }),
});
type ReplicationController = v.InferOutput<typeof ReplicationController>;

const parseReplicationController = checker(ReplicationController);

/** The labels of its pods where it has no selector, as the API's defaults have it; undefined selects nothing. */
function selectorOf({ spec }: ReplicationController): LabelSelector | undefined {
  const matchLabels = spec.selector ?? spec.template?.metadata?.labels ?? {};
  return Object.keys(matchLabels).length === 0 ? undefined : { matchLabels };
}

function requiredProtectors(controller: ReplicationController): RequiredProtector[] {
  const { metadata, spec } = controller;
  const selector = selectorOf(controller);
  if (selector === undefined) return [];
  const { minAvailable, derivation } = scaledMinimum(spec.replicas ?? 1, DEFAULT_MAX_UNAVAILABLE);
  const name = `replicationcontroller-${metadata.name}`;
  return [{ name, spec: { minAvailable, minReadySeconds: spec.minReadySeconds ?? 0, selector }, derivation }];
}

export function replicationControllerPlugin(context: PluginContext): SourcePlugin {
  return {
    name: "replicationcontroller",
    kind: { group: "", version: "v1", kind: "ReplicationController", resource: "replicationcontrollers" },
    interpret(raw) {
      const controller = parseReplicationController(raw);
      const { metadata, spec } = controller;
      const replicas = spec.replicas ?? 1;
      const decision = decideWorkload(context, metadata, replicas);
      const controlled = controllerOf(metadata) !== undefined && decision !== "OutOfScope";
      return sourceOf(metadata, controlled ? "Controlled" : decision, {
        protectors: () => requiredProtectors(controller),
        ...scaleOf(metadata, replicas, selectorOf(controller), spec.template),
      });
    },
  };
}
