/**
 * The ports through which the shipping code touches time and chance (design 5, style rule 1). Everything in `shared`, `webhook`
 * and `controllers` takes them as arguments, so that a simulation can run the same code under virtual time and one seed.
 */

/** Two clocks that must not be confused: the wall clock can jump and is never used for a safety decision. */
export interface Clock {
  /** Wall clock, Unix milliseconds. For timestamps that people read. */
  nowMs(): number;
  /** Monotonic milliseconds since an arbitrary origin of this process. For durations and deadlines. */
  monotonicMs(): number;
}

/** A timer that was set; `cancel` is idempotent and harmless after the timer fired. */
export interface Timer {
  cancel(): void;
}

export interface Timers {
  /** Calls `callback` once after `delayMs`. Does not keep the process alive by itself. */
  after(delayMs: number, callback: () => void): Timer;
}

export interface Randomness {
  /** Uniform in [0, 1). */
  fraction(): number;
  /** A fresh identifier of 48 random bits as 8 characters of [A-Za-z0-9_-]; for nonces and request ids. */
  token(): string;
}

/** The ports as one value, passed to every part that needs any of them. */
export interface Ports {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Randomness;
}

/**
 * Resolves after `delayMs`, or at once when `signal` aborts. Never rejects: callers look at `signal.aborted`.
 */
export function sleep(ports: Pick<Ports, "timers">, delayMs: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = (): void => {
      timer.cancel();
      signal?.removeEventListener("abort", finish);
      resolve();
    };
    const timer = ports.timers.after(delayMs, finish);
    signal?.addEventListener("abort", finish, { once: true });
  });
}
