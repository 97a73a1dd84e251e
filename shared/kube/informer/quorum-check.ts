import { Backoff } from "../../runtime/backoff.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import { hasReached, isComparableVersion, isOlderVersion } from "../../schema/resource-version.ts";
import { withQuery } from "../client/api-path.ts";
import type { Lister } from "../stream/list.ts";
import { parseListPage, type RawPage } from "../stream/raw-object.ts";
import { failureOfResponse, retryDelayMs, WatchFailure } from "../stream/watch-failure.ts";

const LIST_TIMEOUT_MS = 10_000;
/** Spread of the interval, so that the replicas of a component do not send their LISTs together. */
const INTERVAL_JITTER = 0.2;
/** LISTs on demand are at least this far apart: one LIST serves all requests from before it was sent. */
const MIN_GAP_MS = 200;
/** Two streams take at most 14 s, and a webhook decides by a cache that was confirmed in the last 15 s. */
const OVERDUE_AFTER_MS = 7_000;
/** A stream that ends on time has reached every LIST of this long before: its last bookmarks carry their versions. */
const LAGS_AFTER_MS = 3_000;

/** A stream shows no sign of an event that the server did not send. So the objects are counted at least this often. */
const COUNT_EVERY_MS = 600_000;
/** A server that counts badly costs at most one complete list in this time. */
const MISCOUNT_PAUSE_MS = 10_000;

/** A quorum LIST: the collection at `version` contains everything committed before `sentMs` (monotonic). */
interface QuorumRead {
  readonly sentMs: number;
  readonly version: string;
}

/** How many objects the collection had at `version`, as the server says. */
interface Count {
  readonly version: string;
  readonly total: number;
}

interface QuorumCheckOptions extends Pick<Lister<unknown>, "name" | "transport" | "collection"> {
  readonly ports: Ports;
  /** Undefined for checks on demand, and those that count. */
  readonly intervalMs: number | undefined;
  /** The present position of the stream, and the number of objects there. */
  readonly store: { readonly position: string | undefined; readonly size: number };
  /** True where objects that can't be parsed may be missing in the store. */
  readonly leavesOut: () => boolean;
  /** The store has other objects than a quorum LIST counted at the same version: the server did not send an event. */
  readonly miscounted: (message: string) => void;
  /** The stream has reached a LIST sent at `sentMs`. */
  readonly confirmed: (sentMs: number) => void;
  /**
   * A quorum LIST is older than the position, or another quorum LIST, at the time of its request: the server was
   * restored (docs/design.md#lost-history).
   */
  readonly wentBack: (from: string, to: string) => void;
  readonly failed: (failure: WatchFailure, retryMs: number) => void;
}

/**
 * Proves that a stream is current (docs/design.md#informers). A LIST with `limit=1` and no resourceVersion is a quorum
 * read. When the stream has reached the version of the LIST, it has delivered everything committed before the LIST was
 * sent. An event proves nothing, because an apiserver that lags also sends events.
 */
export class QuorumCheck {
  readonly #options: QuorumCheckOptions;
  readonly #backoff: Backoff;
  readonly #path: string;
  /** LISTs that the stream has not reached: the oldest, so that a lagging stream confirms something, and the newest. */
  #pending: [] | [QuorumRead] | [QuorumRead, QuorumRead] = [];
  #confirmedSentMs: number | undefined;
  #wantedSinceMs: number | undefined;
  #lastSentMs = Number.NEGATIVE_INFINITY;
  readonly #canCount: boolean;
  /** The newest LIST whose objects are to be compared with the cache when the stream is at its version. */
  #counted: Count | undefined;
  /** Of the last complete list. */
  #listedMs = Number.NEGATIVE_INFINITY;
  #miscountedMs = Number.NEGATIVE_INFINITY;
  /** Ends the wait for the interval. */
  #wake: (() => void) | undefined;
  /** Incremented by `forget`, after which earlier LISTs prove nothing. */
  #generation = 0;
  /** Streams in a row that ended on time without having confirmed the cache. */
  #unconfirmed = 0;

  constructor(options: QuorumCheckOptions) {
    this.#options = options;
    const { path, query } = options.collection;
    // Permissions may depend on the field selector. With a label selector, the server would search for a first match.
    this.#path = withQuery(path, { fieldSelector: query.fieldSelector, limit: 1 });
    // A server does not count the objects of a list with a selector.
    this.#canCount = Object.keys(query).length === 0;
    this.#backoff = new Backoff({ initialMs: 250, maxMs: 5_000, factor: 2, jitter: 0.5 }, options.ports.random);
  }

  get confirmedSentMs(): number | undefined {
    return this.#confirmedSentMs;
  }

  /** True where a stream that ends on time should have reached an earlier LIST. */
  get isBehind(): boolean {
    return this.#options.ports.clock.monotonicMs() - (this.#pending[0]?.sentMs ?? Infinity) >= LAGS_AFTER_MS;
  }

  /** A complete list was made. */
  listed(): void {
    this.#unconfirmed = 0;
    this.#counted = undefined;
    this.#listedMs = this.#options.ports.clock.monotonicMs();
  }

  /** A stream that began at `startedMs` has ended on time. True where a complete list has to confirm the cache. */
  streamEnded(startedMs: number): boolean {
    const nowMs = this.#options.ports.clock.monotonicMs();
    if (this.#canCount && nowMs - Math.max(this.#lastSentMs, this.#listedMs) >= COUNT_EVERY_MS) this.request();
    const confirmedMs = this.#confirmedSentMs ?? 0;
    this.#unconfirmed = confirmedMs > startedMs ? 0 : this.#unconfirmed + 1;
    const isOverdue = nowMs - confirmedMs >= OVERDUE_AFTER_MS;
    return this.#options.intervalMs !== undefined && this.#unconfirmed > 1 && isOverdue;
  }

  /** The newest LIST, where the stream has not reached it. */
  get ahead(): QuorumRead | undefined {
    return this.#pending.at(-1);
  }

  /** Runs until `signal` aborts. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#waitForNeed(signal);
      if (signal.aborted) return;
      await this.#ask(signal);
    }
  }

  /** Requests a LIST that is sent after this call. */
  request(): void {
    this.#wantedSinceMs = this.#options.ports.clock.monotonicMs();
    this.#wake?.();
  }

  /** Takes a quorum LIST as evidence, such as a complete list. */
  accept(evidence: QuorumRead): void {
    this.#remember(evidence);
    this.advanced();
  }

  /**
   * An event or bookmark of `version` has arrived, and is not applied yet: the cache is still that of every earlier
   * version.
   */
  passing(version: string): void {
    if (this.#counted !== undefined && isOlderVersion(this.#counted.version, version)) this.#compare(this.#counted);
  }

  /** The position advanced, which confirms the LISTs that it has reached. */
  advanced(): void {
    const { position } = this.#options.store;
    if (this.#counted !== undefined && this.#counted.version === position) this.#compare(this.#counted);
    let sentMs: number | undefined;
    for (let first = this.#pending[0]; first !== undefined && hasReached(position, first.version); ) {
      sentMs = first.sentMs;
      this.#pending = this.#pending[1] === undefined ? [] : [this.#pending[1]];
      first = this.#pending[0];
    }
    if (sentMs !== undefined) this.#confirm(sentMs);
  }

  #compare({ version, total }: Count): void {
    this.#counted = undefined;
    const { ports, store, leavesOut, miscounted } = this.#options;
    if (store.size === total || (store.size < total && leavesOut())) return;
    this.#miscountedMs = ports.clock.monotonicMs();
    this.forget();
    miscounted(`the server has ${total} objects at version ${version}, and its stream has shown ${store.size}`);
  }

  #confirm(sentMs: number): void {
    if (sentMs <= (this.#confirmedSentMs ?? Number.NEGATIVE_INFINITY)) return;
    this.#confirmedSentMs = sentMs;
    this.#options.confirmed(sentMs);
  }

  /** Forgets all LISTs: the server was restored, and they belong to its lost history. */
  forget(): void {
    this.#generation++;
    this.#pending = [];
    this.#confirmedSentMs = undefined;
    this.#counted = undefined;
  }

  #remember(evidence: QuorumRead): void {
    // The stream would never reach this version, nor confirm the LISTs after it.
    if (!isComparableVersion(evidence.version)) return;
    const oldest = this.#pending[0];
    this.#pending = oldest === undefined ? [evidence] : [oldest, evidence];
  }

  /** Resolves when a LIST is due: at the interval, or at once when one is requested. */
  async #waitForNeed(signal: AbortSignal): Promise<void> {
    const { ports } = this.#options;
    if (this.#wantedSinceMs === undefined) await this.#waitForInterval(signal);
    const gapMs = this.#lastSentMs + MIN_GAP_MS - ports.clock.monotonicMs();
    if (gapMs > 0) await sleep(ports, gapMs, signal);
  }

  #waitForInterval(signal: AbortSignal): Promise<void> {
    const { ports, intervalMs } = this.#options;
    const spread = 1 - INTERVAL_JITTER + 2 * INTERVAL_JITTER * ports.random.fraction();
    return new Promise((resolve) => {
      const end = (): void => {
        timer?.cancel();
        signal.removeEventListener("abort", end);
        this.#wake = undefined;
        resolve();
      };
      const timer = intervalMs === undefined ? undefined : ports.timers.after(intervalMs * spread, end);
      signal.addEventListener("abort", end, { once: true });
      this.#wake = end;
    });
  }

  async #ask(signal: AbortSignal): Promise<void> {
    const { ports, failed } = this.#options;
    const generation = this.#generation;
    const shown = [this.#options.store.position, ...this.#pending.map((read) => read.version)];
    const sentMs = ports.clock.monotonicMs();
    this.#lastSentMs = sentMs;
    try {
      const { resourceVersion: version, total } = await this.#list(signal);
      if (generation !== this.#generation) return;
      this.#backoff.reset();
      if (this.#wantedSinceMs !== undefined && this.#wantedSinceMs <= sentMs) this.#wantedSinceMs = undefined;
      const newer = shown.find((one) => isOlderVersion(version, one));
      if (newer !== undefined) this.#options.wentBack(newer, version);
      else {
        this.#count(version, total);
        this.accept({ sentMs, version });
      }
    } catch (error) {
      if (signal.aborted) return;
      const failure = WatchFailure.from(error);
      const retryMs = retryDelayMs(this.#backoff.nextMs(), failure, ports.random);
      failed(failure, retryMs);
      await sleep(ports, retryMs, signal);
    }
  }

  #count(version: string, total: number | undefined): void {
    const { ports, store } = this.#options;
    // The cache is already newer, so its size can't be compared with this LIST.
    if (!this.#canCount || total === undefined || !hasReached(version, store.position ?? "")) return;
    if (ports.clock.monotonicMs() - this.#miscountedMs >= MISCOUNT_PAUSE_MS) this.#counted = { version, total };
  }

  async #list(signal: AbortSignal): Promise<RawPage> {
    const { transport, name, collection } = this.#options;
    const response = await transport.request({ method: "GET", path: this.#path, timeoutMs: LIST_TIMEOUT_MS, signal });
    if (response.status !== 200) throw failureOfResponse(response, `confirm ${name}`);
    return parseListPage(response.body, collection.kind);
  }
}
