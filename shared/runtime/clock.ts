/**
 * The ports to time and randomness. All shipping code gets them as arguments, so that a simulation can run the same
 * code under virtual time and one seed; `system-ports.ts` implements them.
 */

/** Two clocks. The wall clock can jump, and no safety decision uses it. */
export interface Clock {
  /** Wall clock in Unix milliseconds, for timestamps that people read. */
  nowMs(): number;
  /** Monotonic milliseconds since an arbitrary origin of this process, for durations and deadlines. */
  monotonicMs(): number;
}

/** `cancel` is idempotent, and harmless after the timer fired. */
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
  /** 48 random bits as 8 characters of [A-Za-z0-9_-], for nonces and request ids. */
  token(): string;
}

export interface Ports {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Randomness;
}

/** Resolves when `signal` aborts. Until then, it stays at `signal`. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

/** Resolves after `delayMs`, or at once when `signal` aborts. Never rejects: callers check `signal.aborted`. */
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
