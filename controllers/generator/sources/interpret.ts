/** Shared by all plugins: whether an object is protected, and the fields of a protection source from its metadata. */
import type { IntOrPercent } from "../../../shared/decide/minimum/workload-minimum.ts";
import { isDeleting, type ObjectMeta } from "../../../shared/schema/podprotector.ts";
import type { ProtectionDecision, ProtectionSource, WorkloadRef } from "./protection-source.ts";

/** Whether an object asks for protection. `OutOfScope`: this generator leaves the object and its protectors alone. */
type Selection = Extract<ProtectionDecision, "NotSelected" | "Declined" | "OutOfScope"> | "Selected";

export interface PluginContext {
  readonly select: (metadata: ObjectMeta) => Selection;
  /** A workload that is deleted while it asks for replicas keeps its protector. */
  readonly protectNonZero: boolean;
}

/**
 * Whether an object that asks for `replicas` is protected. `replicas` is 0 for a budget, which a user may delete to end
 * its protection.
 */
export function decide(context: PluginContext, metadata: ObjectMeta, replicas: number): ProtectionDecision {
  const selection = context.select(metadata);
  if (selection !== "Selected") return selection;
  if (!isDeleting(metadata)) return "Protected";
  return context.protectNonZero && replicas > 0 ? "DeletingWithReplicas" : "Deleting";
}

export function isProtected(decision: ProtectionDecision): boolean {
  return decision === "Protected" || decision === "DeletingWithReplicas";
}

const NONE: readonly never[] = [];

export function sourceOf(
  metadata: ObjectMeta,
  decision: ProtectionDecision,
  derived: Partial<Pick<ProtectionSource, "protectors" | "need" | "scale" | "budgetStatus" | "why">> = {},
): ProtectionSource {
  return {
    namespace: metadata.namespace ?? "",
    name: metadata.name,
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    finalizers: metadata.finalizers ?? NONE,
    deleting: isDeleting(metadata),
    decision,
    protectors: NONE,
    ...derived,
  };
}

/** The object's controlling owner. */
export function controllerOf({ ownerReferences = [] }: ObjectMeta): WorkloadRef | undefined {
  const owner = ownerReferences.find(({ controller }) => controller === true);
  return owner && { apiVersion: owner.apiVersion, kind: owner.kind, name: owner.name, uid: owner.uid };
}

/**
 * A value that is neither a number nor a string becomes text that no arithmetic accepts, so it is reported as
 * unreadable.
 */
export function intOrPercent(value: unknown): IntOrPercent | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "number" ? value : String(value);
}
