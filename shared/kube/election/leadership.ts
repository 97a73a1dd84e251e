import type { Ports, Timer } from "../../runtime/clock.ts";

/** `expired`: could not renew in time. `lost`: another holds it. `released`: given up by `stop`. */
export type StopReason = "expired" | "lost" | "released";

export interface LeadershipHooks {
  /** `signal` aborts when leadership ends, whatever the reason. */
  readonly started: (signal: AbortSignal) => void;
  /** Resolves when nothing of the leadership's work runs any more. A rejection ends the process. */
  readonly stopped: (reason: StopReason) => void | Promise<void>;
}

interface Term {
  readonly controller: AbortController;
  /** Monotonic: from then on another may hold the lease, as far as this process knows. */
  untilMs: number;
  expiry: Timer;
}

/** Whether this process leads, by its monotonic clock alone; one term's work ends before the next begins. */
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

  /** Milliseconds that are left of the term; 0 when this process does not lead. */
  get leftMs(): number {
    return this.#term === undefined ? 0 : Math.max(0, this.#term.untilMs - this.#ports.clock.monotonicMs());
  }

  /** A term was begun and not ended; its time may be over all the same. */
  get begun(): boolean {
    return this.#term !== undefined;
  }

  /** The end of the last term's work. */
  get ended(): Promise<void> {
    return this.#ended;
  }

  /** Begins a term, or lets it last longer; true when one was begun. Without effect in the past, or while a term's work ends. */
  extend(untilMs: number): boolean {
    const leftMs = untilMs - this.#ports.clock.monotonicMs();
    if (leftMs <= 0 || this.#ending) return false;
    if (this.#term !== undefined && this.leftMs === 0) {
      // Its time ran out before its timer could say so (a process that was stopped): its work ends first.
      this.end("expired");
      return false;
    }
    const expiry = this.#ports.timers.after(leftMs, () => this.end("expired"));
    if (this.#term !== undefined) {
      this.#term.expiry.cancel();
      this.#term.untilMs = untilMs;
      this.#term.expiry = expiry;
      return false;
    }
    this.#term = { controller: new AbortController(), untilMs, expiry };
    this.#hooks.started(this.#term.controller.signal);
    return true;
  }

  /** Ends the term, if there is one. */
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
