import type { ApiClient } from "../shared/kube/api.ts";
import type { ApiResult } from "../shared/kube/api-result.ts";
import type { PodProtector, PodProtectorStatus } from "../shared/schema/podprotector.ts";

/** The two calls that a decision makes to a core cluster; a port, so that a store in memory can stand behind it. */
export interface ProtectorCalls {
  /** Quorum read. */
  read(namespace: string, name: string, timeoutMs: number): Promise<ApiResult<PodProtector>>;
  /** Compare-and-swap of the status against exactly this version of the object. */
  write(base: PodProtector, status: PodProtectorStatus, timeoutMs: number): Promise<ApiResult<PodProtector>>;
}

export const FIELD_MANAGER = "podseidon-webhook";

/** The calls as they are made to a real core cluster. */
export function createProtectorCalls(api: ApiClient): ProtectorCalls {
  return {
    read: (namespace, name, timeoutMs) => api.getPodProtector(namespace, name, { timeoutMs }),
    write: ({ metadata }, status, timeoutMs) =>
      api.putPodProtectorStatus(
        {
          namespace: metadata.namespace ?? "",
          name: metadata.name,
          uid: metadata.uid,
          resourceVersion: metadata.resourceVersion,
        },
        status,
        { timeoutMs, fieldManager: FIELD_MANAGER },
      ),
  };
}
