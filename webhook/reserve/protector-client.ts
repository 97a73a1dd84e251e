import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import { TransportError } from "../../shared/kube/client/transport.ts";
import type { PodProtector, PodProtectorStatus } from "../../shared/schema/podprotector.ts";
import type { OutageDetector } from "./outage-detector.ts";

/** The two calls that a decision makes to a core cluster; a port, so that a store in memory can stand behind it. */
export interface ProtectorClient {
  /** Quorum read. */
  read(namespace: string, name: string, timeoutMs: number): Promise<ApiResult<PodProtector>>;
  /** Compare-and-swap of the status against exactly this version of the object. */
  write(base: PodProtector, status: PodProtectorStatus, timeoutMs: number): Promise<ApiResult<PodProtector>>;
}

export const FIELD_MANAGER = "podseidon-webhook";

/** A call that is slow, or answered with an error, says that the server is busy; one that finds none, that it may be another later. */
function isUnreachable(error: Error): boolean {
  return error instanceof TransportError && (error.tag === "refused" || error.tag === "reset" || error.tag === "dns");
}

/** The calls as they are made to a real core cluster. */
export function createProtectorClient(api: ApiClient, outage?: OutageDetector): ProtectorClient {
  const note = <T>(result: ApiResult<T>): ApiResult<T> => {
    if (result.kind !== "unavailable") outage?.succeeded();
    else if (isUnreachable(result.error)) outage?.failed(false);
    return result;
  };
  return {
    read: async (namespace, name, timeoutMs) => note(await api.getPodProtector(namespace, name, { timeoutMs })),
    write: async ({ metadata }, status, timeoutMs) => {
      const result = await api.putPodProtectorStatus(
        {
          namespace: metadata.namespace ?? "",
          name: metadata.name,
          uid: metadata.uid,
          resourceVersion: metadata.resourceVersion,
        },
        status,
        { timeoutMs, fieldManager: FIELD_MANAGER },
      );
      return note(result);
    },
  };
}
