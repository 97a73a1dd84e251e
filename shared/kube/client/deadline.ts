import type { Timer, Timers } from "../../runtime/clock.ts";
import { failed } from "./https-errors.ts";
import type { TransportError } from "./transport.ts";

type Expiry = "timeout" | "aborted";

/** The limit of one call: a time limit that can be paused and restarted, and signals that cancel the call. */
export class Deadline {
  readonly #timers: Timers;
  readonly #limitMs: number;
  readonly #signals: readonly AbortSignal[];
  readonly #abort = (): void => this.#expire("aborted");
  readonly #expiry = Promise.withResolvers<never>();
  #timer: Timer | undefined;
  #expired: Expiry | undefined;
  #listener: ((tag: Expiry) => void) | undefined;

  constructor(timers: Timers, limitMs: number, signals: readonly (AbortSignal | undefined)[]) {
    this.#timers = timers;
    this.#limitMs = limitMs;
    this.#signals = signals.filter((signal) => signal !== undefined);
    this.#expiry.promise.catch(() => {});
    for (const signal of this.#signals) {
      if (signal.aborted) this.#expire("aborted");
      else signal.addEventListener("abort", this.#abort, { once: true });
    }
    this.restart();
  }

  get expired(): boolean {
    return this.#expired !== undefined;
  }

  /** The error for an expiry before anything was sent; undefined before the expiry. */
  reason(where: string, detail: string): TransportError | undefined {
    return this.#expired === undefined ? undefined : failed(this.#expired, false, where, { detail });
  }

  /** Sets the only listener. After the expiry, calls it at once. */
  onExpiry(listener: (tag: Expiry) => void): void {
    this.#listener = listener;
    if (this.#expired !== undefined) listener(this.#expired);
  }

  /** Resolves like `work`, or rejects when the deadline comes first. */
  race<R>(work: Promise<R>): Promise<R> {
    return Promise.race([work, this.#expiry.promise]);
  }

  restart(): void {
    this.#timer?.cancel();
    if (this.#expired === undefined) this.#timer = this.#timers.after(this.#limitMs, () => this.#expire("timeout"));
  }

  pause(): void {
    this.#timer?.cancel();
  }

  /** Calls no listener any more. */
  cancel(): void {
    this.#timer?.cancel();
    this.#listener = undefined;
    for (const signal of this.#signals) signal.removeEventListener("abort", this.#abort);
  }

  #expire(tag: Expiry): void {
    if (this.#expired !== undefined) return;
    this.#expired = tag;
    this.#timer?.cancel();
    this.#expiry.reject(new Error(tag));
    this.#listener?.(tag);
  }
}
