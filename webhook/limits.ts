/** Every bound of the webhook, by name and with its reason (design 5.8, 11). */

/**
 * Largest AdmissionReview that is read. kube-apiserver accepts request bodies of 3 MiB and etcd objects of 1.5 MiB; a review
 * carries at most two versions of the object (UPDATE: `object` and `oldObject`), each up to 3 MiB as JSON, and up to 1 MiB for
 * everything else (user info, options). Whatever is larger was not sent by an apiserver.
 */
export const MAX_REVIEW_BYTES = 7 * 1024 * 1024;

/** kube-apiserver waits at most 30 s for a webhook and 10 s by default (`timeoutSeconds`). */
export const DEFAULT_TIMEOUT_MS = 10_000;
export const MAX_TIMEOUT_MS = 30_000;

/** What is kept of the call's timeout for the way back: a tenth, at least 20 ms and at most half a second. */
export const MARGIN_FRACTION = 0.1;
export const MIN_MARGIN_MS = 20;
export const MAX_MARGIN_MS = 500;

/** Reviews in the whole process at once: what 30 s of a stalled core can pile up before the answer is "busy" at once. */
export const MAX_REVIEWS_IN_FLIGHT = 10_000;

/**
 * Bytes of the bodies of all those, from the first that arrives to the answer: what that many reviews of usual pods take. Anybody who
 * reaches the port could otherwise make the process hold 10,000 times the largest one.
 */
export const MAX_BODY_BYTES = 128 * 1024 * 1024;
/** Counted for each chunk beside its own bytes: a chunk of a single byte takes half a kilobyte of memory. */
export const CHUNK_BYTES = 512;

/** HTTP/1.1 carries one review at a time; the rest is for those that are half open, or kept for later. */
export const MAX_CONNECTIONS = MAX_REVIEWS_IN_FLIGHT + 2_000;

/** Requests that wait for one protector; beyond it the answer is "busy" at once. */
export const MAX_WAITING_PER_PROTECTOR = 4_000;

/** Requests decided by one write: bounds how much is lost when it conflicts, and the time that the event loop is held. */
export const MAX_BATCH = 1_000;

/** No call to a core cluster takes longer, whatever the review's deadline (design 5.8). */
export const MAX_CORE_CALL_MS = 3_000;

/** A live read of a pod during a round holds up a whole batch: it gets this long, then its item alone fails. */
export const MAX_REREAD_MS = 250;
/** For pinning a pod that is not available, which goes without a pin as well: then there is time left to look whether it still is. */
export const MAX_PIN_MS = 3_000;

/** Conflicts in a row after which a round waits, and for how long (design 5.8). */
export const CONFLICTS_BEFORE_WAIT = 3;
export const CONFLICT_WAIT_MIN_MS = 5;
export const CONFLICT_WAIT_MAX_MS = 20;

/** A core that did not answer for this long may have been restored meanwhile; a shorter break is a connection's (design 5.4). */
export const OUTAGE_MIN_MS = 1_000;
/** After an outage no reservation is made for this long: longer than a list-watch in backoff takes to notice that history is lost. */
export const RECOVERY_MS = 12_000;

/**
 * Pauses between the calls for one protector while its core does not answer: a blip is bridged in milliseconds, an outage sees at most ten
 * calls in its first ten seconds, and a review of ten seconds still meets a core that comes back.
 */
export const CORE_RETRY = { initialMs: 20, maxMs: 2_500, factor: 3, jitter: 0.25 };

/** A core's cache must have been confirmed current within this time, or the answer is an HTTP error (design 5.4). */
export const MAX_CACHE_AGE_MS = 15_000;
export const CONFIRM_EVERY_MS = 3_000;

/** Unsettled reservations remembered for lost history (design 5.4), in the whole process; the oldest are forgotten first. */
export const MAX_REMEMBERED_RESERVATIONS = 50_000;

/**
 * Go's default transport, which apiservers use, closes idle connections after 90 s; the server must not do it first, not even with a
 * connection on which nothing was sent yet. So Node's own limits for headers and requests are as long; slow-callers.ts is stricter.
 */
const UNUSED_MS = 120_000;
export const NODE_LIMITS = {
  keepAliveTimeout: UNUSED_MS,
  headersTimeout: UNUSED_MS,
  requestTimeout: UNUSED_MS,
  connectionsCheckingInterval: 30_000,
};
/** How often connections are looked at, to find those on which a request is half sent. */
export const CHECK_CALLERS_EVERY_MS = 2_000;
/** Looks that headers may take: 10 s. */
export const HEADERS_TICKS = 5;
/** Looks that a body may take, and an answer until it is read: what takes longer than the longest review can wait is not worth reading. */
export const BODY_TICKS = Math.ceil((MAX_TIMEOUT_MS + 5_000) / CHECK_CALLERS_EVERY_MS);
