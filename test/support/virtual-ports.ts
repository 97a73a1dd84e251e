/**
 * Virtual time and seeded chance behind the ports of `shared/runtime/clock.ts`: the shipping code runs unchanged, a day
 * passes in milliseconds, and one seed gives one history.
 */
import type { Clock, Ports, Randomness, Timer, Timers } from "../../shared/runtime/clock.ts";

interface Scheduled {
  readonly atMs: number;
  readonly order: number;
  callback: (() => void) | undefined;
}

export interface VirtualTimeOptions {
  /** Default 1. */
  readonly seed?: number;
  /** Wall clock at the start, Unix milliseconds. Default 2026-01-01T00:00:00Z. */
  readonly startMs?: number;
}

export interface ViewOptions {
  /** How far this process's wall clock is ahead. */
  readonly skewMs?: number;
  /** Seed of its randomness; default: drawn from the parent's. */
  readonly seed?: number;
}

/** The ports of one simulated process: its own clock error and randomness, and an end. */
export interface ProcessPorts extends Ports {
  /** Moves the wall clock of this process alone, as NTP or an operator would. */
  stepWallClock(byMs: number): void;
  /** How far the wall clock is ahead. */
  readonly skewMs: number;
  /** No timer of this process fires any more: it was killed. */
  kill(): void;
  /** Timers that come due wait until `resume`: SIGSTOP, or a machine that sleeps. */
  pause(): void;
  resume(): void;
  /** When it was stopped last, in `elapsedMs`; infinite while it is. */
  readonly stoppedUntilMs: number;
}

const DEFAULT_START_MS = Date.UTC(2026, 0, 1);
/** A chain of timers of no delay that is longer than this within one instant is a loop. */
const MAX_TIMERS_AT_ONE_INSTANT = 100_000;

/** Timers run in the order of (time, setting); between two of them every promise that can settle does. */
export class VirtualTime implements Ports {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Randomness;
  readonly #startMs: number;
  #elapsedMs = 0;
  #order = 0;
  #live = 0;
  readonly #heap: Scheduled[] = [];

  constructor({ seed = 1, startMs = DEFAULT_START_MS }: VirtualTimeOptions = {}) {
    this.#startMs = startMs;
    this.clock = { nowMs: () => this.#startMs + Math.floor(this.#elapsedMs), monotonicMs: () => this.#elapsedMs };
    this.timers = { after: (delayMs, callback) => this.#schedule(delayMs, callback) };
    this.random = seededRandomness(seed);
  }

  /** Virtual milliseconds since the start. */
  get elapsedMs(): number {
    return this.#elapsedMs;
  }

  /** Timers that are set and neither fired nor cancelled. */
  get pendingTimers(): number {
    return this.#live;
  }

  /** When the next timer is due, in `elapsedMs`; undefined when none is set. */
  get nextTimerMs(): number | undefined {
    while (this.#heap[0] !== undefined && this.#heap[0].callback === undefined) this.#pop();
    return this.#heap[0]?.atMs;
  }

  /**
   * Lets `ms` pass and runs every timer that comes due. What a callback throws rejects this call, with time standing at
   * that timer.
   */
  async advance(ms: number): Promise<void> {
    const untilMs = this.#elapsedMs + ms;
    await this.settle();
    let atOneInstant = 0;
    for (let dueMs = this.nextTimerMs; dueMs !== undefined && dueMs <= untilMs; dueMs = this.nextTimerMs) {
      atOneInstant = dueMs > this.#elapsedMs ? 0 : atOneInstant + 1;
      if (atOneInstant > MAX_TIMERS_AT_ONE_INSTANT)
        throw new Error(`virtual time stands still at ${this.#elapsedMs} ms: timers of no delay set each other`);
      await this.#fireNext();
    }
    this.#elapsedMs = Math.max(this.#elapsedMs, untilMs);
    await this.settle();
  }

  /** Runs timers until `condition` holds; resolves false when it does not within `limitMs` of virtual time. */
  async runUntil(condition: () => boolean, limitMs: number): Promise<boolean> {
    const untilMs = this.#elapsedMs + limitMs;
    await this.settle();
    while (!condition()) {
      const dueMs = this.nextTimerMs;
      if (dueMs === undefined || dueMs > untilMs) {
        this.#elapsedMs = untilMs;
        return condition();
      }
      await this.#fireNext();
    }
    return true;
  }

  /** Lets every promise that can settle without time do so. */
  settle(): Promise<void> {
    // A turn of the event loop: Node runs all microtasks and ticks, however long their chain, before an immediate.
    return new Promise((resolve) => setImmediate(resolve));
  }

  /** As {@link settle} between two timers, without the cost of a turn: ticks are run when no microtask is left. */
  #drain(): Promise<void> {
    return new Promise((resolve) => process.nextTick(resolve));
  }

  /** The ports of a process of its own under this time. Its monotonic clock starts at 0. */
  process({ skewMs = 0, seed }: ViewOptions = {}): ProcessPorts {
    return new VirtualProcess(this, skewMs, seededRandomness(seed ?? Math.floor(this.random.fraction() * 2 ** 32)));
  }

  #schedule(delayMs: number, callback: () => void): Timer {
    const entry: Scheduled = { atMs: onGrid(this.#elapsedMs + Math.max(0, delayMs)), order: this.#order++, callback };
    if (!Number.isFinite(entry.atMs)) throw new RangeError(`a timer needs a finite delay, got ${delayMs}`);
    this.#live += 1;
    this.#push(entry);
    return {
      cancel: () => {
        if (entry.callback === undefined) return;
        entry.callback = undefined;
        this.#live -= 1;
      },
    };
  }

  async #fireNext(): Promise<void> {
    const entry = this.#pop();
    const callback = entry?.callback;
    if (entry === undefined || callback === undefined) return;
    this.#elapsedMs = Math.max(this.#elapsedMs, entry.atMs);
    entry.callback = undefined;
    this.#live -= 1;
    callback();
    await this.#drain();
  }

  #push(entry: Scheduled): void {
    const heap = this.#heap;
    let index = heap.push(entry) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !isBefore(entry, above)) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = entry;
  }

  #pop(): Scheduled | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let index = 0;
    for (;;) {
      let child = index * 2 + 1;
      const left = heap[child];
      if (left === undefined) break;
      const right = heap[child + 1];
      let smaller = left;
      if (right !== undefined && isBefore(right, left)) {
        smaller = right;
        child += 1;
      }
      if (!isBefore(smaller, last)) break;
      heap[index] = smaller;
      index = child;
    }
    heap[index] = last;
    return first;
  }
}

class VirtualProcess implements ProcessPorts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Randomness;
  #skewMs: number;
  #alive = true;
  #paused: (() => void)[] | undefined;
  #resumedMs = Number.NEGATIVE_INFINITY;
  readonly #time: VirtualTime;

  constructor(time: VirtualTime, skewMs: number, random: Randomness) {
    const bornMs = time.elapsedMs;
    this.#time = time;
    this.#skewMs = skewMs;
    this.random = random;
    this.clock = { nowMs: () => time.clock.nowMs() + this.#skewMs, monotonicMs: () => time.elapsedMs - bornMs };
    this.timers = {
      after: (delayMs, callback) => {
        let cancelled = false;
        const run = (): void => {
          if (cancelled || !this.#alive) return;
          if (this.#paused !== undefined) this.#paused.push(run);
          else callback();
        };
        const timer = time.timers.after(delayMs, run);
        return {
          cancel: () => {
            cancelled = true;
            timer.cancel();
          },
        };
      },
    };
  }

  get skewMs(): number {
    return this.#skewMs;
  }

  get stoppedUntilMs(): number {
    return this.#paused === undefined ? this.#resumedMs : Number.POSITIVE_INFINITY;
  }

  stepWallClock(byMs: number): void {
    this.#skewMs += byMs;
  }

  kill(): void {
    this.#alive = false;
    this.#paused = undefined;
  }

  pause(): void {
    this.#paused ??= [];
  }

  resume(): void {
    if (this.#paused === undefined) return;
    const waiting = this.#paused;
    this.#paused = undefined;
    this.#resumedMs = this.#time.elapsedMs;
    for (const run of waiting) run();
  }
}

/** Times are whole 1/1024 ms, rounded up: a delay that is too small for the sum would let nothing pass, for ever. */
function onGrid(ms: number): number {
  return Math.ceil(ms * 1024) / 1024;
}

function isBefore(a: Scheduled, b: Scheduled): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

const TOKEN_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** Randomness of one seed (mulberry32): the same seed gives the same sequence on every machine. */
export function seededRandomness(seed: number): Randomness {
  let state = seed >>> 0;
  const fraction = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const character = (): string => TOKEN_CHARACTERS.charAt(Math.floor(fraction() * TOKEN_CHARACTERS.length));
  return { fraction, token: () => Array.from({ length: 8 }, character).join("") };
}
