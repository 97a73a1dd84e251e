/** The response to a verdict, to a request without a target, and to an exempt pod. */

import type { Pod } from "../../shared/schema/pod.ts";
import { namespacedName } from "../../shared/schema/podprotector.ts";
import type { BypassResult } from "../request/bypass.ts";
import type { DisruptionTarget, NoTarget } from "../request/disruption-target.ts";
import { type Allowance, type FailureTag, idOf, type Verdict } from "../reserve/verdict.ts";
import type { AdmissionResponse } from "./admission-response.ts";
import type { DenialContext } from "./denial-outlook.ts";
import { denied, denyStatus, MAX_LISTED, preconditionFailed, withBypass } from "./deny-status.ts";

/** Longest reason and end of a suspension in a warning: kube-apiserver cuts a warning at 256 characters. */
const MAX_REASON = 80;

/** kube-apiserver tells its client the text of an HTTP 500. Of a 503 or 504 it tells words of its own instead. */
const ERROR_STATUS = 500;

export function responseToVerdict(
  verdict: Verdict,
  target: DisruptionTarget,
  bypass: BypassResult | undefined,
  context: () => DenialContext,
): AdmissionResponse {
  const { pod, dryRun } = target;
  return { ...respond(verdict, target, bypass, context), pod: identityOf(pod), dryRun, bypass };
}

function respond(
  verdict: Verdict,
  { pod, operation, done }: DisruptionTarget,
  bypass: BypassResult | undefined,
  context: () => DenialContext,
): AdmissionResponse {
  switch (verdict.kind) {
    case "allowed":
      return allowed(verdict.decisions, pod, bypass);
    case "denied": {
      const disruption = { operation, namespace: pod.namespace, pod: pod.name, done };
      const denial = denyStatus(disruption, verdict.decisions, context());
      return withBypass(denied(denial, verdict.decisions, verdict.rollBack), bypass);
    }
    case "podGone":
      return notFound(pod.name);
    case "failed":
      return failed(verdict.tag, verdict.message);
    case "abandoned":
      return { ...failed("deadline", "the caller disconnected"), outcome: "abandoned" };
  }
}

/** The response to a request that disrupts no pod. */
export function responseWithoutTarget(target: NoTarget): AdmissionResponse {
  switch (target.kind) {
    case "bound":
      return { outcome: "bound", patch: target.patch };
    case "notFound":
      return notFound(target.name);
    case "conflict":
    case "unbound":
      return preconditionFailed(target);
    case "unreadable":
      return failed("cell-unavailable", target.message);
    default:
      return { outcome: target.kind };
  }
}

export function responseToExempt(pod: Pod): AdmissionResponse {
  return { outcome: "exempt", pod: identityOf(pod) };
}

/**
 * True for a denial by policy and for a failure. A missing pod and a failed precondition stay errors in dry-run mode.
 */
export function isWarningInDryRun({ outcome, denial, errorStatus }: AdmissionResponse): boolean {
  return (denial !== undefined || errorStatus !== undefined) && outcome !== "notFound" && outcome !== "conflict";
}

function allowed(decisions: readonly Allowance[], pod: Pod, bypass: BypassResult | undefined): AdmissionResponse {
  if (decisions.length === 0) return { outcome: "unprotected" };
  const suspended = decisions.filter(({ decision }) => decision.decision.reason === "Suspended");
  const told = suspended.slice(0, MAX_LISTED);
  const warnings = told.map((allowance) => suspensionWarning(allowance, `pod ${pod.name}`));
  const isForced = bypass?.forced || decisions.some(({ decision }) => decision.decision.reason === "Forced");
  if (isForced)
    warnings.push(
      `pod ${pod.namespace}/${pod.name} is allowed by its annotation ${bypass?.forced ? "force-delete" : "no-protect"}`,
    );
  if (bypass !== undefined) warnings.push(...bypass.warnings);
  const auditAnnotations = {
    decision: decisions
      .slice(0, MAX_LISTED)
      .map(({ protector, decision }) => `${idOf(protector)}=${decision.decision.reason}`)
      .join(","),
    ...(told.length === 0 ? {} : { suspended: told.map(({ protector }) => namespacedName(protector)).join(",") }),
    ...bypass?.auditAnnotations,
  };
  const outcome = isForced ? "forced" : suspended.length > 0 ? "suspended" : "allowed";
  const response = { outcome, decisions, auditAnnotations } as const;
  return warnings.length === 0 ? response : { ...response, warnings };
}

/** Says what is unprotected, until when and why. */
export function suspensionWarning({ protector, decision }: Allowance, what: string): string {
  const { object, state } = decision.version;
  const { suspendedUntilMs, suspendReason: reason } = state.spec;
  const ends = Number.isFinite(suspendedUntilMs) ? ` until ${object.spec.suspend?.until?.slice(0, MAX_REASON)}` : "";
  const why = reason === undefined || reason === "" ? "" : ` (${reason.slice(0, MAX_REASON)})`;
  return `PodProtector ${namespacedName(protector)} is suspended${ends}${why}: it does not protect ${what}`;
}

export function failed(failure: FailureTag, message: string): AdmissionResponse {
  return { outcome: "failed", failure, message, errorStatus: ERROR_STATUS };
}

function notFound(name: string): AdmissionResponse {
  return { outcome: "notFound", denial: { code: 404, reason: "NotFound", message: `pods "${name}" not found` } };
}

function identityOf({ namespace, name, uid }: Pod): NonNullable<AdmissionResponse["pod"]> {
  return { namespace, name, uid };
}
