import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import { TransportError } from "../../shared/kube/client/transport.ts";
import type { PodProtector, PodProtectorStatus } from "../../shared/schema/podprotector.ts";
import type { OutageDetector } from "./outage-detector.ts";

/** The two calls to a core cluster that a decision needs. */
export interface ProtectorClient {
  read(namespace: string, name: string, timeoutMs: number): Promise<ApiResult<PodProtector>>;
  /** Compare-and-swap of the status against exactly this version of the object. */
  write(base: PodProtector, status: PodProtectorStatus, timeoutMs: number): Promise<ApiResult<PodProtector>>;
}

const FIELD_MANAGER = "podseidon-webhook";

/** Only an absent server may come back restored: a timeout or an error comes from a busy server. */
function isUnreachable(error: Error): boolean {
  return error instanceof TransportError && (error.tag === "refused" || error.tag === "reset" || error.tag === "dns");
}

export function createProtectorClient(api: ApiClient, outage?: OutageDetector): ProtectorClient {
  const noted = <T>(result: ApiResult<T>): ApiResult<T> => {
    if (result.kind !== "unavailable") outage?.succeeded();
    else if (isUnreachable(result.error)) outage?.failed(false);
    return result;
  };
  return {
    read: async (namespace, name, timeoutMs) => noted(await api.getPodProtector(namespace, name, { timeoutMs })),
    write: async ({ metadata }, status, timeoutMs) =>
      noted(await api.putPodProtectorStatus(metadata, status, { timeoutMs, fieldManager: FIELD_MANAGER })),
  };
}
