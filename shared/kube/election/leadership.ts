import type { Ports, Timer } from "../../runtime/clock.ts";

/** `expired`: no renewal in time. `lost`: another candidate holds the lease. `released`: by `stop`. */
export type StopReason = "expired" | "lost" | "released";

interface LeadershipHooks {
  /** `signal` aborts when leadership ends, for any reason. */
  readonly started: (signal: AbortSignal) => void;
  /** Resolves when the leader's work has ended. A rejection ends the process. */
  readonly stopped: (reason: StopReason) => void | Promise<void>;
}

interface Term {
  readonly controller: AbortController;
  /** Monotonic time from which another candidate may hold the lease. */
  untilMs: number;
  expiry: Timer;
}

/** Whether this process leads, by its monotonic clock alone. The work of one term ends before the next begins. */
export class Leadership {
  readonly #ports: Pick<Ports, "clock" | "timers">;
  readonly #hooks: LeadershipHooks;
  #term: Term | undefined;
  #ended: Promise<void> = Promise.resolve();
  #ending = false;

  constructor(ports: Pick<Ports, "clock" | "timers">, hooks: LeadershipHooks) {
    this.#ports = ports;
    this.#hooks = hooks;
  }

  /** Milliseconds until the end of the term; 0 when this process does not lead. */
  get leftMs(): number {
    return this.#term === undefined ? 0 : Math.max(0, this.#term.untilMs - this.#ports.clock.monotonicMs());
  }

  /** True when a term has begun and was not ended, even if its time has passed. */
  get begun(): boolean {
    return this.#term !== undefined;
  }

  /** Resolves when the work of the last term has ended. */
  get ended(): Promise<void> {
    return this.#ended;
  }

  /** Begins or extends a term. Does nothing for a time in the past, and while work ends. */
  extend(untilMs: number): void {
    const leftMs = untilMs - this.#ports.clock.monotonicMs();
    if (leftMs <= 0 || this.#ending) return;
    if (this.#term !== undefined && this.leftMs === 0) {
      // The term expired while the process was stopped, before the timer fired, so the work of this term ends first.
      this.end("expired");
      return;
    }
    const expiry = this.#ports.timers.after(leftMs, () => this.end("expired"));
    if (this.#term !== undefined) {
      this.#term.expiry.cancel();
      this.#term.untilMs = untilMs;
      this.#term.expiry = expiry;
      return;
    }
    this.#term = { controller: new AbortController(), untilMs, expiry };
    this.#hooks.started(this.#term.controller.signal);
  }

  /** Ends the term, if any. */
  end(reason: StopReason): void {
    const term = this.#term;
    if (term === undefined) return;
    this.#term = undefined;
    term.expiry.cancel();
    term.controller.abort();
    this.#ending = true;
    this.#ended = (async () => {
      await this.#hooks.stopped(reason);
      this.#ending = false;
    })();
  }
}
