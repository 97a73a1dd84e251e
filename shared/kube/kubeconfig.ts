import type { ClusterAccess } from "./cluster-access.ts";

export interface LoadOptions {
  /** Default `process.env` of the caller's; `KUBERNETES_SERVICE_HOST` and so on are read from it. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Context instead of `current-context`. */
  readonly context?: string;
}

/**
 * Reads how to reach a cluster: a kubeconfig file, or, for the empty path, the pod's service account.
 * Rejects with `AccessError`, whose message says what to do.
 */
export declare function loadClusterAccess(path: string, options?: LoadOptions): Promise<ClusterAccess>;
