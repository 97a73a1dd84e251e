import type { Randomness } from "../../shared/runtime/clock.ts";

/** How long a rival is left to use its turn: this many round trips, and time for its write to show here. */
const ROUND_TRIPS_PER_TURN = 3;
const WATCH_LAG_MS = 4;
const MIN_TURN_MS = 6;
const MAX_TURN_MS = 400;
const PAUSE_PER_REQUEST_MS = 0.5;
const MAX_PAUSE_MS = 40;
const COURTESY_ROUND_TRIPS = 0.5;
/** The first writes of a rush, each of at least so many requests, are followed by a pause that shows who else is there. */
const LOOK_OUT_WRITES = 2;
const LOOK_OUT_REQUESTS = 4;
/** What a rival that lost needs: its conflict, a read, and the way of its next write. */
const LOOK_OUT_ROUND_TRIPS = 1.5;
const MAX_LOOK_OUT_MS = 100;
/** The first write may have opened a connection: it says no more than this. */
const MAX_FIRST_ROUND_TRIP_MS = 60;
/** Nobody waits longer than this, however many rivals there are. */
const MAX_WAIT_MS = 1_000;
/** A rival that did not write for this long has left. */
const RIVALRY_ENDS_MS = 500;
/** So many turns in a row that a rival lets pass, and it is left out; fewer may be lost to conflicts that nobody else sees. */
const PASSES_UNTIL_LEFT_OUT = 3;
/** Weight of the newest measurement in the moving averages. */
const NEWEST = 0.25;
/** A cache that was out of date this often is read anew before it is decided on. */
const STALE_TOO_OFTEN = 0.4;

/**
 * When to write an object for which other replicas compete (design 5.8, L5). Without rivals: at once, so that one deletion at
 * a time costs one round trip. With rivals, writing at once would let one write win and all others conflict. So the replicas take
 * turns, without talking to each other: each sees in the object who wrote last, all put themselves in the same order by their tags,
 * and whoever comes next writes at once, the one after it a turn later if the next did not, and so on. Meanwhile requests
 * gather into one batch. A rival that lets its turns pass is left out until it writes again.
 */
export class WritePacing {
  readonly #tag: string;
  readonly #rivals = new Map<string, { seenMs: number; passed: number }>();
  #roundTripMs = 5;
  #isMeasured = false;
  /** Own writes in a row with no rival in sight. */
  #writesAlone = 0;
  #lastWriter: string | undefined;
  #lastRequests = 0;
  #lastWriteMs = Number.NEGATIVE_INFINITY;
  /** How often the cache turned out to be out of date, 0 to 1. */
  #staleness = 0;

  /** Random part of the next wait, for those that did not lose last: a loser that nobody knows of gets ahead of them. */
  #courtesyMs = 0;
  readonly #random: Pick<Randomness, "fraction">;

  /** `tag` is this replica's own. */
  constructor(tag: string, random: Pick<Randomness, "fraction">) {
    this.#tag = tag;
    this.#random = random;
  }

  /** What a write is expected to take, in milliseconds. */
  get roundTripMs(): number {
    return this.#roundTripMs;
  }

  get hasRivals(): boolean {
    return this.#rivals.size > 0;
  }

  /** True when a read before the decision costs less than the conflicts without it. */
  get readsFirst(): boolean {
    return this.#staleness > STALE_TOO_OFTEN;
  }

  /** An own write of `requests` was made, after `tookMs`. Rivals whose turn it was before have let it pass. */
  wrote(nowMs: number, tookMs: number, requests: number): void {
    this.#lastRequests = requests;
    this.#courtesyMs = this.#random.fraction() * this.#roundTripMs * COURTESY_ROUND_TRIPS;
    this.#measure(tookMs);
    this.cacheWas("current");
    const last = this.#lastWriter;
    if (last !== undefined) {
      for (const [tag, rival] of this.#rivals) {
        if (tag === last || this.#distance(last, tag) > this.#distance(last, this.#tag)) continue;
        rival.passed++;
        if (rival.passed >= PASSES_UNTIL_LEFT_OUT) this.#rivals.delete(tag);
      }
    }
    const isRush = this.#rivals.size === 0 && nowMs - this.#lastWriteMs <= RIVALRY_ENDS_MS;
    this.#writesAlone = isRush ? this.#writesAlone + 1 : 1;
    this.#lastWriter = this.#tag;
    this.#lastWriteMs = nowMs;
  }

  /** An own write conflicted, after `tookMs`. */
  conflicted(tookMs: number): void {
    this.#measure(tookMs);
    this.#courtesyMs = 0;
    this.cacheWas("stale");
  }

  /** What a write or a read has shown about the cache that was decided on. */
  cacheWas(state: "stale" | "current"): void {
    this.#staleness += ((state === "stale" ? 1 : 0) - this.#staleness) * NEWEST;
  }

  /**
   * The write of another webhook was seen; `contending` when requests were waiting here meanwhile. A rival that only ever
   * writes while this replica has nothing to do gets no turn: nobody would use it.
   */
  rivalWrote(tag: string, nowMs: number, contending: boolean): void {
    const known = this.#rivals.get(tag);
    if (contending) this.#rivals.set(tag, { seenMs: nowMs, passed: 0 });
    else if (known !== undefined) known.seenMs = nowMs;
    this.#lastWriter = tag;
    this.#lastWriteMs = nowMs;
  }

  /** How long to wait, from `nowMs`, until it is this replica's turn; 0 without competition. */
  waitMs(nowMs: number): number {
    for (const [tag, { seenMs }] of this.#rivals) if (nowMs - seenMs > RIVALRY_ENDS_MS) this.#rivals.delete(tag);
    if (this.#lastWriter === undefined) return 0;
    if (this.#rivals.size === 0) return Math.max(0, this.#lastWriteMs + this.#pauseMs() - nowMs);
    const turns = this.#distance(this.#lastWriter, this.#tag) - 1;
    const dueMs = this.#lastWriteMs + turns * this.#turnMs() + this.#courtesyMs;
    return Math.max(0, Math.min(dueMs - nowMs, MAX_WAIT_MS));
  }

  /**
   * After an own write, with no rival in sight. One that always loses is not seen: whoever wins has the newest version first and
   * wins again. So many requests at a time, which come seldom to one replica only, leave others the time for a write; the first of
   * them the time to try again after a conflict, because a rush begins with the writes of all replicas at once.
   */
  #pauseMs(): number {
    if (this.#writesAlone <= LOOK_OUT_WRITES && this.#lastRequests >= LOOK_OUT_REQUESTS)
      return Math.min(MAX_LOOK_OUT_MS, LOOK_OUT_ROUND_TRIPS * this.#roundTripMs + WATCH_LAG_MS);
    return Math.min(this.#turnMs() / 2, MAX_PAUSE_MS, (this.#lastRequests - 1) * PAUSE_PER_REQUEST_MS);
  }

  #turnMs(): number {
    return Math.min(MAX_TURN_MS, Math.max(MIN_TURN_MS, this.#roundTripMs * ROUND_TRIPS_PER_TURN + WATCH_LAG_MS));
  }

  /** How many turns after `from` it is the turn of `to`, in the order of the tags, around; 1 to the number of replicas. */
  #distance(from: string, to: string): number {
    const order = [...new Set([...this.#rivals.keys(), this.#tag, from])].sort();
    const steps = (order.indexOf(to) - order.indexOf(from) + order.length) % order.length;
    return steps === 0 ? order.length : steps;
  }

  #measure(tookMs: number): void {
    if (this.#isMeasured) this.#roundTripMs += (Math.min(tookMs, 1_000) - this.#roundTripMs) * NEWEST;
    else this.#roundTripMs = Math.min(tookMs, MAX_FIRST_ROUND_TRIP_MS);
    this.#isMeasured = true;
  }
}
