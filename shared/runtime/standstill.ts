import type { Ports, Timer } from "./clock.ts";

const BEAT_MS = 500;

/**
 * Notices that this process stood still: stopped by a signal, on a machine that slept or had no time for it. It is known to whoever asks,
 * even before the timers that have come due meanwhile.
 */
export class Standstill {
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #leastMs: number;
  readonly #wentOn: () => void;
  #aliveMs: number;
  #wokeMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  /** Whatever takes `leastMs` or longer counts; `wentOn` is called within half a second after. */
  constructor(ports: Pick<Ports, "clock" | "timers">, leastMs: number, wentOn: () => void) {
    this.#ports = ports;
    this.#leastMs = leastMs;
    this.#wentOn = wentOn;
    this.#aliveMs = ports.clock.monotonicMs();
  }

  start(): void {
    this.#look();
    this.#timer = this.#ports.timers.after(BEAT_MS, () => this.start());
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
    const nowMs = this.#ports.clock.monotonicMs();
    const stoodStill = nowMs - this.#aliveMs >= this.#leastMs;
    this.#aliveMs = nowMs;
    if (!stoodStill) return;
    this.#wokeMs = nowMs;
    this.#wentOn();
  }
}
