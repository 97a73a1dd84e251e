import type { Ports } from "../runtime/clock.ts";
import type { Transport } from "./transport.ts";

export type LeaderEvent =
  | { readonly kind: "leading"; readonly transitions: number }
  | { readonly kind: "stopped"; readonly reason: "expired" | "lost" | "released" }
  | { readonly kind: "observed"; readonly holder: string }
  | {
      readonly kind: "failed";
      readonly during: "get" | "create" | "update";
      readonly error: Error;
      readonly retryMs: number;
    };

export interface LeaderElectorOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly namespace: string;
  /** Name of the Lease (design 12). */
  readonly name: string;
  /** Unique among the candidates: `POD_RANDOM`. */
  readonly identity: string;
  /** Default 15,000. */
  readonly leaseDurationMs?: number;
  /** Default 10,000. */
  readonly renewDeadlineMs?: number;
  /** Default 2,000. */
  readonly retryPeriodMs?: number;
  /** `signal` aborts when leadership ends, whatever the reason. */
  readonly onStartedLeading: (signal: AbortSignal) => void;
  readonly onStoppedLeading: () => void;
  readonly onEvent?: (event: LeaderEvent) => void;
}

/** Leader election on a Lease with client-go's semantics. */
export declare class LeaderElector {
  constructor(options: LeaderElectorOptions);
  /** Becomes a candidate; idempotent. After a loss it becomes a candidate again. */
  start(): void;
  /** Gives up candidacy; a leader releases its lease so that another can take over at once. */
  stop(): Promise<void>;
  /** True only while no other candidate can hold the lease, by this process's monotonic clock. Ask before each write. */
  isLeader(): boolean;
  /** The holder as last observed; undefined before the first read, empty when released. */
  get holder(): string | undefined;
}
