/** What a reflector needs, and what it reports. */
import type { Ports } from "../../runtime/clock.ts";
import { isComparableVersion } from "../../schema/resource-version.ts";
import type { Transport } from "../client/transport.ts";
import type { WatchFailure, WatchFailureTag } from "../stream/watch-failure.ts";

export interface ReflectorOptions<T> {
  /** For events and messages, for example `pods of cell-1`. */
  readonly name: string;
  readonly transport: Transport;
  readonly ports: Ports;
  /** Path of the collection without query, for example `/api/v1/pods`. */
  readonly path: string;
  /** Of the objects, where it is known: an answer of another kind, which a proxy has mixed up, is corrupt. */
  readonly kind?: string;
  /** `labelSelector`, `fieldSelector`, `shardSelector`: sent with every list and watch. */
  readonly query?: Readonly<Record<string, string>>;
  /** Checks and trims one raw object. An object for which `parse` throws is reported and dropped. */
  readonly parse: (raw: unknown) => T;
  /** Default: `namespace/name`, or `name`; always the key of an object that can't be parsed. */
  readonly keyOf?: (object: T) => string;
  readonly uidOf: (object: T) => string;
  readonly versionOf: (object: T) => string;
  /** Objects for which `owns` returns false are dropped, as if the server had not sent them (shards). */
  readonly owns?: (uid: string) => boolean;
  /**
   * Range of the random server timeout in seconds. Short, because a bookmark comes 2 s before the timeout. Default [5,
   * 7].
   */
  readonly serverTimeoutSeconds?: readonly [number, number];
  /** Objects of a page of a list. Default 250. */
  readonly pageSize?: number;
  /** A list with more fails, and what is known stays. For a server that is not trusted. */
  readonly maxObjects?: number;
  /** Interval of quorum checks; undefined for checks only on `requestEvidence`. */
  readonly confirmEveryMs?: number;
  /**
   * With `keepLast`, the last parsable version of an object stays. With `listAgain`, too, and a list follows each
   * stream: a CRD that is mended makes objects parsable that have not changed. Default `drop`.
   */
  readonly unparsable?: "drop" | "keepLast" | "listAgain";
  /** Returns the replacement of an object that `parse` rejects; undefined to follow `unparsable`. Must not throw. */
  readonly stub?: (raw: unknown) => T | undefined;
  /** Like `stub`, for an object without a parsable version before. Its version has to be older than any. */
  readonly placeholder?: (raw: unknown) => T | undefined;
  readonly onEvent?: (event: ReflectorEvent) => void;
  /** Called for each event and bookmark, with the milliseconds since the previous one, or since the list. */
  readonly onHeard?: (gapMs: number) => void;
}

/** kube-apiserver sends the last bookmarks of a watch within this time (docs/decisions/0002-short-watches.md). */
const LAST_BOOKMARKS_MS = 2_000;
/** A LIST makes the server's cache catch up with etcd within 100 ms. The bookmark then carries its version. */
const LIST_BEFORE_BOOKMARK_MS = 300;

/** Draws the server timeout of a watch. A LIST that the last bookmark shall show is sent `listAfterMs` into it. */
export function drawTimeout({
  ports,
  serverTimeoutSeconds: [least, most] = [5, 7],
}: Pick<ReflectorOptions<never>, "ports" | "serverTimeoutSeconds">) {
  const timeoutSeconds = least + Math.floor(ports.random.fraction() * (most - least + 1));
  return { timeoutSeconds, listAfterMs: timeoutSeconds * 1000 - LAST_BOOKMARKS_MS - LIST_BEFORE_BOOKMARK_MS };
}

/** Why a complete list was made. */
export const LIST_REASONS = [
  "first",
  "expired",
  "corrupt",
  "versionWentBack",
  "outage",
  "standstill",
  "unconfirmed",
  "missedEvent",
] as const;
export type ListReason = (typeof LIST_REASONS)[number];

/** Returns the reason for a list after a failure; undefined when the stream resumes. */
export function listReasonAfter({ tag }: WatchFailure): ListReason | undefined {
  if (tag === "expired" || tag === "corrupt") return tag;
  if (tag === "missed-event") return "missedEvent";
  return tag === "ahead-of-server" ? "versionWentBack" : undefined;
}

/** Returns the version that a list has to reach; undefined where it has to show the present state (a quorum read). */
export function listFloor(reason: ListReason, newest: string | undefined): string | undefined {
  const isQuorum = reason === "versionWentBack" || reason === "unconfirmed" || reason === "missedEvent";
  return isQuorum || !isComparableVersion(newest) ? undefined : newest;
}

/** For metrics and logs; contains no objects. */
export type ReflectorEvent =
  /** A complete list replaced the objects. */
  | {
      readonly kind: "listed";
      readonly reason: ListReason;
      readonly position: string;
      readonly objects: number;
      readonly requests: number;
      readonly durationMs: number;
    }
  /** A stream was opened at `position`; `afterFailures` counts the failures since the last healthy stream. */
  | { readonly kind: "watching"; readonly position: string; readonly afterFailures: number }
  /** The server ended a stream on time. The next stream follows at once. */
  | { readonly kind: "ended"; readonly durationMs: number; readonly events: number; readonly bookmarks: number }
  | {
      readonly kind: "failed";
      readonly during: "list" | "watch" | "confirm";
      readonly tag: WatchFailureTag;
      readonly error: Error;
      /** Milliseconds until the next try; 0 when a list follows at once. */
      readonly retryMs: number;
    }
  /** The server's versions are older than versions seen before: it was restored. A quorum list follows. */
  | { readonly kind: "versionWentBack"; readonly from: string; readonly to: string }
  /** One object could not be parsed. It is dropped, or its last parsable version stays. */
  | { readonly kind: "unparsable"; readonly key: string; readonly error: Error }
  /** A subscriber's handler threw, which is a bug of the subscriber. The stream continues. */
  | { readonly kind: "handlerFailed"; readonly error: Error }
  /** The stream has reached a quorum LIST, `lagMs` after the LIST was sent. */
  | { readonly kind: "confirmed"; readonly sentMs: number; readonly lagMs: number };
