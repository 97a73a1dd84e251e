/**
 * Which status writes disrupt a pod (docs/design.md#status-writes): one that ends a pod that has not ended, one by
 * which a scheduler begins to evict a Ready pod, and one that takes a Ready pod out of service by a voluntary readiness
 * gate. What a node writes about its own pods is a fact, not a request. Compares the raw objects, because the rules are
 * about a difference.
 */
import { valueAt } from "../../shared/schema/check.ts";
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
/** Why Volcano and kube-batch set a pod to not Ready before they delete it. The webhook configuration has it, too. */
const EVICTED = "Evict";

function hasGate(object: unknown, type: string): boolean {
  const gates = valueAt(object, "spec", "readinessGates");
  return Array.isArray(gates) && gates.some((gate) => valueAt(gate, "conditionType") === type);
}

/** As for a kubelet, the first one counts. */
function conditionOf(object: unknown, type: string): unknown {
  const conditions = valueAt(object, "status", "conditions");
  return Array.isArray(conditions) ? conditions.find((one) => valueAt(one, "type") === type) : undefined;
}

function isTrue(object: unknown, type: string): boolean {
  return valueAt(conditionOf(object, type), "status") === "True";
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
  const before = valueAt(oldObject, "status", "phase");
  const phase = valueAt(object, "status", "phase");
  if (FINAL.has(before)) return undefined;
  if (FINAL.has(phase)) return { operation: "DELETE", done: `set to ${String(phase)}` };
  const isEvicted = !isTrue(object, "Ready") && valueAt(conditionOf(object, "Ready"), "reason") === EVICTED;
  if (isEvicted && isTrue(oldObject, "Ready"))
    return { operation: "DELETE", done: `taken out of service for its eviction (condition Ready: ${EVICTED})` };
  // Not for each gate of the pod: it may have thousands, and as many conditions.
  const closed = voluntaryGates.find(
    (gate) => isTrue(oldObject, gate) && !isTrue(object, gate) && hasGate(oldObject, gate),
  );
  if (closed === undefined || before === "Pending") return undefined;
  return { operation: "UPDATE", done: `taken out of service by its readiness gate ${closed}` };
}
