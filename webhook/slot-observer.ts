import type { ApiResult } from "../shared/kube/api-result.ts";
import type { PodProtector } from "../shared/schema/podprotector.ts";
import type { Entry } from "./entry.ts";
import type { Finding } from "./known.ts";
import type { Round } from "./round.ts";

export type LostHistory = Extract<Finding, "wentBack" | "replaced">;
export type WriteResult = "written" | "conflict" | "gone" | "rejected" | "unknown" | "unavailable";
export type ReadResult = "found" | "gone" | "rejected" | "unavailable";
/** Why a protector is read although the watch has it. */
export type ReadPurpose = "first" | "stale" | "confirm" | "conflict" | "unknown";

/** What a slot tells those who count, log and remember. */
export interface SlotObserver {
  /** A write was answered, or not; `requests` is the size of its batch. */
  wrote(result: WriteResult, requests: number, tookMs: number, message?: string): void;
  read(purpose: ReadPurpose, result: ReadResult, message?: string): void;
  /** The object went back or was replaced (design 5.4). */
  historyLost(finding: LostHistory, before: Entry, now: Entry): void;
  /** An own write was made; `entry` is what the server stored. */
  committed(entry: Entry, round: Round): void;
  crashed(error: unknown): void;
}

export function writeResult(result: ApiResult<PodProtector>): WriteResult {
  if (result.kind === "ok") return "written";
  if (result.kind === "unavailable") return result.sent ? "unknown" : "unavailable";
  return result.kind;
}

export function readResult(result: ApiResult<PodProtector>): ReadResult {
  if (result.kind === "ok") return "found";
  return result.kind === "conflict" ? "rejected" : result.kind;
}

export function failureMessage(result: ApiResult<PodProtector>): string | undefined {
  if (result.kind === "unavailable") return result.error.message;
  return result.kind === "rejected" || result.kind === "conflict" ? result.message : undefined;
}
