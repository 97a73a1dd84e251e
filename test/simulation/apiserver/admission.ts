/** The admission webhooks of the API server model: called before the commit, with a timeout and a failure policy. */
import type { Json } from "./etcd.ts";
import { failure, type SimulatedResponse } from "./responses.ts";
import type { ApiServer, ServerRequest } from "./server.ts";

export interface AdmissionVerdict {
  readonly allowed: boolean;
  readonly code: number;
  readonly message: string;
  /** Of a denial that clients are to repeat. */
  readonly retryAfterSeconds?: number;
}

export interface AdmissionChain {
  /** Decides one disruption. Resolves within the webhook's timeout, whatever happens to the call. */
  validate(request: Json): Promise<AdmissionVerdict>;
  /** Lets the mutating webhook change an Eviction before it is reviewed. */
  mutateEviction(request: Json): Promise<Json>;
  /** Lets the mutating webhook change a pod that is being created; absent where no such webhook is configured. */
  readonly mutatePod?: ((request: Json) => Promise<Json>) | undefined;
  /** Called when an allowed request has committed, or can no longer commit. */
  settled(request: Json, committed: boolean): void;
}

/** The admission request with these fields. */
export function admissionRequest(server: ApiServer, request: ServerRequest, fields: Json): Json {
  return { uid: server.ports.random.token(), userInfo: { username: request.user, groups: [] }, ...fields };
}

/** Asks the webhooks. Returns the response to the client when they deny, else undefined. */
export async function denialOf(server: ApiServer, admission: Json): Promise<SimulatedResponse | undefined> {
  const verdict = await server.admission?.validate(admission);
  if (verdict === undefined || verdict.allowed) return undefined;
  const { code, message, retryAfterSeconds } = verdict;
  const reason = code === 429 ? "TooManyRequests" : "InternalError";
  if (retryAfterSeconds === undefined) return failure(code, reason, message);
  return failure(code, reason, message, { retryAfterSeconds }, { "retry-after": String(retryAfterSeconds) });
}
