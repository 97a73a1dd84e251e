/**
 * Callers whose denied deletion nobody repeats (docs/design.md#single-attempts). They get `retryAfterSeconds` with
 * every denial: client-go obeys it ten times for each call, so that the deletion comes back without its caller.
 */
import type { AdmissionKind, AdmissionResponse } from "./admission-response.ts";

/** The known ones, by user name. All other controllers of Kubernetes repeat a denied deletion by themselves. */
const KNOWN_USERS: readonly string[] = [
  // taint-eviction-controller has no account of its own: it acts as the controller that it was part of until
  // Kubernetes 1.29. It tries each pod five times, 10 ms apart, and forgets it.
  "system:serviceaccount:kube-system:node-controller",
];

/** Ten repeats of each of five tries: the taint eviction controller comes back for 25 minutes. */
export const SINGLE_ATTEMPT_RETRY_MS = 30_000;

export interface SingleAttempts {
  readonly users: ReadonlySet<string>;
  /** 0: no caller is told to come back. */
  readonly retryAfterSeconds: number;
}

/** `users` are known beside the built-in ones. A fraction of a second, which Retry-After can't say, is rounded up. */
export function singleAttempts(users: readonly string[], retryAfterMs: number): SingleAttempts {
  return { users: new Set([...KNOWN_USERS, ...users]), retryAfterSeconds: Math.ceil(retryAfterMs / 1000) };
}

/** The response with `retryAfterSeconds`, if it denies a deletion by such a caller because of quota. */
export function withRetryAfter(
  response: AdmissionResponse,
  { kind, username }: { readonly kind: AdmissionKind; readonly username: string },
  { users, retryAfterSeconds }: SingleAttempts,
): AdmissionResponse {
  const { denial, outcome } = response;
  if (denial === undefined || retryAfterSeconds === 0 || !users.has(username)) return response;
  if (outcome !== "denied" && outcome !== "busy") return response;
  if (kind !== "delete" && kind !== "evict") return response;
  return { ...response, denial: { ...denial, details: { ...denial.details, retryAfterSeconds } } };
}
