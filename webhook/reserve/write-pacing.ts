import type { Randomness } from "../../shared/runtime/clock.ts";

/** Length of a competitor's turn: this many round trips, and the time until this replica's watch shows its write. */
const ROUND_TRIPS_PER_TURN = 3;
const WATCH_LAG_MS = 4;
const MIN_TURN_MS = 6;
const MAX_TURN_MS = 400;
const PAUSE_PER_REQUEST_MS = 0.5;
const MAX_PAUSE_MS = 40;
const COURTESY_ROUND_TRIPS = 0.5;
/**
 * A pause after this many first writes of a rush, each of at least this many requests, shows which other replicas
 * compete.
 */
const LOOK_OUT_WRITES = 2;
const LOOK_OUT_REQUESTS = 4;
/** Round trips that a competitor needs after a conflict: the response, a read, and the way of its next write. */
const LOOK_OUT_ROUND_TRIPS = 1.5;
const MAX_LOOK_OUT_MS = 100;
/** The first write may include opening a connection, so it counts as no more than this. */
const MAX_FIRST_ROUND_TRIP_MS = 60;
const MAX_ROUND_TRIP_MS = 1_000;
/** Longest wait, however many competitors there are. */
const MAX_WAIT_MS = 1_000;
/** A competitor that did not write for this long no longer competes. */
const COMPETITION_ENDS_MS = 500;
/** A competitor that misses this many turns in a row is skipped. Fewer may be lost to unseen conflicts. */
const MISSED_TURNS_UNTIL_LEFT_OUT = 3;
/** Weight of the newest measurement in a moving average. */
const NEWEST = 0.25;
/** When the cache is stale in this fraction of writes, each decision is preceded by a read. */
const STALE_TOO_OFTEN = 0.4;

/**
 * When to write an object that other replicas write too (L5 of docs/design.md#invariants). Without competitors: at
 * once, so that a single deletion costs one round trip. With competitors, one immediate write would succeed and all
 * others would conflict, so the replicas take turns without talking to each other: each sees in the object which
 * replica wrote last, and all put themselves in the same order by their tags. The next in that order writes at once,
 * the one after it a turn later, and so on. Meanwhile requests gather into one batch. A competitor that misses its
 * turns is left out until it writes again.
 */
export class WritePacing {
  readonly #tag: string;
  readonly #random: Pick<Randomness, "fraction">;
  readonly #competitors = new Map<string, { seenMs: number; missed: number }>();
  #roundTripMs = 5;
  #isMeasured = false;
  /** Own writes in a row without a competitor. */
  #writesAlone = 0;
  #lastWriter: string | undefined;
  #lastRequests = 0;
  #lastWriteMs = Number.NEGATIVE_INFINITY;
  /** Moving average of how often the cache was stale, 0 to 1. */
  #staleness = 0;
  /** Random part of the wait after an own success, in which an unknown replica that lost can write first. */
  #courtesyMs = 0;

  /** `tag` is this replica's own. */
  constructor(tag: string, random: Pick<Randomness, "fraction">) {
    this.#tag = tag;
    this.#random = random;
  }

  /** The expected time of a write, in milliseconds. */
  get roundTripMs(): number {
    return this.#roundTripMs;
  }

  get hasCompetitors(): boolean {
    return this.#competitors.size > 0;
  }

  /** True when a read before each decision costs less than the conflicts without it. */
  get readsFirst(): boolean {
    return this.#staleness > STALE_TOO_OFTEN;
  }

  /** An own write of `requests` succeeded. Competitors whose turn came before have missed it. */
  wrote(nowMs: number, tookMs: number, requests: number): void {
    this.#lastRequests = requests;
    this.#courtesyMs = this.#random.fraction() * this.#roundTripMs * COURTESY_ROUND_TRIPS;
    this.#measure(tookMs);
    this.cacheWas("current");
    const last = this.#lastWriter;
    if (last !== undefined) {
      for (const [tag, competitor] of this.#competitors) {
        if (tag === last || this.#distance(last, tag) > this.#distance(last, this.#tag)) continue;
        competitor.missed++;
        if (competitor.missed >= MISSED_TURNS_UNTIL_LEFT_OUT) this.#competitors.delete(tag);
      }
    }
    const isRush = this.#competitors.size === 0 && nowMs - this.#lastWriteMs <= COMPETITION_ENDS_MS;
    this.#writesAlone = isRush ? this.#writesAlone + 1 : 1;
    this.#lastWriter = this.#tag;
    this.#lastWriteMs = nowMs;
  }

  /** An own write conflicted after `tookMs`. */
  conflicted(tookMs: number): void {
    this.#measure(tookMs);
    this.#courtesyMs = 0;
    this.cacheWas("stale");
  }

  /** No request had the expected time of a write. Without a write, only this shortens it, and a later one is tried. */
  notTried(): void {
    this.#roundTripMs *= 1 - NEWEST;
  }

  /** Whether a write or a read has shown the cached version to be current. */
  cacheWas(state: "stale" | "current"): void {
    this.#staleness += ((state === "stale" ? 1 : 0) - this.#staleness) * NEWEST;
  }

  /**
   * Another replica's write was seen; `isContending` when requests were waiting here meanwhile. A competitor that
   * writes only while this replica is idle gets no turn, because it would not use one.
   */
  competitorWrote(tag: string, nowMs: number, isContending: boolean): void {
    const known = this.#competitors.get(tag);
    if (isContending) this.#competitors.set(tag, { seenMs: nowMs, missed: 0 });
    else if (known !== undefined) known.seenMs = nowMs;
    this.#lastWriter = tag;
    this.#lastWriteMs = nowMs;
  }

  /** How long to wait, from `nowMs`, until it is this replica's turn; 0 without competitors. */
  waitMs(nowMs: number): number {
    for (const [tag, { seenMs }] of this.#competitors)
      if (nowMs - seenMs > COMPETITION_ENDS_MS) this.#competitors.delete(tag);
    if (this.#lastWriter === undefined) return 0;
    if (this.#competitors.size === 0) return Math.max(0, this.#lastWriteMs + this.#pauseMs() - nowMs);
    const turns = this.#distance(this.#lastWriter, this.#tag) - 1;
    const dueMs = this.#lastWriteMs + turns * this.#turnMs() + this.#courtesyMs;
    return Math.max(0, Math.min(dueMs - nowMs, MAX_WAIT_MS));
  }

  /**
   * A competitor that always loses is never seen: the winner has the newest version first and wins again. So a large
   * batch is followed by time for another replica's write. The first batches of a rush, which begins with the writes of
   * all replicas at once, are followed by time for another attempt after a conflict.
   */
  #pauseMs(): number {
    if (this.#writesAlone <= LOOK_OUT_WRITES && this.#lastRequests >= LOOK_OUT_REQUESTS)
      return Math.min(MAX_LOOK_OUT_MS, LOOK_OUT_ROUND_TRIPS * this.#roundTripMs + WATCH_LAG_MS);
    return Math.min(this.#turnMs() / 2, MAX_PAUSE_MS, (this.#lastRequests - 1) * PAUSE_PER_REQUEST_MS);
  }

  #turnMs(): number {
    return Math.min(MAX_TURN_MS, Math.max(MIN_TURN_MS, this.#roundTripMs * ROUND_TRIPS_PER_TURN + WATCH_LAG_MS));
  }

  /** Turns from `from` to `to`, in the circular order of the tags: 1 to the number of replicas. */
  #distance(from: string, to: string): number {
    const order = [...new Set([...this.#competitors.keys(), this.#tag, from])].sort();
    const steps = (order.indexOf(to) - order.indexOf(from) + order.length) % order.length;
    return steps === 0 ? order.length : steps;
  }

  #measure(tookMs: number): void {
    if (this.#isMeasured) this.#roundTripMs += (Math.min(tookMs, MAX_ROUND_TRIP_MS) - this.#roundTripMs) * NEWEST;
    else this.#roundTripMs = Math.min(tookMs, MAX_FIRST_ROUND_TRIP_MS);
    this.#isMeasured = true;
  }
}
