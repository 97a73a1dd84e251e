import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { type ApiResult, describeFailure } from "../../shared/kube/client/api-result.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { Batch } from "./batch.ts";
import type { VersionFinding } from "./version-tracker.ts";

export type LostHistory = Extract<VersionFinding, "wentBack" | "replaced">;
export type StatusWriteResult = "written" | "conflict" | "gone" | "rejected" | "unknown" | "unavailable";
export type ReadResult = "found" | "gone" | "rejected" | "unavailable";
/** Why a protector is read although the watch has it. */
export type ReadPurpose = "first" | "stale" | "confirm" | "conflict" | "unknown";

/** What a protector writer reports for metrics, log and re-assertions. */
export interface WriterObserver {
  /** A write has ended; `requests` is the size of its batch. */
  wrote(result: StatusWriteResult, requests: number, tookMs: number, message?: string): void;
  read(purpose: ReadPurpose, result: ReadResult, message?: string): void;
  /** The object's versions went back, or another object has its name. */
  historyLost(finding: LostHistory, before: ProtectorVersion, now: ProtectorVersion): void;
  /** An own write succeeded; `stored` is what the server returned. */
  committed(stored: ProtectorVersion, batch: Batch): void;
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
  return result.kind === "ok" || result.kind === "gone" ? undefined : describeFailure(result);
}

/**
 * True when the server stored an own write without the fields that exact accounting needs: a CRD that does not know them drops them
 * silently. Looks at one of the reservations that were written. The newest buckets are plain, and last.
 */
export function dropsFields(stored: ProtectorVersion, batch: Batch): boolean {
  const pending = batch.writes.findLast((one) => one.kind === "reserve");
  if (pending === undefined) return false;
  const { cell, pod } = pending.request;
  const written = stored.object.status?.cells.find(({ cellID }) => cellID === cell);
  const buckets = written?.admissionHistory?.buckets ?? [];
  const own = buckets.findLast(({ podUID }) => podUID === pod.uid);
  if (own !== undefined) return own.nonce === undefined || own.podResourceVersion === undefined;
  return !buckets.some(({ packed }) => packed !== undefined);
}
