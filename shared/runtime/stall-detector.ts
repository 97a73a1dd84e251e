import type { Clock, Ports, Timer } from "./clock.ts";

const BEAT_MS = 500;

/** A process stalls as a whole, so all detectors share one timer. */
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

const beats = new WeakMap<Ports["timers"], Beat>();

function beatOf(timers: Ports["timers"]): Beat {
  const beat = beats.get(timers) ?? new Beat(timers);
  beats.set(timers, beat);
  return beat;
}

/**
 * Notices that this process stalled: a signal stopped it, or its machine slept or was overloaded. `wokeMs` shows a
 * stall even before overdue timers run. Only the wall clock shows the sleep of a machine. A wall clock that was set
 * forward also counts as a stall, which does no harm.
 */
export class StallDetector {
  readonly #clock: Clock;
  readonly #beat: Beat;
  readonly #leastMs: number;
  readonly #wentOn: () => void;
  #aliveMs: number;
  #aliveWallMs: number;
  #wokeMs = Number.NEGATIVE_INFINITY;

  /** Stalls of `leastMs` or longer count; `wentOn` is called within half a second after a stall. */
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

  /** Monotonic time of the end of the last stall; negative infinity without a stall. */
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
