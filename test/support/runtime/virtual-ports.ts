/**
 * Virtual time and seeded chance behind the ports of `shared/runtime/clock.ts`: the shipping code runs unchanged, a day
 * passes in milliseconds, and one seed gives one history.
 */
import type { Clock, Ports, Randomness, Timer, Timers } from "../../../shared/runtime/clock.ts";

/** One timer: its place in the queue, and the handle of its caller. */
class Scheduled implements Timer {
  readonly atMs: number;
  readonly order: number;
  /** Undefined once it ran or was cancelled. */
  callback: (() => void) | undefined;
  /** The process of the timer; undefined for a timer of the world itself. */
  readonly owner: VirtualProcess | undefined;
  readonly #cancelled: () => void;
  /** Due, but its process is paused. */
  isHeld = false;

  constructor(
    atMs: number,
    order: number,
    callback: () => void,
    owner: VirtualProcess | undefined,
    cancelled: () => void,
  ) {
    this.atMs = atMs;
    this.order = order;
    this.callback = callback;
    this.owner = owner;
    this.#cancelled = cancelled;
  }

  cancel(): void {
    if (this.callback === undefined) return;
    this.callback = undefined;
    if (!this.isHeld) this.#cancelled();
  }

  run(): void {
    const { callback } = this;
    this.callback = undefined;
    callback?.();
  }
}

export interface VirtualTimeOptions {
  /** Default 1. */
  readonly seed?: number;
  /** Wall clock at the start, Unix milliseconds. Default 2026-01-01T00:00:00Z. */
  readonly startMs?: number;
}

export interface ViewOptions {
  /** Lead of the wall clock of this process. */
  readonly skewMs?: number;
  /** Seed of its randomness. Default: drawn from the randomness of the parent. */
  readonly seed?: number;
}

/** The ports of one simulated process, with its own clock error and randomness, and with an end. */
export interface ProcessPorts extends Ports {
  /** Moves the wall clock of this process alone, as NTP or an operator would. */
  stepWallClock(byMs: number): void;
  /** Lead of the wall clock. */
  readonly skewMs: number;
  /** Kills the process: no timer of it fires any more. */
  kill(): void;
  /** Stops the process (SIGSTOP, a machine that sleeps): due timers wait until `resume`. */
  pause(): void;
  resume(): void;
  /** End of the last pause in `elapsedMs`; infinite during a pause. */
  readonly stoppedUntilMs: number;
}

const DEFAULT_START_MS = Date.UTC(2026, 0, 1);
/** A longer chain of timers without delay at one instant is a loop. */
const MAX_TIMERS_AT_ONE_INSTANT = 100_000;

/** Timers run in the order of (time, setting). Between two timers, every promise settles that can. */
export class VirtualTime implements Ports {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Randomness;
  readonly #startMs: number;
  #elapsedMs = 0;
  #order = 0;
  #live = 0;
  readonly #heap: Scheduled[] = [];
  readonly #held = new Set<Promise<unknown>>();
  readonly #cancelled = (): void => {
    this.#live -= 1;
  };

  constructor({ seed = 1, startMs = DEFAULT_START_MS }: VirtualTimeOptions = {}) {
    this.#startMs = startMs;
    this.clock = { nowMs: () => this.#startMs + Math.floor(this.#elapsedMs), monotonicMs: () => this.#elapsedMs };
    this.timers = { after: (delayMs, callback) => this.schedule(delayMs, callback, undefined) };
    this.random = seededRandomness(seed);
  }

  /** Virtual milliseconds since the start. */
  get elapsedMs(): number {
    return this.#elapsedMs;
  }

  /** Timers that have neither fired nor been cancelled. */
  get pendingTimers(): number {
    return this.#live;
  }

  /** Time of the next timer in `elapsedMs`; undefined without any. */
  get nextTimerMs(): number | undefined {
    while (this.#heap[0] !== undefined && this.#heap[0].callback === undefined) this.#pop();
    return this.#heap[0]?.atMs;
  }

  /**
   * Lets `ms` pass and runs every timer that comes due. An error of a callback rejects this call, with time standing at
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
      this.#fireNext();
      await this.#drain();
      if (this.#held.size > 0) await this.settle();
    }
    this.#elapsedMs = Math.max(this.#elapsedMs, untilMs);
    await this.settle();
  }

  /**
   * Runs timers until `condition` holds; resolves with false when it does not hold within `limitMs` of virtual time.
   */
  async runUntil(condition: () => boolean, limitMs: number): Promise<boolean> {
    const untilMs = this.#elapsedMs + limitMs;
    await this.settle();
    while (!condition()) {
      const dueMs = this.nextTimerMs;
      if (dueMs === undefined || dueMs > untilMs) {
        this.#elapsedMs = untilMs;
        return condition();
      }
      this.#fireNext();
      await this.#drain();
      if (this.#held.size > 0) await this.settle();
    }
    return true;
  }

  /** The result of `work`; rejects when it does not come within `limitMs` of virtual time. */
  async result<T>(work: T | Promise<T>, limitMs = 20_000): Promise<T> {
    let isDone = false;
    const done = Promise.resolve(work).finally(() => {
      isDone = true;
    });
    if (!(await this.runUntil(() => isDone, limitMs))) throw new Error(`no result within ${limitMs} ms`);
    return await done;
  }

  /** Lets every promise settle that can without time. */
  async settle(): Promise<void> {
    do {
      await Promise.allSettled(this.#held);
      // A turn of the event loop: Node runs all microtasks and ticks, however long their chain, before an immediate.
      await new Promise((resolve) => setImmediate(resolve));
    } while (this.#held.size > 0);
  }

  /** Time stands still until `work` has settled: work of the real machine, such as a signature by WebCrypto. */
  hold<T>(work: Promise<T>): Promise<T> {
    this.#held.add(work);
    const done = (): void => void this.#held.delete(work);
    work.then(done, done);
    return work;
  }

  /** As {@link settle}, without the cost of a turn: Node runs ticks after all microtasks. */
  #drain(): Promise<void> {
    return new Promise((resolve) => process.nextTick(resolve));
  }

  /** Returns the ports of a new process in this time. Its monotonic clock starts at 0. */
  process({ skewMs = 0, seed }: ViewOptions = {}): ProcessPorts {
    return new VirtualProcess(this, skewMs, seededRandomness(seed ?? Math.floor(this.random.fraction() * 2 ** 32)));
  }

  /** Sets a timer of one process, or of the world itself. */
  schedule(delayMs: number, callback: () => void, owner: VirtualProcess | undefined): Timer {
    const atMs = onGrid(this.#elapsedMs + Math.max(0, delayMs));
    if (!Number.isFinite(atMs)) throw new RangeError(`a timer needs a finite delay, got ${delayMs}`);
    const entry = new Scheduled(atMs, this.#order++, callback, owner, this.#cancelled);
    this.#live += 1;
    this.#push(entry);
    return entry;
  }

  #fireNext(): void {
    const entry = this.#pop();
    if (entry?.callback === undefined) return;
    this.#elapsedMs = Math.max(this.#elapsedMs, entry.atMs);
    this.#live -= 1;
    if (entry.owner === undefined) entry.run();
    else entry.owner.due(entry);
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
  #paused: Scheduled[] | undefined;
  #resumedMs = Number.NEGATIVE_INFINITY;
  readonly #time: VirtualTime;

  constructor(time: VirtualTime, skewMs: number, random: Randomness) {
    const bornMs = time.elapsedMs;
    this.#time = time;
    this.#skewMs = skewMs;
    this.random = random;
    this.clock = { nowMs: () => time.clock.nowMs() + this.#skewMs, monotonicMs: () => time.elapsedMs - bornMs };
    this.timers = { after: (delayMs, callback) => time.schedule(delayMs, callback, this) };
  }

  get skewMs(): number {
    return this.#skewMs;
  }

  get stoppedUntilMs(): number {
    return this.#paused === undefined ? this.#resumedMs : Number.POSITIVE_INFINITY;
  }

  /** A timer of this process has come due. */
  due(timer: Scheduled): void {
    if (!this.#alive) return;
    if (this.#paused === undefined) timer.run();
    else {
      timer.isHeld = true;
      this.#paused.push(timer);
    }
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
    for (const timer of waiting) this.due(timer);
  }
}

/** Rounds up to 1/1024 ms: a delay too small for the sum would never let time pass. */
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
  const token = (): string => {
    let text = "";
    while (text.length < 8) text += TOKEN_CHARACTERS.charAt(Math.floor(fraction() * TOKEN_CHARACTERS.length));
    return text;
  };
  return { fraction, token };
}
