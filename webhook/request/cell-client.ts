import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { parsePod } from "../../shared/schema/pod.ts";
import { MAX_CORE_CALL_MS } from "../limits.ts";
import type { LiveRead } from "../reserve/pending.ts";
import type { User } from "./admission-request.ts";
import type { Permission } from "./bypass-permission.ts";

/** A cell whose reviews are answered here. */
export interface CellClient {
  readonly id: string;
  /** Reads a pod live, never from a cache (design 6). Undefined where the cell was configured without a kubeconfig. */
  readonly readPod: ((namespace: string, name: string, timeoutMs: number) => Promise<LiveRead>) | undefined;
  /** Tells that somebody wants a pod gone which is held back by what has to be done first; undefined where that is not asked for. */
  readonly markPending?: (pod: Pod) => void;
  /** Whether a user may let protected pods of a namespace go whatever the count; not known where it is undefined. */
  readonly mayBypass?: (user: User, namespace: string, timeoutMs: number) => Promise<Permission>;
}

/** The live reads of one worker cluster. */
export function createPodReader(api: ApiClient, clock: Clock): NonNullable<CellClient["readPod"]> {
  return async (namespace, name, timeoutMs) => {
    const sentMs = clock.monotonicMs();
    const bounded = Math.max(1, Math.min(timeoutMs, MAX_CORE_CALL_MS));
    const result = await api.getPod(namespace, name, parsePod, { timeoutMs: bounded });
    if (result.kind === "ok") return { kind: "found", pod: result.object, sentMs };
    if (result.kind === "gone") return { kind: "gone" };
    return { kind: "failed", message: result.kind === "unavailable" ? result.error.message : result.message };
  };
}
