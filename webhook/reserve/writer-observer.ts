import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { Batch } from "./batch.ts";
import type { VersionFinding } from "./version-tracker.ts";

export type LostHistory = Extract<VersionFinding, "wentBack" | "replaced">;
export type StatusWriteResult = "written" | "conflict" | "gone" | "rejected" | "unknown" | "unavailable";
export type ReadResult = "found" | "gone" | "rejected" | "unavailable";
/** Why a protector is read although the watch has it. */
export type ReadPurpose = "first" | "stale" | "confirm" | "conflict" | "unknown";

/** What a slot tells those who count, log and remember. */
export interface WriterObserver {
  /** A write was answered, or not; `requests` is the size of its batch. */
  wrote(result: StatusWriteResult, requests: number, tookMs: number, message?: string): void;
  read(purpose: ReadPurpose, result: ReadResult, message?: string): void;
  /** The object went back or was replaced (design 5.4). */
  historyLost(finding: LostHistory, before: ProtectorVersion, now: ProtectorVersion): void;
  /** An own write was made; `entry` is what the server stored. */
  committed(entry: ProtectorVersion, round: Batch): void;
  crashed(error: unknown): void;
}

export function writeResult(result: ApiResult<PodProtector>): StatusWriteResult {
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
