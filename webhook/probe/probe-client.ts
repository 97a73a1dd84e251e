import type { ProbeReply } from "./message.ts";
import type { OwnerQuestion } from "./owner.ts";

/** One way to ask one endpoint. */
export interface Wire {
  /** Rejects with what went wrong, for people; gives up when the signal aborts. */
  ask(question: OwnerQuestion, signal: AbortSignal): Promise<ProbeReply>;
  close(): void;
}

/** More than this was not meant as an answer to a question of yes or no. */
export const MAX_REPLY_BYTES = 64 * 1024;

/** Connections without a call are closed after this. */
export const IDLE_MS = 60_000;

export interface WireOptions {
  readonly endpoint: string;
  readonly caBundle: string | undefined;
  readonly insecure: boolean;
}

export class ProbeFailure extends Error {
  override readonly name: string = "ProbeFailure";
}

/** What went wrong, in one short line; a failed connection carries its reason in `code`. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return "the call failed";
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  return error.message === "" ? code || "the call failed" : error.message;
}
