/** Which pods a node's taints evict (docs/design.md#eviction-retry), by the rules of the taint eviction controller. */
import type { PlacedPod, Taint, Toleration } from "../schema/taints.ts";

/**
 * Milliseconds after the taint at which the pod is evicted. Undefined for a pod that stays, or that no controller has
 * tried to disrupt, so that no deletion was denied: the cluster may have no taint eviction at all.
 */
export function evictedAfterMs(pod: PlacedPod, taints: readonly Taint[]): number | undefined {
  if (pod.isSettled || !pod.isDisruptionTarget) return undefined;
  return toleratedMs(pod.tolerations, taints);
}

/** How long the tolerations tolerate all of the NoExecute taints, in milliseconds; undefined for ever. */
function toleratedMs(tolerations: readonly Toleration[], taints: readonly Taint[]): number | undefined {
  let leastMs: number | undefined;
  for (const taint of taints) {
    const toleration = tolerations.find((one) => tolerates(one, taint));
    if (toleration === undefined) return 0;
    if (toleration.seconds === undefined) continue;
    leastMs = Math.min(leastMs ?? Number.POSITIVE_INFINITY, Math.max(0, toleration.seconds * 1000));
  }
  return leastMs;
}

function tolerates({ key, operator, value, effect }: Toleration, taint: Taint): boolean {
  if (effect !== "" && effect !== "NoExecute") return false;
  if (key !== "" && key !== taint.key) return false;
  if (operator === "" || operator === "Equal") return value === taint.value;
  // `Lt`, `Gt` and later operators depend on feature gates. In doubt, the pod stays.
  return true;
}
