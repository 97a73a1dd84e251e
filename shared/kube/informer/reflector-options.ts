/** What a reflector needs, and what it reports. */
import type { Ports } from "../../runtime/clock.ts";
import type { Transport } from "../client/transport.ts";
import type { WatchFailureTag } from "../stream/watch-failure.ts";

export interface ReflectorOptions<T> {
  /** For events and messages, for example `pods of cell-1`. */
  readonly name: string;
  readonly transport: Transport;
  readonly ports: Ports;
  /** Path of the collection without query, for example `/api/v1/pods`. */
  readonly path: string;
  /** `labelSelector`, `fieldSelector`, `shardSelector`: sent with every list and watch. */
  readonly query?: Readonly<Record<string, string>>;
  /** Checks and trims one raw object. An object for which it throws is reported and left out. */
  readonly parse: (raw: unknown) => T;
  /** `namespace/name`, or `name`. */
  readonly keyOf: (object: T) => string;
  readonly uidOf: (object: T) => string;
  readonly versionOf: (object: T) => string;
  /** Objects for which it returns false are left out, as if the server had not sent them (shards). */
  readonly owns?: (uid: string) => boolean;
  /** Range of the random server timeout in seconds. Short, because a bookmark comes 2 s before it. Default [5, 7]. */
  readonly serverTimeoutSeconds?: readonly [number, number];
  /** Objects of a page of a list. Default 250. */
  readonly pageSize?: number;
  /** Interval of quorum checks; undefined: only on `requestEvidence`. */
  readonly confirmEveryMs?: number;
  /** `keepLast`: an object that becomes unparsable stays as it was last known. Default `drop`. */
  readonly unparsable?: "drop" | "keepLast";
  /** What an object that `parse` rejects is instead; undefined: as `unparsable` says. Must not throw. */
  readonly stub?: (raw: unknown) => T | undefined;
  readonly onEvent?: (event: ReflectorEvent) => void;
  /** Called with each event and bookmark: how long after what the stream brought before, or after the list. */
  readonly onHeard?: (gapMs: number) => void;
}

/** Why a complete list was made. */
export const LIST_REASONS = ["first", "expired", "corrupt", "versionWentBack", "outage", "standstill"] as const;
export type ListReason = (typeof LIST_REASONS)[number];

/** Carries no objects: it is for metrics and logs. */
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
      /** How long until the next try; 0 when a list follows at once. */
      readonly retryMs: number;
    }
  /** The server's versions are older than versions seen before: it was restored. A quorum list follows. */
  | { readonly kind: "versionWentBack"; readonly from: string; readonly to: string }
  /** One object could not be parsed. It is left out, or stays as it was last known. */
  | { readonly kind: "unparsable"; readonly key: string; readonly error: Error }
  /** A subscriber's handler threw: a bug there. The stream goes on. */
  | { readonly kind: "handlerFailed"; readonly error: Error }
  /** The stream has reached a quorum LIST, `lagMs` after that was sent. */
  | { readonly kind: "confirmed"; readonly sentMs: number; readonly lagMs: number };
