import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { type ApiResult, describeFailure } from "../../shared/kube/client/api-result.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { WrittenBatch } from "./batch.ts";
import type { VersionFinding } from "./version-tracker.ts";

export const WRITE_RESULTS = ["written", "conflict", "gone", "rejected", "unknown", "unavailable"] as const;
type WriteResult = (typeof WRITE_RESULTS)[number];

export const READ_RESULTS = ["found", "gone", "rejected", "unavailable"] as const;
type ReadResult = (typeof READ_RESULTS)[number];

/** Why a protector is read although the watch has shown it. */
export const READ_PURPOSES = ["first", "stale", "confirm", "conflict", "unknown", "outage"] as const;
export type ReadPurpose = (typeof READ_PURPOSES)[number];

export const LOST_HISTORY = ["wentBack", "replaced"] as const satisfies VersionFinding[];

/** What the protector cache of one core and its writers report. */
export type ProtectorEvent =
  | {
      readonly kind: "wrote";
      readonly result: WriteResult;
      readonly requests: number;
      readonly tookMs: number;
      readonly error: string | undefined;
    }
  | {
      readonly kind: "read";
      readonly purpose: ReadPurpose;
      readonly result: ReadResult;
      readonly error: string | undefined;
    }
  /** An own write succeeded; `stored` is what the server returned. */
  | { readonly kind: "committed"; readonly stored: ProtectorVersion; readonly batch: WrittenBatch }
  /** The object's versions went back, or another object has its name. */
  | {
      readonly kind: "historyLost";
      readonly finding: (typeof LOST_HISTORY)[number];
      readonly before: ProtectorVersion;
      readonly now: ProtectorVersion;
    }
  /** `isKept` is false when too many protectors are lost: this one's pods are no longer protected. */
  | { readonly kind: "lost"; readonly protector: ProtectorVersion; readonly isKept: boolean }
  | { readonly kind: "lostEnded"; readonly protector: ProtectorVersion; readonly how: "back" | "released" }
  | { readonly kind: "crashed"; readonly error: unknown };

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
  return result.kind === "ok" || result.kind === "gone" ? undefined : describeFailure(result);
}
