import type { Ports } from "../runtime/clock.ts";
import type { ConfirmedSource, SourceHandler } from "./source.ts";
import type { Transport } from "./transport.ts";
import type { WatchEvent } from "./watch-event.ts";

export interface ListWatchOptions<T> {
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
  /** Range of the randomised server timeout in whole seconds; short, because a bookmark comes 2 s before it. Default [5, 7]. */
  readonly serverTimeoutSeconds?: readonly [number, number];
  /** Objects per page of a list. Default 500. */
  readonly pageSize?: number;
  /** Interval of `limit=1` quorum LISTs that confirm the cache; undefined: only on `requestEvidence`. */
  readonly confirmEveryMs?: number;
  /** `keepLast`: an object that became unparsable stays as it was last known. Default `drop`. */
  readonly unparsable?: "drop" | "keepLast";
  readonly onEvent?: (event: WatchEvent) => void;
}

/** One collection of one apiserver, kept current for as long as the process lives (design 8). */
export declare class ListWatch<T> implements ConfirmedSource<T> {
  constructor(options: ListWatchOptions<T>);
  /** Begins; idempotent. Ends only by `stop`. */
  start(): void;
  /** Ends the loop and its requests; resolves when nothing of it runs any more. */
  stop(): Promise<void>;
  /** Resolves at the first complete list, or when `signal` aborts (look at `synced`). */
  whenSynced(signal?: AbortSignal): Promise<void>;
  get(key: string): T | undefined;
  values(): Iterable<T>;
  get size(): number;
  get position(): string | undefined;
  get synced(): boolean;
  get lastContactMs(): number | undefined;
  get confirmedSentMs(): number | undefined;
  /** Complete lists after the first one. */
  get relists(): number;
  requestEvidence(): void;
  subscribe(handler: SourceHandler<T>): () => void;
}
