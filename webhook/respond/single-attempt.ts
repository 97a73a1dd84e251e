/**
 * Callers that never repeat a denied deletion (docs/design.md#single-attempts). They get `retryAfterSeconds` with every
 * denial: client-go then repeats each call up to ten times by itself.
 */
import type { AdmissionKind, AdmissionResponse, DenyStatus } from "./admission-response.ts";

/**
 * taint-eviction-controller has no account of its own: it acts as the controller that it was part of until Kubernetes
 * 1.29. It tries each pod five times, 10 ms apart, and forgets it. The cloud-node-lifecycle-controller of a cloud
 * controller manager has the same account.
 */
const NODE_CONTROLLER = "system:serviceaccount:kube-system:node-controller";

/**
 * Known callers of this kind, by user name. All other controllers of Kubernetes repeat a denied deletion by themselves.
 */
const KNOWN_USERS: readonly string[] = [NODE_CONTROLLER];

/**
 * PodGC deletes one orphan after the other, and then sleeps for 20 s. With `retryAfterSeconds`, client-go would block
 * it for ten seconds at each pod of a cell that is on hold or not counted.
 */
const POD_GC = "system:serviceaccount:kube-system:pod-garbage-collector";

/** Ten repeats of each of five tries: the taint eviction controller comes back for 25 minutes. */
export const SINGLE_ATTEMPT_RETRY_MS = 30_000;

export interface SingleAttempts {
  readonly users: ReadonlySet<string>;
  /** 0 where no caller is told to repeat. */
  readonly retryAfterSeconds: number;
}

/**
 * `users` are added to the built-in ones. Fractions of a second are rounded up, because Retry-After has whole seconds.
 */
export function singleAttempts(users: readonly string[], retryAfterMs: number): SingleAttempts {
  return { users: new Set([...KNOWN_USERS, ...users]), retryAfterSeconds: Math.ceil(retryAfterMs / 1000) };
}

/** Adds `retryAfterSeconds` to a denied deletion or eviction of such a caller; removes it where it would block. */
export function withRetryAfter(
  response: AdmissionResponse,
  { kind, username }: { readonly kind: AdmissionKind; readonly username: string },
  { users, retryAfterSeconds }: SingleAttempts,
): AdmissionResponse {
  const { denial, outcome } = response;
  if (denial === undefined || (outcome !== "denied" && outcome !== "busy")) return response;
  if (username === POD_GC) return told(response, denial, 0);
  // It deletes one node after the other, every 5 s, and would be blocked at each like PodGC.
  if (username === NODE_CONTROLLER && kind === "node") return told(response, denial, 0);
  if (retryAfterSeconds === 0 || !users.has(username)) return response;
  return kind === "delete" || kind === "evict" ? told(response, denial, retryAfterSeconds) : response;
}

/** The response with this `retryAfterSeconds` in its denial; 0 removes it. */
function told(response: AdmissionResponse, denial: DenyStatus, retryAfterSeconds: number): AdmissionResponse {
  const { retryAfterSeconds: _, ...rest } = { ...denial.details };
  const details = retryAfterSeconds === 0 ? rest : { ...rest, retryAfterSeconds };
  return { ...response, denial: { ...denial, details } };
}
