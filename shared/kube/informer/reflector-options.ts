import type { Ports } from "../../runtime/clock.ts";
import type { Transport } from "../client/transport.ts";
import type { WatchEvent } from "../stream/watch-event.ts";

export interface ReflectorOptions<T> {
  /** For events and messages, for example `pods of cell-1`. */
  readonly name: string;
  readonly transport: Transport;
  readonly ports: Ports;
  /** Collection path without query, for example `/api/v1/pods`. */
  readonly path: string;
  /** `labelSelector`, `fieldSelector`, `shardSelector`: sent with every list and watch. */
  readonly query?: Readonly<Record<string, string>>;
  /** Checks and trims one raw object. When it throws, the object is reported and kept out. */
  readonly parse: (raw: unknown) => T;
  /** `namespace/name`, or `name`. */
  readonly keyOf: (object: T) => string;
  readonly uidOf: (object: T) => string;
  readonly versionOf: (object: T) => string;
  /** Objects for which it returns false are left out, as if the server had not sent them (shards). */
  readonly owns?: (uid: string) => boolean;
  /** Range of the randomised server timeout in whole seconds; short, because a bookmark comes 2 s before it. Default [5, 7]. */
  readonly serverTimeoutSeconds?: readonly [number, number];
  /** Objects per page of a list. Default 250. */
  readonly pageSize?: number;
  /** Lists arrive as a stream where the server offers it (KEP-3157). Default false. */
  readonly streamLists?: boolean;
  /** Interval of `limit=1` quorum LISTs that confirm the cache; undefined: only on `requestEvidence`. */
  readonly confirmEveryMs?: number;
  /** `keepLast`: an object that became unparsable stays as it was last known. Default `drop`. */
  readonly unparsable?: "drop" | "keepLast";
  /** Asked between chunks; while what it returns is pending the stream is not read, and TCP holds the server back. */
  readonly pause?: () => Promise<void> | undefined;
  readonly onEvent?: (event: WatchEvent) => void;
}
