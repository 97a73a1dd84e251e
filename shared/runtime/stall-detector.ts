import type { Clock, Ports, Timer } from "./clock.ts";

const BEAT_MS = 500;

/** A process stands still as a whole: all who look out for it share one beat. */
class Beat {
  readonly #timers: Ports["timers"];
  readonly #looks = new Set<() => void>();
  #timer: Timer | undefined;

  constructor(timers: Ports["timers"]) {
    this.#timers = timers;
  }

  add(look: () => void): void {
    this.#looks.add(look);
    if (this.#timer === undefined) this.#next();
  }

  remove(look: () => void): void {
    this.#looks.delete(look);
    if (this.#looks.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #next(): void {
    this.#timer = this.#timers.after(BEAT_MS, () => {
      this.#next();
      for (const look of [...this.#looks]) look();
    });
  }
}

/** By the timers of the process. */
const beats = new WeakMap<Ports["timers"], Beat>();

function beatOf(timers: Ports["timers"]): Beat {
  const beat = beats.get(timers) ?? new Beat(timers);
  beats.set(timers, beat);
  return beat;
}

/**
 * Notices that this process stood still: stopped by a signal, or on a machine that slept or had no time for it. It is known to whoever
 * asks, even before the timers that have come due meanwhile. A machine that sleeps shows it by the wall clock alone; where that was only
 * set forward, nothing worse follows than for a standstill.
 */
export class StallDetector {
  readonly #clock: Clock;
  readonly #beat: Beat;
  readonly #leastMs: number;
  readonly #wentOn: () => void;
  #aliveMs: number;
  #aliveWallMs: number;
  #wokeMs = Number.NEGATIVE_INFINITY;

  /** Whatever takes `leastMs` or longer counts; `wentOn` is called within half a second after. */
  constructor({ clock, timers }: Pick<Ports, "clock" | "timers">, leastMs: number, wentOn: () => void) {
    this.#clock = clock;
    this.#beat = beatOf(timers);
    this.#leastMs = leastMs;
    this.#wentOn = wentOn;
    this.#aliveMs = clock.monotonicMs();
    this.#aliveWallMs = clock.nowMs();
  }

  start(): void {
    this.#look();
    this.#beat.add(this.#look);
  }

  stop(): void {
    this.#beat.remove(this.#look);
  }

  /** Monotonic time at which it went on after the last standstill; negative infinity when there was none. */
  get wokeMs(): number {
    this.#look();
    return this.#wokeMs;
  }

  readonly #look = (): void => {
    const nowMs = this.#clock.monotonicMs();
    const wallMs = this.#clock.nowMs();
    const passedMs = Math.max(nowMs - this.#aliveMs, wallMs - this.#aliveWallMs);
    this.#aliveMs = nowMs;
    this.#aliveWallMs = wallMs;
    if (passedMs < this.#leastMs) return;
    this.#wokeMs = nowMs;
    this.#wentOn();
  };
}
