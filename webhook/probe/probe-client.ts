import { codeOf } from "../../shared/kube/client/https-errors.ts";
import type { ProbeResponse } from "./message.ts";
import type { ProbeRequest } from "./probe-request.ts";

/** One connection, or pool of connections, to one endpoint. */
export interface ProbeClient {
  /** Rejects with a reason for people, also when the signal aborts. */
  ask(request: ProbeRequest, signal: AbortSignal): Promise<ProbeResponse>;
  close(): void;
}

export interface ProbeClientOptions {
  readonly endpoint: string;
  readonly caBundle: string | undefined;
  readonly insecure: boolean;
  /** Shown to the owner's server; PEM. */
  readonly clientCertificate?: ClientCertificate | undefined;
}

export interface ClientCertificate {
  readonly cert: string;
  readonly key: string;
}

/** Far more than a yes or no with a reason takes. */
export const MAX_RESPONSE_BYTES = 64 * 1024;

/** Connections without a call are closed after this time. */
export const IDLE_MS = 60_000;

export class ProbeFailure extends Error {
  override readonly name: string = "ProbeFailure";
}

/**
 * What went wrong, in one short line. An error of Node shows only its code: its message names addresses and
 * certificates, and any user who deletes a pod can read it.
 */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return "the call failed";
  return codeOf(error) === "" ? error.message || "the call failed" : codeOf(error.cause) || codeOf(error);
}
