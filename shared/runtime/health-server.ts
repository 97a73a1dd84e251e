import type { CheckResult } from "./lifecycle.ts";

export interface HealthServerOptions {
  /** `host:port`, `:port` or `[v6]:port`; the same for both is one server. Port 0 picks a free one. */
  readonly healthAddress: string;
  readonly metricsAddress: string;
  readonly readiness: () => readonly CheckResult[];
  readonly liveness: () => readonly CheckResult[];
  readonly metrics: () => Promise<{ readonly contentType: string; readonly body: string }>;
}

/** The plain HTTP server of `/healthz`, `/livez`, `/readyz?verbose` and `/metrics`. */
export declare class HealthServer {
  constructor(options: HealthServerOptions);
  /** Rejects with a {@link BindError} when an address can't be had. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** The ports in use. */
  get healthPort(): number;
  get metricsPort(): number;
}

/** An address that can't be listened on; the message says what to do. */
export declare class BindError extends Error {
  readonly code: string;
}
