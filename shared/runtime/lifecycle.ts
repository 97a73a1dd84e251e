import type { Ports, Timer } from "./clock.ts";
import { toError } from "./errors.ts";

/** Returns the problem, for people; undefined without one. */
type Check = () => string | undefined;

/** A part of a process: the lifecycle starts it, asks whether it is ready, and stops it. */
export interface Part {
  readonly name: string;
  /** Resolves when the next part may start, ready or not. A rejection ends the process. */
  start?(): void | Promise<void>;
  readonly ready?: Check;
  /** A problem makes the kubelet restart the process, so only for problems that a restart solves. */
  readonly live?: Check;
  /**
   * Takes no more work, and ends work in progress. `signal` aborts shortly before the grace period ends. Called after
   * `start`, even if `start` has not finished.
   */
  stop?(signal: AbortSignal): void | Promise<void>;
}

export type LifecycleEvent =
  | { readonly kind: "starting"; readonly part: string }
  | { readonly kind: "started"; readonly durationMs: number }
  | { readonly kind: "stopping"; readonly reason: string; readonly graceMs: number }
  | { readonly kind: "stopped"; readonly part: string; readonly durationMs: number }
  | { readonly kind: "stop-failed"; readonly part: string; readonly error: Error }
  | { readonly kind: "grace-exceeded"; readonly part: string }
  | { readonly kind: "fatal"; readonly reason: string; readonly error: Error }
  | { readonly kind: "exit"; readonly code: number };

export type StopSignal = "SIGTERM" | "SIGINT";

/** The port to the process; `system-process.ts` implements it. */
export interface ProcessPort {
  onSignal(handler: (signal: StopSignal) => void): void;
  onUncaught(handler: (error: Error) => void): void;
  /** Keeps the process alive until the returned function is called; timers of the ports don't. */
  hold(): () => void;
  exit(code: number): void;
}

interface LifecycleOptions {
  readonly ports: Ports;
  readonly process: ProcessPort;
  /** Milliseconds from the signal to the exit. Less than the pod's terminationGracePeriodSeconds. */
  readonly graceMs: number;
  /**
   * Milliseconds for which the process still serves, unready: it takes a while until every load balancer has removed an
   * endpoint.
   */
  readonly unreadyMs: number;
  readonly onEvent?: (event: LifecycleEvent) => void;
}

export interface CheckResult {
  readonly name: string;
  readonly problem: string | undefined;
}

const EXIT_FAILURE = 1;
/** 128 + the signal's number, as in shells. */
const EXIT_BY_SIGNAL: Readonly<Record<StopSignal, number>> = { SIGINT: 130, SIGTERM: 143 };
/** Time between the abort of `stop`'s signal and the end of the grace period. */
const ABORT_BEFORE_END_MS = 1000;

interface Shutdown {
  readonly reason: string;
  code: number;
}

/**
 * The life of one process. Parts start in the order in which they were added, and stop in reverse. After SIGTERM or
 * SIGINT, the process is unready, still serves for a while, and stops every part within the grace period, with exit
 * code 0. A part that does not stop in time makes the exit code 1. A second signal exits at once, and so does an
 * uncaught error.
 */
export class Lifecycle {
  readonly #options: LifecycleOptions;
  readonly #parts: Part[] = [];
  readonly #begun: Part[] = [];
  readonly #abort = new AbortController();
  #state: "new" | "starting" | "running" | "stopping" = "new";
  #shutdown: Shutdown | undefined;
  #wake: () => void = () => {};

  constructor(options: LifecycleOptions) {
    this.#options = options;
  }

  get stopping(): boolean {
    return this.#shutdown !== undefined;
  }

  /** Throws once `run` was called. */
  add(part: Part): this {
    if (this.#state !== "new") throw new Error(`part ${part.name} was added to a process that already runs`);
    this.#parts.push(part);
    return this;
  }

  readiness(): readonly CheckResult[] {
    const own = this.stopping
      ? "the process is shutting down"
      : this.#state === "running"
        ? undefined
        : "the process is starting";
    return [{ name: "process", problem: own }, ...this.#parts.flatMap((part) => resultOf(part.name, part.ready))];
  }

  liveness(): readonly CheckResult[] {
    return [{ name: "process", problem: undefined }, ...this.#parts.flatMap((part) => resultOf(part.name, part.live))];
  }

  /** Stops the process like SIGTERM. The highest of several codes is the exit code. */
  shutdown(reason: string, code = 0): void {
    if (this.#shutdown !== undefined) this.#shutdown.code = Math.max(this.#shutdown.code, code);
    else this.#shutdown = { reason, code };
    this.#wake();
  }

  /** Starts all parts, waits for the end, and stops all parts; resolves with the exit code. */
  async run(): Promise<number> {
    if (this.#state !== "new") throw new Error("a lifecycle runs once");
    this.#state = "starting";
    const { process, onEvent } = this.#options;
    const release = process.hold();
    process.onSignal((signal) => {
      if (this.stopping) this.#exitNow(EXIT_BY_SIGNAL[signal]);
      else this.shutdown(signal);
    });
    process.onUncaught((error) => {
      onEvent?.({ kind: "fatal", reason: "an error that nobody caught", error });
      this.#exitNow(EXIT_FAILURE);
    });
    const requested = new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (this.stopping) resolve();
    });
    await Promise.race([this.#start(), requested]);
    await requested;
    const code = await this.#stop();
    onEvent?.({ kind: "exit", code });
    release();
    return code;
  }

  async #start(): Promise<void> {
    const { ports, onEvent } = this.#options;
    const beganMs = ports.clock.monotonicMs();
    for (const part of this.#parts) {
      if (this.stopping) return;
      onEvent?.({ kind: "starting", part: part.name });
      this.#begun.push(part);
      try {
        await part.start?.();
      } catch (thrown) {
        const error = toError(thrown);
        onEvent?.({ kind: "fatal", reason: `${part.name} could not start`, error });
        this.shutdown(`${part.name} could not start`, exitCodeOf(error));
      }
    }
    if (this.stopping) return;
    this.#state = "running";
    onEvent?.({ kind: "started", durationMs: ports.clock.monotonicMs() - beganMs });
  }

  async #stop(): Promise<number> {
    const { ports, onEvent, graceMs, unreadyMs } = this.#options;
    const shutdown = this.#shutdown ?? { reason: "", code: EXIT_FAILURE };
    const served = this.#state === "running";
    this.#state = "stopping";
    onEvent?.({ kind: "stopping", reason: shutdown.reason, graceMs });
    const timers: Timer[] = [];
    const after = (delayMs: number): Promise<"late"> =>
      new Promise((resolve) => timers.push(ports.timers.after(Math.max(0, delayMs), () => resolve("late"))));
    timers.push(ports.timers.after(Math.max(0, graceMs - ABORT_BEFORE_END_MS), () => this.#abort.abort()));
    const graceOver = after(graceMs);
    // No load balancer has a process that was never ready.
    if (served && unreadyMs > 0) await Promise.race([after(unreadyMs), graceOver]);
    const stuck = await this.#stopParts(graceOver);
    for (const timer of timers) timer.cancel();
    if (stuck !== undefined) onEvent?.({ kind: "grace-exceeded", part: stuck });
    return stuck === undefined ? shutdown.code : Math.max(shutdown.code, EXIT_FAILURE);
  }

  /** Resolves with the name of the part that did not stop in time. */
  async #stopParts(graceOver: Promise<"late">): Promise<string | undefined> {
    const { ports, onEvent } = this.#options;
    for (const part of this.#begun.toReversed()) {
      const beganMs = ports.clock.monotonicMs();
      const stopped = (async () => {
        try {
          await part.stop?.(this.#abort.signal);
          onEvent?.({ kind: "stopped", part: part.name, durationMs: ports.clock.monotonicMs() - beganMs });
        } catch (thrown) {
          onEvent?.({ kind: "stop-failed", part: part.name, error: toError(thrown) });
        }
      })();
      if ((await Promise.race([stopped, graceOver])) === "late") return part.name;
    }
    return undefined;
  }

  #exitNow(code: number): void {
    this.#options.onEvent?.({ kind: "exit", code });
    this.#options.process.exit(code);
  }
}

function resultOf(name: string, check: Check | undefined): CheckResult[] {
  if (check === undefined) return [];
  try {
    return [{ name, problem: check() }];
  } catch (thrown) {
    return [{ name, problem: `the check failed: ${toError(thrown).message}` }];
  }
}

/** An error may have its own exit code, such as that of a wrong configuration. */
function exitCodeOf(error: Error): number {
  return "exitCode" in error && typeof error.exitCode === "number" ? error.exitCode : EXIT_FAILURE;
}
