import type { Ports } from "./clock.ts";

/** Undefined: fine. Otherwise what is wrong, for a person to read. */
export type Check = () => string | undefined;

/** Something that is started, asked whether it is ready, and stopped. */
export interface Part {
  readonly name: string;
  /** Resolves when what comes after may start; need not mean ready. A rejection ends the process. */
  start?(): void | Promise<void>;
  /** Readiness of this part. */
  readonly ready?: Check;
  /** Liveness of this part: a problem gets the process restarted. */
  readonly live?: Check;
  /** Stops taking work and ends what is under way; `signal` aborts when the grace period is nearly over. */
  stop?(signal: AbortSignal): void | Promise<void>;
}

export type LifecycleEvent =
  | { readonly kind: "starting"; readonly part: string }
  | { readonly kind: "started"; readonly durationMs: number }
  | { readonly kind: "stopping"; readonly reason: string; readonly graceMs: number }
  | { readonly kind: "stopped"; readonly part: string; readonly durationMs: number }
  | { readonly kind: "stop-failed"; readonly part: string; readonly error: Error }
  | { readonly kind: "grace-exceeded"; readonly parts: readonly string[] }
  | { readonly kind: "fatal"; readonly reason: string; readonly error: Error }
  | { readonly kind: "exit"; readonly code: number };

/** The process as the lifecycle needs it; `systemProcess` is the real one. */
export interface ProcessPort {
  onSignal(handler: (signal: "SIGTERM" | "SIGINT") => void): void;
  onUncaught(handler: (error: Error) => void): void;
  exit(code: number): void;
}

export interface LifecycleOptions {
  readonly ports: Ports;
  readonly process: ProcessPort;
  /** From the signal to the exit. Below the pod's terminationGracePeriodSeconds. */
  readonly graceMs: number;
  /** Unready, but still serving, for so long first: endpoints take a while to leave every load balancer. */
  readonly unreadyMs: number;
  readonly onEvent?: (event: LifecycleEvent) => void;
}

export interface CheckResult {
  readonly name: string;
  readonly problem: string | undefined;
}

/** The life of one process: parts start in the order they were added and stop in reverse. */
export declare class Lifecycle {
  constructor(options: LifecycleOptions);
  /** Throws after `run`. */
  add(part: Part): this;
  /** Starts everything; resolves with the exit code when all has ended. Does not call `process.exit` itself before. */
  run(): Promise<number>;
  /** As SIGTERM does. */
  shutdown(reason: string, code?: number): void;
  /** Readiness, check by check; empty problems mean ready. */
  readiness(): readonly CheckResult[];
  liveness(): readonly CheckResult[];
  get stopping(): boolean;
}
