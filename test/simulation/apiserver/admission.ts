/** Admission webhooks as the API server model calls them: before the commit, with a timeout and a failure policy. */
import type { Json } from "./etcd.ts";

export interface SimulatedVerdict {
  readonly allowed: boolean;
  readonly code: number;
  readonly message: string;
}

export interface AdmissionChain {
  /** Reviews one deletion or eviction. Resolves within the webhook's timeout, whatever happens to the call. */
  review(request: Json): Promise<SimulatedVerdict>;
  /** Lets the mutating webhook change an Eviction before its review. */
  mutateEviction(request: Json): Promise<Json>;
  /** Lets the mutating webhook change a pod that is made; absent where none is registered. */
  readonly mutatePod?: ((request: Json) => Promise<Json>) | undefined;
  /** Tells the world that an allowed request has committed, or can no longer. */
  settled(request: Json, committed: boolean): void;
}
