/**
 * The bounds of the server's memory, and of the size and duration of a request. Other limits are in the file that
 * applies them.
 */

/**
 * Largest AdmissionReview that is read. kube-apiserver accepts request bodies of 3 MiB and etcd objects of 1.5 MiB. An
 * AdmissionReview carries at most two versions of the object (UPDATE: `object` and `oldObject`), each up to 3 MiB as
 * JSON, and up to 1 MiB of anything else (user info, options).
 */
export const MAX_REQUEST_BYTES = 7 * 1024 * 1024;

/**
 * Largest AdmissionReview of an operation other than UPDATE: one object of 3 MiB, and 1.5 MiB of anything else. Only an
 * UPDATE carries two versions of the object. kube-apiserver writes the operation before every field that can be large.
 */
export const MAX_SINGLE_OBJECT_BYTES = 4.5 * 1024 * 1024;
export const OPERATION_WITHIN_BYTES = 4_096;

/** A larger body waits until all smaller ones that have arrived are answered, and its values are counted. */
export const LARGE_BODY_BYTES = 128 * 1024;

/**
 * Most JSON values in a body, counted by the characters that begin one. JSON.parse takes some 30 ms for this many
 * distinct keys, and less for anything else, even strings as long as a body. A pod of 1 MiB has fewer values.
 */
export const MAX_JSON_VALUES = 100_000;

/** Requests in flight in the process: what piles up while a core stalls for 30 s. One more gets 503 at once. */
export const MAX_REQUESTS_IN_FLIGHT = 10_000;

/**
 * Bytes of the bodies of all requests in flight: what {@link MAX_REQUESTS_IN_FLIGHT} AdmissionReviews of usual pods
 * take. Without this bound, a client could make the process hold 10,000 bodies of the largest size.
 */
export const MAX_BYTES_IN_FLIGHT = 128 * 1024 * 1024;

/** So many bytes may be any JSON: `[[` takes thirty times its bytes once it is parsed. */
export const UNCOUNTED_BYTES_IN_FLIGHT = 4 * 1024 * 1024;

/**
 * JSON values, counted as for {@link MAX_JSON_VALUES}, of all other bodies in flight: some 7,000 usual pods have as
 * many. A value takes up to 70 bytes while its request waits for a core or a cell, and the heap as shipped has 768 MB.
 */
export const MAX_VALUES_IN_FLIGHT = 5_000_000;

/** HTTP/1.1 carries one request at a time. The other 2,000 are half open, or idle in a client's pool. */
export const MAX_CONNECTIONS = MAX_REQUESTS_IN_FLIGHT + 2_000;

/** kube-apiserver waits at most this long for a webhook (`timeoutSeconds`). */
export const MAX_TIMEOUT_MS = 30_000;
