import type { TransportErrorTag } from "../client/transport.ts";

/** Why a list-watch could not go on; each is a metric label. */
export type WatchFailureTag =
  | TransportErrorTag
  /** HTTP 401 or 403. */
  | "unauthorized"
  | "forbidden"
  /** HTTP 404: the API is not served (a CRD that is gone). */
  | "not-served"
  /** HTTP 429 of a server that is busy. One that has no storage, or is not there (5xx), is none, whatever Retry-After it gives. */
  | "throttled"
  /** HTTP 410 or an in-stream ERROR of that code: the version is compacted. */
  | "expired"
  /** An in-stream ERROR event of any other code. */
  | "error-event"
  /** A line, page or event that can't be what an apiserver sends. */
  | "corrupt"
  /** The pages of one list did not share one version. */
  | "inconsistent-pages"
  /** "Too large resource version": the server is behind, or was restored. */
  | "ahead-of-server"
  /** The server ended the stream much earlier than it was asked to. */
  | "ended-early"
  | "server-error"
  | "rejected";

/** Why a complete list was made. */
export type ListReason = "first" | "expired" | "corrupt" | "versionWentBack" | "outage" | "standstill";

/** What a list-watch tells those who observe it (metrics, logs); carries no objects. */
export type WatchEvent =
  /** A complete list was swapped in. */
  | {
      readonly kind: "listed";
      readonly reason: ListReason;
      readonly mode: "pages" | "stream";
      readonly position: string;
      readonly objects: number;
      readonly requests: number;
      readonly durationMs: number;
    }
  /** A stream was opened at `position`; `afterFailures` counts the failures since the last healthy one. */
  | { readonly kind: "watching"; readonly position: string; readonly afterFailures: number }
  /** The server ended a stream as it was asked to; the next one follows at once. */
  | { readonly kind: "ended"; readonly durationMs: number; readonly events: number; readonly bookmarks: number }
  | {
      readonly kind: "failed";
      readonly during: "list" | "watch" | "confirm";
      readonly tag: WatchFailureTag;
      readonly error: Error;
      /** How long until the next try; 0 when a list follows at once. */
      readonly retryMs: number;
    }
  /** The server's versions are older than what was seen: it was restored (design 5.4). A quorum list follows. */
  | { readonly kind: "versionWentBack"; readonly from: string; readonly to: string }
  /** One object could not be parsed; it is kept out of the store (or its last good state is kept). */
  | { readonly kind: "unparsable"; readonly key: string; readonly error: Error }
  /** A subscriber's handler threw: a bug there; the stream goes on. */
  | { readonly kind: "handlerFailed"; readonly error: Error }
  /** `limit=1` LIST reached by the stream; `lagMs` is how long the stream needed after it was sent. */
  | { readonly kind: "confirmed"; readonly sentMs: number; readonly lagMs: number };
