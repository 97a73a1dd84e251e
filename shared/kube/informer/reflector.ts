import { Backoff } from "../../runtime/backoff.ts";
import { sleep } from "../../runtime/clock.ts";
import { isComparableVersion, isOlderVersion } from "../../schema/resource-version.ts";
import { type Collection, pick } from "../stream/collection.ts";
import { objectParser, type ParsedObject } from "../stream/object-parser.ts";
import { type EventType, isRawObject } from "../stream/raw-object.ts";
import { retryDelayMs } from "../stream/retry-delay.ts";
import { readWatch } from "../stream/watch.ts";
import type { ListReason, WatchEvent } from "../stream/watch-event.ts";
import { listReasonAfter, WatchFailure } from "../stream/watch-failure.ts";
import { CompleteList } from "./complete-list.ts";
import { StreamContinuity } from "./continuity.ts";
import type { InformerHandler, LearningInformer } from "./informer.ts";
import { ObjectStore } from "./object-store.ts";
import { QuorumCheck } from "./quorum-check.ts";
import type { ReflectorOptions } from "./reflector-options.ts";

export type { ReflectorOptions };

const DEFAULT_SERVER_TIMEOUT_SECONDS = [5, 7] as const;
/** At most seven tries in the first ten seconds of an outage, then one every ten seconds or less often. */
const BACKOFF = { initialMs: 250, maxMs: 10_000, factor: 2, jitter: 0.5 };
/** A try that only resumes costs the server little; after an outage the cache is wanted back soon (design 5.4). */
const MAX_RESUME_DELAY_MS = 5_000;
/** A list is made at once when the last one is this long ago, and with backoff otherwise: lists never follow each other closely. */
const LISTS_APART_MS = 10_000;
/** kube-apiserver sends its last bookmarks within this time before a watch's deadline (docs/decisions/0002-short-watches.md). */
const LAST_BOOKMARKS_MS = 2_000;
/** A LIST takes up to 100 ms, in which the server's cache catches up with etcd; the bookmark then carries its version. */
const LIST_BEFORE_BOOKMARK_MS = 300;
/** A stream that lived this long and delivered something was healthy, whatever ended it. */
const HEALTHY_AFTER_MS = 3_000;

/**
 * One collection of one apiserver, kept current for as long as the process lives (design 8). The loop ends only by `stop`; every
 * failure leads to another try with capped, jittered backoff. A complete list is made at first, when the version is compacted
 * (410), after corruption, after an outage in which the server may have been restored, and when its versions went back; everything else
 * resumes where the stream ended.
 */
export class Reflector<T> implements LearningInformer<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #collection: Collection;
  readonly #store: ObjectStore<T>;
  readonly #parse: (raw: unknown) => ParsedObject<T>;
  readonly #backoff: Backoff;
  readonly #confirmation: QuorumCheck;
  readonly #stopping = new AbortController();
  #running: Promise<unknown> | undefined;
  /** Ends the stream that is open now. */
  #stream = new AbortController();
  #wentBack: WatchFailure | undefined;
  #isDoubted = false;
  #swapping = false;
  readonly #continuity: StreamContinuity;
  #lists = 0;
  /** When the last list began. */
  #listedMs = Number.NEGATIVE_INFINITY;
  #lastContactMs: number | undefined;
  #heardMs: number | undefined;
  readonly #completeList: CompleteList<T>;
  readonly #synced = Promise.withResolvers<void>();

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#collection = { path: options.path, query: options.query ?? {} };
    const { ports } = options;
    this.#store = new ObjectStore({
      uidOf: options.uidOf,
      versionOf: options.versionOf,
      onHandlerError: (error) => this.#emit({ kind: "handlerFailed", error }),
    });
    this.#parse = objectParser(options, (key, error) => this.#emit({ kind: "unparsable", key, error }));
    this.#completeList = new CompleteList(
      {
        name: options.name,
        transport: options.transport,
        ports,
        collection: this.#collection,
        parse: this.#parse,
        fallback: (key, uid) => this.#lastKnown(key, uid),
        contact: () => this.#contact(),
      },
      options,
    );
    this.#backoff = new Backoff(BACKOFF, ports.random);
    this.#confirmation = new QuorumCheck({
      name: options.name,
      transport: options.transport,
      ports,
      // Only what a permission may depend on: a label selector would make the server look for a first match.
      collection: { path: options.path, query: pick(options.query, "fieldSelector") },
      intervalMs: options.confirmEveryMs,
      position: () => this.#store.position,
      confirmed: (sentMs) => {
        this.#emit({ kind: "confirmed", sentMs, lagMs: ports.clock.monotonicMs() - sentMs });
        this.#store.tellConfirmed(sentMs);
      },
      wentBack: (from, to) => this.#doubt(`the server's version went back from ${from} to ${to}`),
      failed: (error, retryMs) => this.#emit({ kind: "failed", during: "confirm", tag: error.tag, error, retryMs }),
    });
    this.#continuity = new StreamContinuity({
      ports,
      confirmedSentMs: () => this.#confirmation.confirmedSentMs,
      requestEvidence: () => this.#confirmation.request(),
    });
  }

  /** Begins; idempotent. Ends only by `stop`. */
  start(): void {
    if (this.#running !== undefined || this.#stopping.signal.aborted) return;
    const { signal } = this.#stopping;
    this.#continuity.start();
    this.#running = Promise.all([this.#run(signal), this.#confirmWhenSynced(signal)]);
  }

  /** Ends the loop and its requests; resolves when nothing of it runs any more. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#continuity.stop();
    await this.#running;
  }

  /** Resolves at the first complete list, or when `signal` aborts (look at `synced`). */
  whenSynced(signal?: AbortSignal): Promise<void> {
    if (signal === undefined) return this.#synced.promise;
    if (signal.aborted) return Promise.resolve();
    const given = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    return Promise.race([this.#synced.promise, given]);
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
    return this.#confirmation.confirmedSentMs;
  }

  /** It is not known whether what is held is of a history that is over, because this process stood still. */
  get isDoubtful(): boolean {
    return this.#continuity.isDoubtful;
  }

  /** Complete lists after the first one. */
  get relists(): number {
    return Math.max(0, this.#lists - 1);
  }

  requestEvidence(): void {
    this.#confirmation.request();
  }

  learned(key: string, version: string): void {
    this.#store.learned(key, version);
  }

  /**
   * What is held may be of a history that is gone, by a sign that the stream itself does not show (design 5.4): a watch that is resumed
   * where the restored server has passed its position misses what was written before. Everything is listed anew.
   */
  distrust(): void {
    // Told by what a list has just brought: that list is the answer.
    if (this.#swapping || !this.synced) return;
    this.#doubt("what is held may be of a history that is gone");
  }

  /** What is held is known to be, or may be, of a history that is gone, and the list that shows what there is now is not in yet. */
  get isDoubted(): boolean {
    return this.#isDoubted;
  }

  subscribe(handler: InformerHandler<T>): () => void {
    return this.#store.subscribe(handler);
  }

  async #run(signal: AbortSignal): Promise<void> {
    let reason: ListReason | undefined = "first";
    while (!signal.aborted) {
      let during: "list" | "watch" = "list";
      try {
        reason ??= this.#continuity.brokenBy;
        if (reason !== undefined) await this.#list(reason, signal);
        reason = undefined;
        during = "watch";
        await this.#watch(signal);
      } catch (thrown) {
        if (signal.aborted) break;
        const failure = this.#wentBack ?? WatchFailure.from(thrown);
        this.#wentBack = undefined;
        reason = listReasonAfter(failure) ?? reason;
        this.#isDoubted ||= reason === "versionWentBack";
        this.#continuity.failed(failure.tag);
        const retryMs = this.#delayMs(failure, reason);
        this.#emit({ kind: "failed", during, tag: failure.tag, error: failure, retryMs });
        await sleep(this.#options.ports, retryMs, signal);
      }
    }
  }

  #delayMs(failure: WatchFailure, reason: ListReason | undefined): number {
    const { clock, random } = this.#options.ports;
    const ownMs = this.#backoff.nextMs();
    if (reason === undefined || reason === "outage")
      return retryDelayMs(Math.min(ownMs, MAX_RESUME_DELAY_MS), failure, random);
    const longAgo = clock.monotonicMs() - this.#listedMs >= LISTS_APART_MS;
    return retryDelayMs(longAgo && listReasonAfter(failure) !== undefined ? 0 : ownMs, failure, random);
  }

  async #confirmWhenSynced(signal: AbortSignal): Promise<void> {
    await this.whenSynced(signal);
    await this.#confirmation.run(signal);
  }

  /** Makes a complete list and swaps it in. */
  async #list(reason: ListReason, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options.ports;
    const startedMs = clock.monotonicMs();
    this.#listedMs = startedMs;
    const known = this.#store.position;
    const floor = reason !== "versionWentBack" && isComparableVersion(known) ? known : undefined;
    const owed = this.#store.owed();
    const listed = await this.#completeList.read(floor, signal);
    const restored = this.#restoredBy(listed.objects, listed.version, owed);
    if (restored !== undefined) this.#emit({ kind: "versionWentBack", ...restored });
    const isDoubted = restored !== undefined || reason === "versionWentBack";
    if (isDoubted) this.#confirmation.forget();
    // A quorum read shows what there is now, so it answers the doubt, too.
    if (listed.quorumSentMs !== undefined) this.#wentBack = undefined;
    this.#lists++;
    this.#heardMs = startedMs;
    this.#continuity.begun(startedMs);
    this.#isDoubted = this.#wentBack !== undefined;
    this.#swapping = true;
    this.#store.swap(listed.objects, listed.version, isDoubted);
    this.#swapping = false;
    this.#emit({
      kind: "listed",
      reason,
      mode: this.#completeList.mode,
      position: listed.version,
      objects: listed.objects.size,
      requests: listed.requests,
      durationMs: clock.monotonicMs() - startedMs,
    });
    if (listed.quorumSentMs === undefined) this.#confirmation.advanced();
    else this.#confirmation.accept({ sentMs: listed.quorumSentMs, version: listed.version });
    this.#synced.resolve();
  }

  /** The versions of the list or of one of its objects are older than what was seen. */
  #restoredBy(
    objects: ReadonlyMap<string, T>,
    version: string,
    owed: ReadonlyMap<string, string>,
  ): { from: string; to: string } | undefined {
    const known = this.#store.position;
    if (known !== undefined && isOlderVersion(version, known)) return { from: known, to: version };
    const newer = this.#store.contradictedBy(objects, owed);
    return newer && { from: newer.held, to: newer.listed };
  }

  /** Reads one stream from the position on; returns when the server ended it as it was asked to. */
  async #watch(signal: AbortSignal): Promise<void> {
    if (this.#wentBack !== undefined) throw this.#wentBack;
    const { name, transport, ports, pause } = this.#options;
    const [least, most] = this.#options.serverTimeoutSeconds ?? DEFAULT_SERVER_TIMEOUT_SECONDS;
    const timeoutSeconds = least + Math.floor(ports.random.fraction() * (most - least + 1));
    const startedMs = ports.clock.monotonicMs();
    this.#continuity.resuming(startedMs);
    const seen = { events: 0, bookmarks: 0 };
    const stream = new AbortController();
    this.#stream = stream;
    const stop = (): void => stream.abort();
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    let isLate = false;
    const position = this.#store.position ?? "";
    const listMs = timeoutSeconds * 1000 - LAST_BOOKMARKS_MS - LIST_BEFORE_BOOKMARK_MS;
    const beforeBookmark =
      this.#options.confirmEveryMs === undefined
        ? undefined
        : ports.timers.after(listMs, () => this.#confirmation.request());
    try {
      await readWatch({
        name,
        transport,
        ports,
        collection: this.#collection,
        parameters: { resourceVersion: position },
        timeoutSeconds,
        signal: stream.signal,
        contact: () => this.#contact(),
        opened: () => {
          // The server has answered after so long that there is nothing to resume from.
          isLate = this.#continuity.brokenBy !== undefined;
          if (isLate) return stop();
          this.#continuity.resumed();
          this.#emit({ kind: "watching", position, afterFailures: this.#backoff.failures });
        },
        pause,
        each: (type, object) => {
          seen[type === "BOOKMARK" ? "bookmarks" : "events"]++;
          this.#apply(type, object);
          return true;
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
    if (this.#wentBack !== undefined) throw this.#wentBack;
    if (signal.aborted || isLate) return;
    const durationMs = ports.clock.monotonicMs() - startedMs;
    if (durationMs < (timeoutSeconds * 1000) / 2) {
      throw new WatchFailure(
        "ended-early",
        `watch ${name}: ended after ${Math.round(durationMs)} ms of ${timeoutSeconds} s`,
      );
    }
    this.#backoff.reset();
    this.#emit({ kind: "ended", durationMs, ...seen });
    // A server that was restored to an older state is silent until its versions pass the position again: ask it.
    if (seen.events + seen.bookmarks === 0) this.#confirmation.request();
  }

  #apply(type: Exclude<EventType, "ERROR">, raw: unknown): void {
    const version = isRawObject(raw) ? raw.metadata.resourceVersion : undefined;
    if (version === undefined || version === "") throw new WatchFailure("corrupt", "an event has no resourceVersion");
    const known = this.#store.position;
    if (isOlderVersion(version, known))
      throw new WatchFailure("ahead-of-server", `the stream went back from ${known} to ${version}`);
    this.#heardMs = this.#options.ports.clock.monotonicMs();
    if (type === "BOOKMARK") {
      this.#store.advance(version);
    } else {
      const { owned, key, uid, object } = this.#parse(raw);
      const kept = object ?? this.#lastKnown(key, uid);
      if (!owned) this.#store.advance(version);
      else if (type === "DELETED" || kept === undefined)
        this.#store.remove(key, type === "DELETED" ? uid : "", version);
      else this.#store.upsert(key, kept, version);
    }
    this.#confirmation.advanced();
  }

  #lastKnown(key: string, uid: string): T | undefined {
    if (this.#options.unparsable !== "keepLast") return undefined;
    const last = this.#store.get(key);
    return last !== undefined && this.#options.uidOf(last) === uid ? last : undefined;
  }

  #doubt(message: string): void {
    this.#isDoubted = true;
    this.#wentBack = new WatchFailure("ahead-of-server", message);
    this.#stream.abort();
  }

  #contact(): void {
    this.#lastContactMs = this.#options.ports.clock.monotonicMs();
  }

  /** An observer that throws must not end the loop, and there is nobody else to tell. */
  #emit(event: WatchEvent): void {
    try {
      this.#options.onEvent?.(event);
    } catch {}
  }
}
