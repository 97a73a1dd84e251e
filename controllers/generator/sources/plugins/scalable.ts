/**
 * Any custom resource with a scale subresource (`--scalable`): replicas and selector are what `kubectl scale` sees. How many pods its
 * controller may stop at once is nowhere written, so that an annotation says it, and a quarter, at least one, is taken without.
 */
import * as v from "valibot";
import { MAX_UNAVAILABLE_ANNOTATION } from "../../../../shared/schema/annotations.ts";
import { checker } from "../../../../shared/schema/check.ts";
import { ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { SourcePlugin } from "../protection-source.ts";
import { decideWorkload, isProtected, type PluginContext, sourceOf } from "../workload.ts";

const DEFAULT_MAX_UNAVAILABLE = "25%";

/** A resource by group, version and plural. */
export interface ScalableResource {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
}

const parseObject = checker(
  v.looseObject({
    metadata: ObjectMeta,
    // Most have it; it is only a hint whether one that is being deleted still asks for pods.
    spec: v.optional(v.unknown()),
  }),
);

/** `group/version/resource`; undefined for a text that is not. */
export function parseScalable(text: string): ScalableResource | undefined {
  const [group, version, resource, ...rest] = text.split("/");
  const parts = [group, version, resource];
  if (rest.length > 0 || !parts.every((part) => part !== undefined && /^[a-z0-9][a-z0-9.-]*$/.test(part))) {
    return undefined;
  }
  return { group: group ?? "", version: version ?? "", resource: resource ?? "" };
}

function replicasHint(spec: unknown): number {
  const replicas = typeof spec === "object" && spec !== null ? Reflect.get(spec, "replicas") : undefined;
  return typeof replicas === "number" ? replicas : 1;
}

export function scalablePlugin({ group, version, resource }: ScalableResource, context: PluginContext): SourcePlugin {
  return {
    name: `${resource}.${group}`,
    kind: { group, version, kind: "", resource },
    optional: true,
    interpret(raw) {
      const { metadata, spec } = parseObject(raw);
      const decision = decideWorkload(context, metadata, replicasHint(spec));
      const stated = metadata.annotations?.[MAX_UNAVAILABLE_ANNOTATION] ?? DEFAULT_MAX_UNAVAILABLE;
      const maxUnavailable = /^[0-9]+$/.test(stated) ? Number(stated) : stated;
      return sourceOf(metadata, decision, isProtected(decision) ? { need: { kind: "scale", maxUnavailable } } : {});
    },
  };
}
