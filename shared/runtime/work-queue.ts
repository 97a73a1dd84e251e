import { Backoff, type BackoffOptions } from "./backoff.ts";
import type { Ports, Timer } from "./clock.ts";

/** For metrics; contains no keys, which would be unbounded labels. */
export type QueueEvent =
  /** A key became ready for a worker; `depth` includes it. */
  | { readonly kind: "queued"; readonly depth: number }
  /** An add without effect: the key is ready, or waits for its backoff. */
  | { readonly kind: "merged" }
  | { readonly kind: "taken"; readonly waitedMs: number; readonly depth: number }
  | { readonly kind: "done"; readonly workedMs: number }
  /** A key that failed `failures` times in a row waits `delayMs`. */
  | { readonly kind: "retried"; readonly failures: number; readonly delayMs: number }
  /** The queue is full (`maxKeys`), so the add was rejected. */
  | { readonly kind: "refused" };

export interface QueueOptions {
  /** For metrics and messages. */
  readonly name: string;
  readonly ports: Ports;
  /** Backoff of a failing key. Default {@link DEFAULT_KEY_BACKOFF}. */
  readonly backoff?: BackoffOptions;
  /** Bound on the keys that are ready, delayed or in backoff. Default {@link DEFAULT_MAX_KEYS}. */
  readonly maxKeys?: number;
  readonly onEvent?: (event: QueueEvent) => void;
}

/** At most 8 tries within the first 10 s of an outage, with any jitter. */
const DEFAULT_KEY_BACKOFF: BackoffOptions = { initialMs: 100, maxMs: 15_000 };
/** Keys represent objects in memory; more keys than this are a leak. */
const DEFAULT_MAX_KEYS = 1_000_000;
/**
 * Longest delay; longer ones are shortened: level-triggered work may run once a day, and timers have a largest delay.
 */
const MAX_DELAY_MS = 24 * 60 * 60 * 1000;

interface Failing {
  readonly backoff: Backoff;
  /** Monotonic time until which the backoff goes on where it was; undefined while the last try failed. */
  easedUntilMs?: number | undefined;
}

interface Delayed {
  readonly dueMs: number;
  readonly timer: Timer;
  /** The delay is a backoff: adds don't overtake it. */
  readonly afterFailure: boolean;
}

/**
 * A work queue with client-go's semantics: a key is ready at most once, one worker at a time processes it, and a key
 * that is added during its processing is processed again afterwards. First in, first out, so that a busy key can't
 * starve the others.
 *
 * One difference: an `add` does not end the backoff of a key. Otherwise, events would turn every outage of a server
 * into a storm of tries. The pending try sees the newest state anyway.
 */
export class WorkQueue<K = string> {
  readonly name: string;
  readonly #ports: Ports;
  readonly #backoffOptions: BackoffOptions;
  readonly #maxKeys: number;
  readonly #onEvent: ((event: QueueEvent) => void) | undefined;
  /** Ready keys in order, with the monotonic time since which they are ready; client-go's "dirty" keys. */
  readonly #ready = new Map<K, number>();
  /**
   * One iterator for the life of the queue: a new one would step over the slot of every key that was taken since the
   * Map last shrank. Until the next key is taken, each key that is added and dropped costs some 50 bytes.
   */
  #order = this.#ready.entries();
  /** Keys in processing, with the monotonic time of their start. */
  readonly #processing = new Map<K, number>();
  /** Keys that were added during their processing, and become ready again when it is done. */
  readonly #again = new Map<K, number>();
  readonly #delayed = new Map<K, Delayed>();
  readonly #failing = new Map<K, Failing>();
  readonly #idle: ((key: K | undefined) => void)[] = [];
  #stopped = false;

  constructor(options: QueueOptions) {
    this.name = options.name;
    this.#ports = options.ports;
    this.#backoffOptions = options.backoff ?? DEFAULT_KEY_BACKOFF;
    this.#maxKeys = options.maxKeys ?? DEFAULT_MAX_KEYS;
    this.#onEvent = options.onEvent;
  }

  /** Keys that wait for a worker. */
  get depth(): number {
    return this.#ready.size;
  }

  /** Keys that wait for a time. */
  get delayed(): number {
    return this.#delayed.size;
  }

  /** Keys in processing. */
  get processing(): number {
    return this.#processing.size;
  }

  /** Keys whose last try failed. */
  get failing(): number {
    let failing = 0;
    for (const { easedUntilMs } of this.#failing.values()) if (easedUntilMs === undefined) failing++;
    return failing;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Milliseconds since the oldest key in processing was taken; 0 when no key is in processing. */
  longestWorkMs(): number {
    return this.#ageOfFirst(this.#processing);
  }

  /** Milliseconds since the first ready key became ready; 0 when no key is ready. */
  longestWaitMs(): number {
    return this.#ageOfFirst(this.#ready);
  }

  /** Makes the key ready. False if the queue is full or stopped. */
  add(key: K): boolean {
    if (this.#delayed.get(key)?.afterFailure === true) return this.#merged();
    return this.addNow(key);
  }

  /** As `add`, but ends the key's backoff: the cause of its failure has passed. */
  addNow(key: K): boolean {
    if (this.#stopped) return false;
    const delayed = this.#delayed.get(key);
    if (delayed?.afterFailure === true) {
      delayed.timer.cancel();
      this.#delayed.delete(key);
    }
    if (this.#ready.has(key) || this.#again.has(key)) return this.#merged();
    if (!this.#admits(key)) return false;
    const nowMs = this.#ports.clock.monotonicMs();
    if (this.#processing.has(key)) {
      this.#again.set(key, nowMs);
      return true;
    }
    this.#makeReady(key, nowMs);
    return true;
  }

  /**
   * Makes the key ready after `delayMs`. The earliest of several delays counts. An `add` before does not cancel the
   * delay.
   */
  addAfter(key: K, delayMs: number): boolean {
    if (delayMs <= 0) return this.add(key);
    return this.#delay(key, delayMs, false);
  }

  /**
   * Makes the key ready after its backoff, which grows until `forget`; no sooner than `atLeastMs` (Retry-After).
   * Returns as `add`.
   */
  addRateLimited(key: K, atLeastMs = 0): boolean {
    if (this.#stopped) return false;
    const known = this.#failing.get(key);
    const isOver = (known?.easedUntilMs ?? Number.POSITIVE_INFINITY) <= this.#ports.clock.monotonicMs();
    const { backoff } =
      known === undefined || isOver ? { backoff: new Backoff(this.#backoffOptions, this.#ports.random) } : known;
    this.#failing.set(key, { backoff });
    const delayMs = Math.max(backoff.nextMs(), atLeastMs);
    const taken = this.#delay(key, delayMs, true);
    if (taken) this.#onEvent?.({ kind: "retried", failures: backoff.failures, delayMs });
    return taken;
  }

  /** The next failure of the key starts with the first backoff. */
  forget(key: K): void {
    this.#failing.delete(key);
  }

  /**
   * The key no longer fails, but its last try asked no server. If it fails again soon, its backoff goes on: otherwise
   * events of which every other one needs a server would turn its outage into a storm of tries.
   */
  ease(key: K): void {
    const failing = this.#failing.get(key);
    if (failing !== undefined) failing.easedUntilMs ??= this.#ports.clock.monotonicMs() + this.#backoffOptions.maxMs;
  }

  /** Takes out a key that waits: there is nothing to do for it any more. False while the key is in processing. */
  drop(key: K): boolean {
    if (this.#processing.has(key)) return false;
    this.#ready.delete(key);
    this.#delayed.get(key)?.timer.cancel();
    this.#delayed.delete(key);
    this.forget(key);
    return true;
  }

  /** Calls of `addRateLimited` for the key since `forget`. */
  failures(key: K): number {
    return this.#failing.get(key)?.backoff.failures ?? 0;
  }

  /** Returns the next ready key, which belongs to the caller until `done`; undefined when no key is ready. */
  tryTake(): K | undefined {
    let next = this.#order.next();
    if (next.done === true) {
      // An iterator that has ended does not see keys that are added later.
      this.#order = this.#ready.entries();
      next = this.#order.next();
      if (next.done === true) return undefined;
    }
    const [key, sinceMs] = next.value;
    this.#ready.delete(key);
    this.#hand(key, sinceMs);
    return key;
  }

  /** As `tryTake`, but waits; undefined once the queue is stopped. */
  take(): Promise<K | undefined> {
    if (this.#stopped) return Promise.resolve(undefined);
    const key = this.tryTake();
    if (key !== undefined) return Promise.resolve(key);
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Ends the processing of a key. A key that was added meanwhile is ready again, behind all others. */
  done(key: K): void {
    const sinceMs = this.#processing.get(key);
    if (sinceMs === undefined) return;
    this.#processing.delete(key);
    this.#onEvent?.({ kind: "done", workedMs: this.#ports.clock.monotonicMs() - sinceMs });
    const againSinceMs = this.#again.get(key);
    this.#again.delete(key);
    // An add during failed processing waits for the backoff, too.
    if (againSinceMs === undefined || this.#stopped || this.#delayed.get(key)?.afterFailure === true) return;
    this.#makeReady(key, againSinceMs);
  }

  /** Returns no more keys, and forgets waiting keys; keys in processing are not affected. Idempotent. */
  stop(): void {
    this.#stopped = true;
    for (const { timer } of this.#delayed.values()) timer.cancel();
    this.#delayed.clear();
    this.#ready.clear();
    this.#again.clear();
    this.#failing.clear();
    for (const resolve of this.#idle.splice(0)) resolve(undefined);
  }

  #delay(key: K, wantedMs: number, afterFailure: boolean): boolean {
    if (this.#stopped) return false;
    const delayMs = Math.min(wantedMs, MAX_DELAY_MS);
    const dueMs = this.#ports.clock.monotonicMs() + delayMs;
    const present = this.#delayed.get(key);
    if (present !== undefined) {
      // A plain delay never shortens a backoff: a backoff replaces it even when it is earlier.
      if (present.afterFailure ? !afterFailure || present.dueMs <= dueMs : !afterFailure && present.dueMs <= dueMs)
        return this.#merged();
      present.timer.cancel();
    } else if (!this.#admits(key)) return false;
    const timer = this.#ports.timers.after(delayMs, () => {
      this.#delayed.delete(key);
      this.addNow(key);
    });
    this.#delayed.set(key, { dueMs, timer, afterFailure });
    return true;
  }

  #makeReady(key: K, sinceMs: number): void {
    const worker = this.#idle.shift();
    if (worker !== undefined) {
      this.#onEvent?.({ kind: "queued", depth: 1 });
      this.#hand(key, sinceMs);
      worker(key);
      return;
    }
    this.#ready.set(key, sinceMs);
    this.#onEvent?.({ kind: "queued", depth: this.#ready.size });
  }

  #hand(key: K, sinceMs: number): void {
    const nowMs = this.#ports.clock.monotonicMs();
    this.#processing.set(key, nowMs);
    this.#onEvent?.({ kind: "taken", waitedMs: nowMs - sinceMs, depth: this.#ready.size });
  }

  #admits(key: K): boolean {
    const known = this.#ready.has(key) || this.#again.has(key) || this.#delayed.has(key) || this.#processing.has(key);
    if (known || this.#ready.size + this.#delayed.size < this.#maxKeys) return true;
    this.#onEvent?.({ kind: "refused" });
    return false;
  }

  #merged(): true {
    this.#onEvent?.({ kind: "merged" });
    return true;
  }

  #ageOfFirst(times: ReadonlyMap<K, number>): number {
    // Maps iterate in the order of insertion, which is chronological.
    for (const sinceMs of times.values()) return this.#ports.clock.monotonicMs() - sinceMs;
    return 0;
  }
}
