/**
 * The response to an admission request, and its AdmissionReview. `responses` makes the response to a verdict, and
 * `deny-status` words a denial. `disruption-events` and `pending-mark` inform people and programs.
 */
import {
  type AdmissionStatus,
  jsonPatch,
  type PatchOperation,
  reviewResponse,
  type WireAdmissionResponse,
} from "../../shared/schema/admission.ts";
import type { BypassResult } from "../request/bypass.ts";
import type { DecisionOf, FailureTag } from "../reserve/verdict.ts";

/** Outcomes of an admission request; metric labels. */
export const OUTCOMES = [
  "unprotected",
  "exempt",
  "allowed",
  "forced",
  "lowered",
  "suspended",
  "denied",
  "busy",
  "dryRunDenied",
  "failed",
  "abandoned",
  "ignored",
  "restartsNothing",
  "bound",
  "gated",
  "notFound",
  "conflict",
  "unbound",
] as const;
export type AdmissionOutcome = (typeof OUTCOMES)[number];

export const ADMISSION_KINDS = ["delete", "evict", "change", "status", "node", "bind", "gate", "other"] as const;
export type AdmissionKind = (typeof ADMISSION_KINDS)[number];

/** The `metav1.Status` of a denial, which the API client sees. */
export type DenyStatus = AdmissionStatus & {
  readonly code: 404 | 409 | 429 | 503;
  readonly reason: "NotFound" | "Conflict" | "TooManyRequests" | "ServiceUnavailable";
};

/** The response that the API client gets, and what logs, metrics and Events record about it. */
export interface AdmissionResponse {
  readonly outcome: AdmissionOutcome;
  /** Status of an HTTP error instead of an AdmissionReview, so that failurePolicy decides. */
  readonly errorStatus?: number;
  /** Message of the denial or the failure. */
  readonly message?: string;
  /** Undefined where the disruption is allowed. */
  readonly denial?: DenyStatus;
  readonly warnings?: readonly string[];
  /** kube-apiserver prefixes the keys with the webhook's name. */
  readonly auditAnnotations?: Readonly<Record<string, string>>;
  readonly patch?: readonly PatchOperation[];
  /** Called once, with whether the response reached the caller. */
  readonly delivered?: (isComplete: boolean) => void;

  readonly pod?: { readonly namespace: string; readonly name: string; readonly uid: string };
  /** The node whose deletion was asked for. */
  readonly node?: string;
  /** A force-delete annotation, followed or not. */
  readonly bypass?: BypassResult | undefined;
  readonly failure?: FailureTag;
  /** The decisions that allowed, or those that denied. */
  readonly decisions?: readonly DecisionOf[];
  /** The request was a dry run, so that nothing happens whatever the response is. */
  readonly dryRun?: boolean;
}

/** A finished admission request, for metrics, log and Events. */
export interface AdmissionRecord extends AdmissionResponse {
  readonly kind: AdmissionKind;
  readonly durationMs: number;
  readonly cell: string;
  readonly uid: string;
  readonly username: string;
  /** Raw; names the workload whose controller was denied the deletion. */
  readonly oldObject?: unknown;
}

/** The JSON before and after the uid of an AdmissionReview that only allows, as most do. */
const [BEFORE_UID = "", AFTER_UID = ""] = JSON.stringify(reviewResponse({ uid: "", allowed: true })).split('""');

/** kube-apiserver passes warnings on in HTTP headers, and silently drops one with a line break. */
function oneLine(warning: string): string {
  return warning.replace(/\p{Cc}+/gu, " ");
}

/** The AdmissionReview for the request of this uid, as JSON. */
export function encodeAdmissionReview(
  uid: string,
  { denial, warnings, auditAnnotations, patch }: Omit<AdmissionResponse, "outcome">,
): string {
  if (denial === undefined && warnings === undefined && auditAnnotations === undefined && patch === undefined)
    return BEFORE_UID + JSON.stringify(uid) + AFTER_UID;
  const response: WireAdmissionResponse = {
    uid,
    allowed: denial === undefined,
    ...(denial === undefined ? {} : { status: denial }),
    ...(warnings === undefined ? {} : { warnings: warnings.map(oneLine) }),
    // The id of this request leads from the audit log to the replica's log.
    ...(auditAnnotations === undefined ? {} : { auditAnnotations: { ...auditAnnotations, review: uid } }),
    ...(patch === undefined ? {} : jsonPatch(patch)),
  };
  return JSON.stringify(reviewResponse(response));
}
