import type { Clock, Ports, Timer } from "./clock.ts";

const BEAT_MS = 500;

/**
 * Notices that this process stood still: stopped by a signal, or on a machine that slept or had no time for it. It is known to whoever
 * asks, even before the timers that have come due meanwhile. A machine that sleeps shows it by the wall clock alone; where that was only
 * set forward, nothing worse follows than for a standstill.
 */
export class Standstill {
  readonly #clock: Clock;
  readonly #timers: Ports["timers"];
  readonly #leastMs: number;
  readonly #wentOn: () => void;
  #aliveMs: number;
  #aliveWallMs: number;
  #wokeMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  /** Whatever takes `leastMs` or longer counts; `wentOn` is called within half a second after. */
  constructor({ clock, timers }: Pick<Ports, "clock" | "timers">, leastMs: number, wentOn: () => void) {
    this.#clock = clock;
    this.#timers = timers;
    this.#leastMs = leastMs;
    this.#wentOn = wentOn;
    this.#aliveMs = clock.monotonicMs();
    this.#aliveWallMs = clock.nowMs();
  }

  start(): void {
    this.#look();
    this.#timer = this.#timers.after(BEAT_MS, () => this.start());
  }

  stop(): void {
    this.#timer?.cancel();
  }

  /** Monotonic time at which it went on after the last standstill; negative infinity when there was none. */
  get wokeMs(): number {
    this.#look();
    return this.#wokeMs;
  }

  #look(): void {
    const nowMs = this.#clock.monotonicMs();
    const wallMs = this.#clock.nowMs();
    const passedMs = Math.max(nowMs - this.#aliveMs, wallMs - this.#aliveWallMs);
    this.#aliveMs = nowMs;
    this.#aliveWallMs = wallMs;
    if (passedMs < this.#leastMs) return;
    this.#wokeMs = nowMs;
    this.#wentOn();
  }
}
