/**
 * Keeps one collection of one apiserver current for the life of the process, like client-go's reflector.go: list, watch
 * from the version of the list, resume where a stream ended, list again when that version is compacted (410). In
 * addition (docs/design.md#informers, docs/design.md#lost-history):
 *
 * - A list is a quorum read, or at least as new as the position. It is never a read of `resourceVersion=0`.
 * - Watches are short, and a quorum LIST precedes their last bookmark, so that the position of a quiet stream advances.
 * - Quorum checks prove what a stream contains (`quorum-check.ts`).
 * - After an outage, and after a stall of this process, the reflector lists again: the server may have been restored
 *   and may have passed the position since. A resumed stream would miss what was before (`stream-continuity.ts`).
 * - A server whose versions went back was restored. All its objects are then reported as changed.
 *
 * Read beside it: `informer.ts` (what readers see), `object-store.ts` (objects, position, handlers),
 * `sharded-reflector.ts`.
 */
import { Backoff } from "../../runtime/backoff.ts";
import { aborted, sleep } from "../../runtime/clock.ts";
import { isOlderVersion } from "../../schema/resource-version.ts";
import { type Lister, listNotOlderThan } from "../stream/list.ts";
import { type EventType, isRawObject, objectParser } from "../stream/raw-object.ts";
import { readWatch } from "../stream/watch.ts";
import { retryDelayMs, WatchFailure, type WatchFailureTag } from "../stream/watch-failure.ts";
import type { InformerHandler, LearningInformer } from "./informer.ts";
import { ObjectStore } from "./object-store.ts";
import { QuorumCheck } from "./quorum-check.ts";
import {
  drawTimeout,
  type ListReason,
  listFloor,
  listReasonAfter,
  type ReflectorEvent,
  type ReflectorOptions,
} from "./reflector-options.ts";
import { StreamContinuity } from "./stream-continuity.ts";

/** Parsing a page blocks the process: some 10 ms for this many pods. Larger pages save no time and take more memory. */
const DEFAULT_PAGE_SIZE = 250;
/** At most seven tries in the first ten seconds of an outage, then one every ten seconds or less often. */
const BACKOFF = { initialMs: 250, maxMs: 10_000, factor: 2, jitter: 0.5 };
/** Resuming costs the server little, and readers want the cache back soon after an outage. */
const MAX_RESUME_DELAY_MS = 5_000;
/** A list follows a failure at once if the last list is this long ago, and otherwise after a backoff. */
const LISTS_APART_MS = 10_000;
/** A stream that lived this long and delivered something was healthy, whatever ended it. */
const HEALTHY_AFTER_MS = 3_000;

export class Reflector<T> implements LearningInformer<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #store: ObjectStore<T>;
  readonly #lister: Lister<T>;
  readonly #quorumCheck: QuorumCheck;
  readonly #continuity: StreamContinuity;
  readonly #backoff: Backoff;
  readonly #synced = Promise.withResolvers<void>();
  readonly #stopping = new AbortController();
  #running: Promise<unknown> | undefined;
  /** Ends the open stream. */
  #stream = new AbortController();
  /** The server was found to be restored, or an event is missing. Ends the stream; the next list is a quorum read. */
  #distrust: WatchFailure | undefined;
  /** The versions that have shown the restore. The next list may be newer than all known versions. */
  #wentBack: { readonly from: string; readonly to: string } | undefined;
  #historyInDoubt = false;
  #hasUnparsable = false;
  /** The store may lack objects that could not be parsed. A list that is not complete yet changes nothing in it. */
  #leavesOut = false;
  #isSwapping = false;
  #listStartedMs = Number.NEGATIVE_INFINITY;
  #lastContactMs: number | undefined;
  #heardMs: number | undefined;

  constructor(options: ReflectorOptions<T>) {
    const { name, transport, ports, path, query = {}, kind, uidOf, versionOf } = options;
    const onHandlerError = (error: Error): void => this.#emit({ kind: "handlerFailed", error });
    this.#options = options;
    this.#store = new ObjectStore({ uidOf, versionOf, onHandlerError });
    this.#backoff = new Backoff(BACKOFF, ports.random);
    this.#lister = {
      name,
      transport,
      ports,
      collection: { path, query, kind },
      maxObjects: options.maxObjects,
      parse: objectParser(options, (key, error) => this.#emit({ kind: "unparsable", key, error })),
      fallback: (key, uid, raw) => this.#lastKnown(key, uid) ?? options.placeholder?.(raw),
      contact: () => {
        this.#lastContactMs = ports.clock.monotonicMs();
      },
    };
    this.#quorumCheck = new QuorumCheck({
      name,
      transport,
      ports,
      collection: this.#lister.collection,
      intervalMs: options.confirmEveryMs,
      store: this.#store,
      leavesOut: () => this.#leavesOut,
      miscounted: (message) => this.#doubt(message, "missed-event"),
      confirmed: (sentMs) => {
        this.#emit({ kind: "confirmed", sentMs, lagMs: ports.clock.monotonicMs() - sentMs });
        this.#store.tellConfirmed(sentMs);
      },
      wentBack: (from, to) => {
        this.#wentBack = { from, to };
        this.#doubt(`the server's version went back from ${from} to ${to}`);
      },
      failed: (error, retryMs) => this.#emit({ kind: "failed", during: "confirm", tag: error.tag, error, retryMs }),
    });
    this.#continuity = new StreamContinuity({
      ports,
      confirmedSentMs: () => this.#quorumCheck.confirmedSentMs,
      heardMs: () => this.#heardMs,
      requestEvidence: () => this.#quorumCheck.request(),
    });
  }

  /** Starts the loop, which only `stop` ends; idempotent. */
  start(): void {
    if (this.#running !== undefined || this.#stopping.signal.aborted) return;
    const { signal } = this.#stopping;
    this.#continuity.start();
    this.#running = Promise.all([this.#listAndWatch(signal), this.#checkWhenSynced(signal)]);
  }

  /** Ends the loop and its requests; resolves when all have ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#continuity.stop();
    await this.#running;
  }

  /** Resolves at the first complete list, or when `signal` aborts (`synced` shows which). */
  whenSynced(signal?: AbortSignal): Promise<void> {
    if (signal === undefined) return this.#synced.promise;
    return Promise.race([aborted(signal), this.#synced.promise]);
  }

  get(key: string): T | undefined {
    return this.#store.get(key);
  }

  values(): Iterable<T> {
    return this.#store.values();
  }

  get size(): number {
    return this.#store.size;
  }

  get position(): string | undefined {
    return this.#store.position;
  }

  get synced(): boolean {
    return this.#store.position !== undefined;
  }

  get lastContactMs(): number | undefined {
    return this.#lastContactMs;
  }

  get heardMs(): number | undefined {
    return this.#heardMs;
  }

  get confirmedSentMs(): number | undefined {
    return this.#quorumCheck.confirmedSentMs;
  }

  get serverVersion(): string | undefined {
    return this.#quorumCheck.ahead?.version ?? this.#store.position;
  }

  get quorumSentMs(): number | undefined {
    return this.#quorumCheck.ahead?.sentMs ?? this.#quorumCheck.confirmedSentMs;
  }

  /** True after this process stalled, until a later quorum check or list shows that the stream kept up. */
  get hasStalled(): boolean {
    return this.#continuity.hasStalled;
  }

  /** True while the cache may belong to a history that the server has rolled back, until the next list. */
  get historyInDoubt(): boolean {
    return this.#historyInDoubt;
  }

  /** Lists again, because a sign other than the stream shows that the server may have been restored. */
  distrustHistory(): void {
    // A sign that this list itself shows needs no further list.
    if (this.#isSwapping || !this.synced) return;
    this.#doubt("the cached objects may belong to a history that the server has rolled back");
  }

  requestEvidence(): void {
    this.#quorumCheck.request();
  }

  learned(key: string, version: string): void {
    this.#store.learned(key, version);
  }

  subscribe(handler: InformerHandler<T>): () => void {
    return this.#store.subscribe(handler);
  }

  async #listAndWatch(signal: AbortSignal): Promise<void> {
    let reason: ListReason | undefined = "first";
    while (!signal.aborted) {
      let during: "list" | "watch" = "list";
      try {
        const isMoved = this.#quorumCheck.isBehind;
        reason ??= this.#continuity.brokenBy;
        // A process that stalls in each list, such as a throttled one, would list at full speed for ever.
        if (reason === "standstill" && !this.#isListDue)
          await sleep(this.#options.ports, this.#backoff.nextMs(), signal);
        if (reason !== undefined) await this.#list(reason, signal);
        reason = undefined;
        during = "watch";
        if (await this.#watch(isMoved, signal)) reason = this.#continuity.brokenBy ?? "unconfirmed";
        else if (this.#hasUnparsable && this.#options.unparsable === "listAgain") reason = "corrupt";
      } catch (thrown) {
        if (signal.aborted) break;
        const failure = this.#distrust ?? WatchFailure.from(thrown);
        this.#distrust = undefined;
        // If a list fails for another reason, the first reason for it stays.
        const heldSinceMs = during === "watch" ? this.#continuity.heldSinceMs : undefined;
        // A stream that never lives until its last bookmarks confirms nothing.
        const isUnconfirmed = heldSinceMs !== undefined && this.#quorumCheck.streamEnded(heldSinceMs);
        const found = listReasonAfter(failure) ?? (isUnconfirmed ? "unconfirmed" : undefined);
        reason = found === "versionWentBack" ? found : (reason ?? found);
        this.#historyInDoubt ||= reason === "versionWentBack";
        const retryMs = this.#retryMs(failure, reason, heldSinceMs !== undefined);
        this.#continuity.failed(failure.tag, retryMs);
        this.#emit({ kind: "failed", during, tag: failure.tag, error: failure, retryMs });
        await sleep(this.#options.ports, retryMs, signal);
      }
    }
  }

  #retryMs(failure: WatchFailure, reason: ListReason | undefined, wasHeld: boolean): number {
    const { random } = this.#options.ports;
    const backoffMs = this.#backoff.nextMs();
    // A proxy may end each stream that is silent for some seconds. A long pause would look like an outage.
    const mostMs = wasHeld ? BACKOFF.initialMs : MAX_RESUME_DELAY_MS;
    if (reason === undefined || reason === "outage" || reason === "unconfirmed")
      return retryDelayMs(Math.min(backoffMs, mostMs), failure, random);
    return retryDelayMs(this.#isListDue && listReasonAfter(failure) !== undefined ? 0 : backoffMs, failure, random);
  }

  /** The last list is so long ago that another one may follow at once. */
  get #isListDue(): boolean {
    return this.#options.ports.clock.monotonicMs() - this.#listStartedMs >= LISTS_APART_MS;
  }

  async #checkWhenSynced(signal: AbortSignal): Promise<void> {
    await this.whenSynced(signal);
    await this.#quorumCheck.run(signal);
  }

  /** Makes a complete list and swaps it in. */
  async #list(reason: ListReason, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options.ports;
    const startedMs = clock.monotonicMs();
    this.#listStartedMs = startedMs;
    this.#hasUnparsable = false;
    const owed = this.#store.owed();
    const floor = listFloor(reason, this.#store.newest(owed));
    const listed = await listNotOlderThan(this.#lister, this.#options.pageSize ?? DEFAULT_PAGE_SIZE, floor, signal);
    const restored = this.#store.contradictedBy(listed, owed) ?? this.#wentBack;
    this.#wentBack = undefined;
    if (restored !== undefined) this.#emit({ kind: "versionWentBack", ...restored });
    const isRestored = restored !== undefined || reason === "versionWentBack";
    if (isRestored) this.#quorumCheck.forget();
    // A quorum read shows the present state, whatever a check found meanwhile.
    if (listed.quorumSentMs !== undefined) this.#distrust = undefined;
    this.#heardMs = startedMs;
    this.#quorumCheck.listed();
    this.#continuity.listed(startedMs);
    this.#historyInDoubt = this.#distrust !== undefined;
    this.#isSwapping = true;
    this.#leavesOut = this.#hasUnparsable;
    this.#store.swap(listed.objects, listed.version, isRestored);
    this.#isSwapping = false;
    this.#emit({
      kind: "listed",
      reason,
      position: listed.version,
      objects: listed.objects.size,
      requests: listed.requests,
      durationMs: clock.monotonicMs() - startedMs,
    });
    if (listed.quorumSentMs === undefined) this.#quorumCheck.advanced();
    else this.#quorumCheck.accept({ sentMs: listed.quorumSentMs, version: listed.version });
    this.#synced.resolve();
  }

  /** Reads one stream from the position on, to its end on time. Resolves with true where a list has to confirm it. */
  async #watch(isMoved: boolean, signal: AbortSignal): Promise<boolean> {
    if (this.#distrust !== undefined) throw this.#distrust;
    const { ports, confirmEveryMs } = this.#options;
    const { timeoutSeconds, listAfterMs } = drawTimeout(this.#options);
    const startedMs = ports.clock.monotonicMs();
    this.#continuity.resuming(startedMs);
    const seen = { events: 0, bookmarks: 0 };
    const stream = new AbortController();
    this.#stream = stream;
    const stop = (): void => stream.abort();
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    const beforeBookmark =
      confirmEveryMs === undefined ? undefined : ports.timers.after(listAfterMs, () => this.#quorumCheck.request());
    const position = this.#store.position ?? "";
    let isLate = false;
    let durationMs = 0;
    try {
      durationMs = await readWatch({
        ...this.#lister,
        resourceVersion: position,
        timeoutSeconds,
        isMoved,
        signal: stream.signal,
        opened: () => {
          // The server responded so late that the stream can't resume.
          isLate = this.#continuity.brokenBy !== undefined;
          if (isLate) return stop();
          this.#continuity.resumed();
          this.#emit({ kind: "watching", position, afterFailures: this.#backoff.failures });
        },
        each: (type, object) => {
          seen[type === "BOOKMARK" ? "bookmarks" : "events"]++;
          this.#apply(type, object);
        },
      });
    } catch (error) {
      if (!isLate) throw error;
    } finally {
      beforeBookmark?.cancel();
      signal.removeEventListener("abort", stop);
      const livedMs = ports.clock.monotonicMs() - startedMs;
      if (livedMs >= HEALTHY_AFTER_MS && seen.events + seen.bookmarks > 0) this.#backoff.reset();
    }
    if (this.#distrust !== undefined) throw this.#distrust;
    if (signal.aborted || isLate) return false;
    this.#backoff.reset();
    this.#emit({ kind: "ended", durationMs, ...seen });
    // A restored server is silent until its versions pass the position again. A quorum check notices it earlier.
    if (seen.events + seen.bookmarks === 0) this.#quorumCheck.request();
    return this.#quorumCheck.streamEnded(startedMs);
  }

  #apply(type: Exclude<EventType, "ERROR">, raw: unknown): void {
    const version = isRawObject(raw) ? raw.metadata.resourceVersion : undefined;
    if (version === undefined || version === "") throw new WatchFailure("corrupt", "an event has no resourceVersion");
    const { position: from = "" } = this.#store;
    if (isOlderVersion(version, from)) {
      this.#wentBack = { from, to: version };
      throw new WatchFailure("ahead-of-server", `the stream went back from ${from} to ${version}`);
    }
    this.#heard();
    this.#quorumCheck.passing(version);
    if (type === "BOOKMARK") {
      this.#store.advance(version);
    } else {
      const { owned, key, uid, object } = this.#lister.parse(raw);
      const kept = object ?? this.#lister.fallback(key, uid, raw);
      if (!owned) this.#store.advance(version);
      else if (type === "DELETED" || kept === undefined)
        this.#store.remove(key, type === "DELETED" ? uid : "", version);
      else this.#store.upsert(key, kept, version);
    }
    this.#quorumCheck.advanced();
  }

  #heard(): void {
    const nowMs = this.#options.ports.clock.monotonicMs();
    this.#options.onHeard?.(nowMs - (this.#heardMs ?? nowMs));
    this.#heardMs = nowMs;
  }

  #lastKnown(key: string, uid: string): T | undefined {
    if ((this.#options.unparsable ?? "drop") === "drop") return undefined;
    const last = this.#store.get(key);
    return last !== undefined && this.#options.uidOf(last) === uid ? last : undefined;
  }

  #doubt(message: string, tag: WatchFailureTag = "ahead-of-server"): void {
    this.#historyInDoubt = true;
    this.#distrust = new WatchFailure(tag, message);
    this.#stream.abort();
  }

  /** An observer that throws must not end the loop, and there is no other way to report it. */
  #emit(event: ReflectorEvent): void {
    if (event.kind === "unparsable") this.#hasUnparsable = this.#leavesOut = true;
    try {
      this.#options.onEvent?.(event);
    } catch {}
  }
}
