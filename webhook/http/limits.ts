/**
 * How much the server holds, and how large and long a request may be. Other limits stand in the file that applies them.
 */

/**
 * Largest AdmissionReview that is read. kube-apiserver accepts request bodies of 3 MiB and etcd objects of 1.5 MiB. An
 * AdmissionReview carries at most two versions of the object (UPDATE: `object` and `oldObject`), each up to 3 MiB as
 * JSON, and up to 1 MiB of anything else (user info, options).
 */
export const MAX_REQUEST_BYTES = 7 * 1024 * 1024;

/** Requests in flight in the process: what 30 s of a stalled core can pile up. One more gets 503 at once. */
export const MAX_REQUESTS_IN_FLIGHT = 10_000;

/**
 * Bytes of the bodies of all requests in flight: what that many AdmissionReviews of usual pods take. Without this
 * bound, a client could make the process hold 10,000 bodies of the largest size.
 */
export const MAX_BYTES_IN_FLIGHT = 128 * 1024 * 1024;

/** HTTP/1.1 carries one request at a time. The rest is for connections that are half open, or kept for later. */
export const MAX_CONNECTIONS = MAX_REQUESTS_IN_FLIGHT + 2_000;

/** kube-apiserver waits at most this long for a webhook (`timeoutSeconds`). */
export const MAX_TIMEOUT_MS = 30_000;
