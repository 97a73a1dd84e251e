import { parseStatus, retryAfterHeaderMs } from "./api-status.ts";
import type { ApiResponse } from "./transport.ts";

/** The outcome of one call to an apiserver, classified; calls never throw for an HTTP status. */
export type ApiResult<T> =
  | { readonly kind: "ok"; readonly object: T }
  /** 409: the version or UID precondition did not hold, or (create) the object exists. The write was not made. */
  | { readonly kind: "conflict"; readonly message: string }
  /** 404 for this very object (a Status with reason NotFound that names one). A path that is not served is `unavailable`. */
  | { readonly kind: "gone" }
  /** Another 4xx: the request will not succeed as it is. The write was not made. */
  | {
      readonly kind: "rejected";
      readonly status: number;
      readonly reason: string | undefined;
      readonly message: string;
    }
  | Unavailable;

/** No answer, or one that says nothing about the request: 401, 429, 5xx, an unreadable body, a path that is not served. */
export interface Unavailable {
  readonly kind: "unavailable";
  readonly error: Error;
  /** Whether a write may have been made all the same (design 5.7: resolve it by reading). */
  readonly sent: boolean;
  readonly status?: number;
  /** From `Retry-After`. */
  readonly retryAfterMs?: number;
}

/** Every result but `ok`. */
export type ApiFailure = Exclude<ApiResult<never>, { readonly kind: "ok" }>;

/** A failure as text for logs. */
export function failureText(failure: ApiFailure): string {
  return failure.kind === "unavailable" ? failure.error.message : JSON.stringify(failure);
}

/** Every kind of failure, as a metric's label has it. */
export const API_FAILURES = ["conflict", "gone", "rejected", "unavailable"] as const satisfies ApiFailure["kind"][];

/** A 2xx answer that could not be read, or a call without a complete answer. */
export function unavailable(error: unknown, sent: boolean, status?: number): Unavailable {
  const cause = error instanceof Error ? error : new Error(String(error));
  return { kind: "unavailable", error: cause, sent, ...(status === undefined ? {} : { status }) };
}

/** What an answer other than 2xx means. `what` is method and path without query, for messages. */
export function failureOf(response: ApiResponse, what: string): ApiFailure {
  const status = parseStatus(response.body);
  const code = response.status;
  const message = `${what}: HTTP ${code}: ${status?.message ?? response.body.slice(0, 200)}`;
  if (code === 409) return { kind: "conflict", message };
  // A missing object is told by a Status that names it; a missing API is answered in plain text, a missing namespace by its kind.
  if (code === 404 && status?.reason === "NotFound" && status.name !== undefined) return { kind: "gone" };
  if (code >= 400 && code < 500 && ![401, 404, 408, 429].includes(code)) {
    return { kind: "rejected", status: code, reason: status?.reason, message };
  }
  const retryAfterMs = retryAfterHeaderMs(response.headers) ?? status?.retryAfterMs;
  return {
    kind: "unavailable",
    error: new Error(message),
    // Only a 5xx may come after the write was made.
    sent: code >= 500,
    status: code,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
}
