import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { describeFailure } from "../../shared/kube/client/api-result.ts";
import { retryThrottled } from "../../shared/kube/client/retry-throttled.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { type Pod, parseAnyPod } from "../../shared/schema/pod.ts";
import type { BypassPermissions } from "./bypass-permission.ts";
import type { ListPods } from "./node-deletion.ts";

/** No live read takes longer, whatever the deadline of the admission request is. */
const MAX_READ_MS = 3_000;

export type LiveRead =
  | { readonly kind: "found"; readonly pod: Pod; readonly sentMs: number }
  /** No pod of this name, or a pod with another UID. */
  | { readonly kind: "gone" }
  | { readonly kind: "failed"; readonly message: string };

/** A cell whose admission requests this webhook decides. */
export interface CellClient {
  readonly id: string;
  /** Reads a pod from the cell, never from a cache. Undefined where the cell was configured without a kubeconfig. */
  readonly readPod: ((namespace: string, name: string, timeoutMs: number) => Promise<LiveRead>) | undefined;
  /** Lists the pods of a node. Undefined where the cell was configured without a kubeconfig. */
  readonly listPods?: ListPods;
  /** Marks a pod whose disruption waits for a pre-activity. Undefined where marking is not configured. */
  readonly markPending?: (pod: Pod) => void;
  /** Whether a user may bypass the protectors of a namespace. Undefined where the cell can't be asked. */
  readonly mayBypass?: BypassPermissions["mayBypass"];
}

export function createPodReader(
  api: ApiClient,
  ports: Pick<Ports, "clock" | "timers">,
): NonNullable<CellClient["readPod"]> {
  const { clock } = ports;
  return async (namespace, name, timeoutMs) => {
    let sentMs = clock.monotonicMs();
    const endMs = sentMs + Math.max(1, Math.min(timeoutMs, MAX_READ_MS));
    const result = await retryThrottled(ports, endMs, (leftMs) => {
      sentMs = clock.monotonicMs();
      return api.getPod(namespace, name, parseAnyPod, { timeoutMs: leftMs });
    });
    if (result.kind === "ok") return { kind: "found", pod: result.object, sentMs };
    if (result.kind === "gone") return { kind: "gone" };
    return { kind: "failed", message: describeFailure(result) };
  };
}
