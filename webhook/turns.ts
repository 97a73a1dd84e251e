import type { Randomness } from "../shared/runtime/clock.ts";

/** Bounds of one replica's share of a protector, however slow its writes are. */
const MIN_SHARE_MS = 8;
const MAX_SHARE_MS = 40;
/** A share is this many round trips: the write itself, its way to the rivals' caches, and room for chance. */
const ROUND_TRIPS_PER_SHARE = 2.5;
/** Nobody waits longer than this for a turn, however many rivals there are. */
const MAX_WAIT_MS = 120;
/** A rival that did not write for this long has left. */
const RIVALRY_ENDS_MS = 500;
/** Weight of the newest measurement in the moving averages. */
const NEWEST = 0.25;

/**
 * When to write an object for which other replicas compete (design 5.8, L5). Without rivals: at once, so that one deletion at
 * a time costs one round trip. With rivals, writing at once makes one write win and all others conflict; so each replica
 * waits for a turn of its own, a share of time for itself and each rival after its last write, and keeps a distance from the
 * rival that wrote last. Meanwhile its requests gather into one batch. The phases spread by themselves: whoever sees another's
 * write moves behind it.
 */
export class Turns {
  readonly #random: Randomness;
  #roundTripMs = 5;
  /** How many rivals' writes lie between two of one's own, on average. */
  #rivals = 0;
  #rivalWrites = 0;
  #lastOwnMs = Number.NEGATIVE_INFINITY;
  #lastRivalMs = Number.NEGATIVE_INFINITY;
  /** Drawn anew after each event, so that repeated questions get the same answer. */
  #chance = 0.5;

  constructor(random: Randomness) {
    this.#random = random;
  }

  /** What a write is expected to take, in milliseconds. */
  get roundTripMs(): number {
    return this.#roundTripMs;
  }

  /** An own write or its conflict was answered at `nowMs`, after `tookMs`. */
  wrote(nowMs: number, tookMs: number): void {
    this.#roundTripMs += (Math.min(tookMs, 1_000) - this.#roundTripMs) * NEWEST;
    this.#rivals += (this.#rivalWrites - this.#rivals) * NEWEST;
    this.#rivalWrites = 0;
    this.#lastOwnMs = nowMs;
    this.#chance = this.#random.fraction();
  }

  /** Another webhook's write was seen. */
  rivalWrote(nowMs: number): void {
    this.#rivalWrites++;
    this.#lastRivalMs = nowMs;
    this.#chance = this.#random.fraction();
  }

  /** How long to wait, from `nowMs`, before the next write that carries `waiting` requests; 0 without competition. */
  waitMs(nowMs: number, waiting: number): number {
    if (waiting < 2 || nowMs - this.#lastRivalMs > RIVALRY_ENDS_MS) return 0;
    const shareMs = Math.min(MAX_SHARE_MS, Math.max(MIN_SHARE_MS, this.#roundTripMs * ROUND_TRIPS_PER_SHARE));
    const rivals = Math.max(1, this.#rivals);
    const ownTurnMs = this.#lastOwnMs + shareMs * (rivals + 1) * (0.9 + 0.2 * this.#chance);
    const afterRivalMs = this.#lastRivalMs + shareMs * (0.5 + this.#chance);
    const dueMs = Math.min(Math.max(ownTurnMs, afterRivalMs), this.#lastOwnMs + MAX_WAIT_MS + shareMs * this.#chance);
    return Math.max(0, Math.min(dueMs - nowMs, MAX_WAIT_MS));
  }
}
