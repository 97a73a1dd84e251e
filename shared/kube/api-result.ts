/** The outcome of one call to an apiserver, classified; calls never throw for an HTTP status. */
export type ApiResult<T> =
  | { readonly kind: "ok"; readonly object: T }
  /** 409: the version or UID precondition did not hold, or (create) the object exists. The write was not made. */
  | { readonly kind: "conflict"; readonly message: string }
  /** 404 for this very object (a Status with reason NotFound). A path that is not served is `unavailable`. */
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
