/**
 * Which status writes disrupt a pod (docs/design.md#status-writes): one that ends a pod that has not ended, and one
 * that takes a Ready pod out of service by a voluntary readiness gate. What a node writes about its own pods is a fact,
 * not a request. Compares the raw objects, because both rules are about a difference.
 */
import type { AdmissionRequest } from "./admission-request.ts";

export interface StatusRules {
  /** Groups of users whose status writes are facts: those of kubelets. */
  readonly nodeGroups: readonly string[];
  /** Readiness gates that a controller closes at will, before it changes a pod in place. */
  readonly voluntaryGates: readonly string[];
  readonly reviewsStatus: boolean;
}

export const DEFAULT_STATUS_RULES: StatusRules = {
  nodeGroups: ["system:nodes"],
  voluntaryGates: ["InPlaceUpdateReady", "KruisePodReady"],
  reviewsStatus: true,
};

/** What a status write does to its pod; `done` completes "the pod may not be ...". */
export interface StatusChange {
  readonly operation: "DELETE" | "UPDATE";
  readonly done: string;
}

const FINAL: ReadonlySet<unknown> = new Set(["Succeeded", "Failed"]);

function get(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>((found, name) => Reflect.get(Object(found), name), value);
}

function hasGate(object: unknown, type: string): boolean {
  const gates = get(object, "spec", "readinessGates");
  return Array.isArray(gates) && gates.some((gate) => get(gate, "conditionType") === type);
}

function isTrue(object: unknown, type: string): boolean {
  const conditions = get(object, "status", "conditions");
  if (!Array.isArray(conditions)) return false;
  // As for a kubelet, the first one counts.
  const first: unknown = conditions.find((one) => get(one, "type") === type);
  return get(first, "status") === "True";
}

/** No protector decides the write: a node makes it, or the cluster has opted out. */
export function isFact(
  { user }: Pick<AdmissionRequest, "user">,
  { reviewsStatus, nodeGroups }: Pick<StatusRules, "reviewsStatus" | "nodeGroups">,
): boolean {
  return !reviewsStatus || user.groups.some((group) => nodeGroups.includes(group));
}

/** What the write would do to a pod that serves; undefined for a write that disrupts nothing. */
export function statusChange(
  { object, oldObject }: Pick<AdmissionRequest, "object" | "oldObject">,
  { voluntaryGates }: Pick<StatusRules, "voluntaryGates">,
): StatusChange | undefined {
  const before = get(oldObject, "status", "phase");
  const phase = get(object, "status", "phase");
  if (FINAL.has(before)) return undefined;
  if (FINAL.has(phase)) return { operation: "DELETE", done: `set to ${String(phase)}` };
  // Not for each gate of the pod: it may have thousands, and as many conditions.
  const closed = voluntaryGates.find(
    (gate) => isTrue(oldObject, gate) && !isTrue(object, gate) && hasGate(oldObject, gate),
  );
  if (closed === undefined || before === "Pending") return undefined;
  return { operation: "UPDATE", done: `taken out of service by its readiness gate ${closed}` };
}
