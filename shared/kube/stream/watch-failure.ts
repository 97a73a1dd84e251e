import type { Randomness } from "../../runtime/clock.ts";
import { messageOf } from "../../runtime/errors.ts";
import { type ApiStatus, ofOutage, parseStatus, readFailure } from "../client/api-result.ts";
import { type ApiResponse, TRANSPORT_ERROR_TAGS, TransportError } from "../client/transport.ts";

/** Why a list or watch failed; each is a metric label. */
export const WATCH_FAILURE_TAGS = [
  ...TRANSPORT_ERROR_TAGS,
  // HTTP 401 and 403.
  "unauthorized",
  "forbidden",
  // HTTP 404: the API is not served (a CRD was deleted).
  "not-served",
  // HTTP 429 of a busy server. A server error (5xx) does not count as throttling, even with Retry-After.
  "throttled",
  // HTTP 410, or an ERROR event of that code: the version is compacted.
  "expired",
  // An ERROR event of any other code.
  "error-event",
  // A line, page or event that no apiserver sends.
  "corrupt",
  // The pages of one list had different versions.
  "inconsistent-pages",
  // "Too large resource version": the server is behind, or was restored.
  "ahead-of-server",
  // The server counted other objects than the stream has shown.
  "missed-event",
  // The server ended the stream much earlier than it was asked to.
  "ended-early",
  "server-error",
  "rejected",
] as const;
export type WatchFailureTag = (typeof WATCH_FAILURE_TAGS)[number];

/**
 * What kube-apiserver says with a 429 while its watch cache has no etcd to follow (KEP-4568), and while it shuts down
 * (`--shutdown-send-retry-after`). It asks for patience like a busy server, but may come back with other data.
 */
const REINITIALIZING = "(re)initializing";
const SHUTS_DOWN = "apiserver is shutting down";

/** A list or watch failed; `tag` decides what follows. */
export class WatchFailure extends Error {
  override readonly name = "WatchFailure";
  readonly tag: WatchFailureTag;
  /** From `Retry-After`. */
  readonly retryAfterMs: number | undefined;
  constructor(tag: WatchFailureTag, message: string, options?: ErrorOptions & { retryAfterMs?: number | undefined }) {
    super(message, options);
    this.tag = tag;
    this.retryAfterMs = options?.retryAfterMs;
  }

  /** Turns any thrown value into a failure. Unknown errors count as corruption, because they come from reading data. */
  static from(error: unknown): WatchFailure {
    if (error instanceof WatchFailure) return error;
    if (error instanceof TransportError) return new WatchFailure(error.tag, error.message, { cause: error });
    return new WatchFailure("corrupt", messageOf(error), { cause: error });
  }
}

/** `Retry-After` grows by a random share up to this, so that clients throttled together return apart. */
const RETRY_AFTER_SPREAD = 0.25;

/** Returns how long to wait after `failure`: the delay of the backoff, or longer where the server asked for it. */
export function retryDelayMs(backoffMs: number, failure: WatchFailure, random: Pick<Randomness, "fraction">): number {
  if (failure.retryAfterMs === undefined) return backoffMs;
  return Math.max(backoffMs, failure.retryAfterMs * (1 + RETRY_AFTER_SPREAD * random.fraction()));
}

/** How much of `Retry-After` is followed: all of it only for a busy server. */
function followed(tag: WatchFailureTag, message: string, retryAfterMs = 0): number | undefined {
  if (tag === "throttled") return retryAfterMs;
  // Another apiserver may answer at once, as for a client that connects again.
  return message.includes(SHUTS_DOWN) ? undefined : ofOutage(retryAfterMs);
}

/** Classifies a response to a list or watch other than 200. */
export function failureOfResponse(
  response: Pick<ApiResponse, "status" | "headers" | "body">,
  what: string,
): WatchFailure {
  const { code, status, message, retryAfterMs } = readFailure(response, what);
  const tag = tagOf(code, status, message, retryAfterMs);
  return new WatchFailure(tag, message, { retryAfterMs: followed(tag, message, retryAfterMs) });
}

/** Classifies an ERROR event of a stream. */
export function failureOfErrorEvent(object: unknown, what: string): WatchFailure {
  const status = parseStatus(object);
  if (status === undefined) return new WatchFailure("error-event", `${what}: ERROR event without a Status`);
  const { code, message, retryAfterMs } = status;
  const tag = tagOf(code, status, message, retryAfterMs);
  const kept = tag === "expired" || tag === "ahead-of-server" || tag === "throttled" ? tag : "error-event";
  return new WatchFailure(kept, `${what}: ERROR event ${code}: ${message}`, {
    retryAfterMs: followed(tag, message, retryAfterMs),
  });
}

function tagOf(
  code: number,
  status: ApiStatus | undefined,
  message: string,
  retryAfterMs: number | undefined,
): WatchFailureTag {
  // Before the code: it comes as a 504 with a Retry-After, and the same request would fail again.
  if (status?.versionTooLarge) return "ahead-of-server";
  switch (code) {
    case 401:
      return "unauthorized";
    case 403:
      return "forbidden";
    case 404:
      return "not-served";
    case 410:
      return "expired";
    case 429:
      return message.includes(REINITIALIZING) || message.includes(SHUTS_DOWN) ? "server-error" : "throttled";
    default:
      if (code >= 500) return "server-error";
      return retryAfterMs === undefined ? "rejected" : "throttled";
  }
}
