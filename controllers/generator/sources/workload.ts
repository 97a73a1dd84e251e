/** What the plugins of workloads have in common: parts of their schemas, and how a `Source` is made of an object's metadata. */

import * as v from "valibot";
import type { IntOrPercent } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { LabelSelector, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import { isDeleting } from "../../../shared/schema/podprotector.ts";
import type { ProtectionDecision, ProtectionSource, RequiredProtector, WorkloadRef } from "./protection-source.ts";
import type { Choice } from "./selection.ts";

export interface PluginContext {
  /** Whether an object is to be protected. */
  readonly select: (metadata: ObjectMeta) => Choice;
  /** A workload that is being deleted while it still asks for replicas keeps its protection (design 12). */
  readonly protectNonZero: boolean;
}

const NONE: readonly never[] = [];

export const Replicas = v.optional(v.nullable(v.number()));
export const Template = v.optional(
  v.nullable(
    v.looseObject({
      metadata: v.optional(
        v.nullable(v.looseObject({ labels: v.optional(v.nullable(v.record(v.string(), v.string()))) })),
      ),
    }),
  ),
);
export const UpdateParameters = v.optional(
  v.nullable(
    v.looseObject({
      maxSurge: v.optional(v.unknown()),
      maxUnavailable: v.optional(v.unknown()),
      partition: v.optional(v.nullable(v.number())),
    }),
  ),
);

/** Absent stays absent; anything but a number or text is text that nothing can read, which the arithmetic reports. */
export function intOrPercent(value: unknown): IntOrPercent | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "number" ? value : String(value);
}

/** The object's controller, if it has one. */
export function controllerOf({ ownerReferences = [] }: ObjectMeta): WorkloadRef | undefined {
  const owner = ownerReferences.find(({ controller }) => controller === true);
  return owner && { apiVersion: owner.apiVersion, kind: owner.kind, name: owner.name, uid: owner.uid };
}

/** Whether a workload is protected that asks for `replicas`. */
export function decideWorkload(context: PluginContext, metadata: ObjectMeta, replicas: number): ProtectionDecision {
  const choice = context.select(metadata);
  if (choice !== "Selected") return choice;
  if (!isDeleting(metadata)) return "Protected";
  return context.protectNonZero && replicas > 0 ? "DeletingWithReplicas" : "Deleting";
}

/** Whether a budget is in force: its deletion is how a user lifts it. */
export function decideBudget(context: PluginContext, metadata: ObjectMeta): ProtectionDecision {
  const choice = context.select(metadata);
  if (choice !== "Selected") return choice;
  return isDeleting(metadata) ? "Deleting" : "Protected";
}

export function isProtected(decision: ProtectionDecision): boolean {
  return decision === "Protected" || decision === "DeletingWithReplicas";
}

/** What every source has; `protectors` are left out unless the decision is to protect. */
export function sourceOf(
  metadata: ObjectMeta,
  decision: ProtectionDecision,
  rest: Partial<Pick<ProtectionSource, "need" | "scale" | "why">> & {
    readonly protectors?: () => RequiredProtector[];
  } = {},
): ProtectionSource {
  const { protectors, ...others } = rest;
  return {
    namespace: metadata.namespace ?? "",
    name: metadata.name,
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    finalizers: metadata.finalizers ?? NONE,
    deleting: isDeleting(metadata),
    decision,
    protectors: isProtected(decision) ? (protectors?.() ?? NONE) : NONE,
    ...others,
  };
}

const NO_LABELS: Readonly<Record<string, string>> = {};

/** How many pods the workload asks for, for budgets over its pods. */
export function scaleOf(
  metadata: ObjectMeta,
  replicas: number,
  selector: LabelSelector | undefined,
  template: v.InferOutput<typeof Template>,
): Pick<ProtectionSource, "scale"> {
  const podLabels = template?.metadata?.labels ?? NO_LABELS;
  return { scale: { replicas, selector, controller: controllerOf(metadata), podLabels } };
}
