import { type ApiStatus, parseStatus, retryAfterHeaderMs } from "../client/api-status.ts";
import { TransportError } from "../client/transport.ts";
import type { ListReason, WatchFailureTag } from "./watch-event.ts";

/** What kube-apiserver says while its watch cache has no etcd to follow (KEP-4568). */
const REINITIALIZING = "(re)initializing";

/** Why a list or a stream could not go on; `tag` decides what follows (design 8). */
export class WatchFailure extends Error {
  override readonly name = "WatchFailure";
  readonly tag: WatchFailureTag;
  /** What the server asked for by `Retry-After`. */
  readonly retryAfterMs: number | undefined;
  constructor(tag: WatchFailureTag, message: string, options?: ErrorOptions & { retryAfterMs?: number | undefined }) {
    super(message, options);
    this.tag = tag;
    this.retryAfterMs = options?.retryAfterMs;
  }

  /** Any thrown value as a failure; what is no known kind counts as corruption, because it came from reading data. */
  static from(error: unknown): WatchFailure {
    if (error instanceof WatchFailure) return error;
    if (error instanceof TransportError) return new WatchFailure(error.tag, error.message, { cause: error });
    return new WatchFailure("corrupt", error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** The list that a failure calls for; undefined: resume. */
export function listReasonAfter(failure: WatchFailure): ListReason | undefined {
  if (failure.tag === "expired") return "expired";
  if (failure.tag === "corrupt") return "corrupt";
  if (failure.tag === "ahead-of-server") return "versionWentBack";
  return undefined;
}

/** The failure that an HTTP answer other than 200 means for a list or a watch. */
export function failureOfResponse(
  response: { readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly body: string },
  what: string,
): WatchFailure {
  const status = parseStatus(response.body);
  const retryAfterMs = retryAfterHeaderMs(response.headers) ?? status?.retryAfterMs;
  const text = status?.message ?? response.body.slice(0, 200);
  return new WatchFailure(tagOf(response.status, status, retryAfterMs), `${what}: HTTP ${response.status}: ${text}`, {
    retryAfterMs,
  });
}

/** The failure that an in-stream ERROR event means. */
export function failureOfErrorEvent(object: unknown, what: string): WatchFailure {
  const status = parseStatus(object);
  if (status === undefined) return new WatchFailure("error-event", `${what}: ERROR event without a Status`);
  const tag = tagOf(status.code, status, status.retryAfterMs);
  const kept = tag === "expired" || tag === "ahead-of-server" || tag === "throttled" ? tag : "error-event";
  return new WatchFailure(kept, `${what}: ERROR event ${status.code}: ${status.message}`, {
    retryAfterMs: status.retryAfterMs,
  });
}

function tagOf(code: number, status: ApiStatus | undefined, retryAfterMs: number | undefined): WatchFailureTag {
  // Asked first: it is sent as a 504 with a Retry-After that would only repeat it.
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
      // Asks for patience like a busy one, but has lost its storage, which may be another when it is there again.
      return status?.message.includes(REINITIALIZING) ? "server-error" : "throttled";
    default:
      if (code >= 500) return "server-error";
      return retryAfterMs === undefined ? "rejected" : "throttled";
  }
}
