/**
 * The warning about a request for another health criterion (docs/design.md#health-criterion). Loaded with the first
 * such request.
 */
import type { Criterion } from "../../shared/decide/state/estimate.ts";
import { HEALTH_CRITERION_ANNOTATION } from "../../shared/schema/annotations.ts";
import { idOf } from "../reserve/verdict.ts";
import type { AdmissionResponse } from "./admission-response.ts";

/** The response, with a warning and an audit annotation about the criterion that was asked for. */
export function withCriterion(response: AdmissionResponse, criterion: Criterion): AdmissionResponse {
  const { outcome, decisions = [] } = response;
  const counted = decisions.flatMap(({ protector, decision }) =>
    decision.kind === "allowed" || decision.kind === "denied" ? [{ protector, facts: decision.decision.facts }] : [],
  );
  // A protector with this criterion follows it anyway.
  if (counted.length === 0 || counted.some(({ facts }) => facts.healthCriterion === criterion)) return response;
  const following = counted.filter(({ facts }) => facts.criterion !== undefined);
  if (following.length === 0) {
    const warning =
      `the annotation ${HEALTH_CRITERION_ANNOTATION} is not followed: the protector does not have ${criterion} in ` +
      "spec.allowedHealthCriteria, and the caller is not known to have the permission to bypass it";
    return told(response, warning, { "health-criterion-ignored": criterion });
  }
  if (outcome !== "allowed") return response;
  const protectors = following.map(({ protector }) => idOf(protector)).join(",");
  const message = `the pod is allowed by its health-criterion annotation: pods that are ${criterion} were counted`;
  const audited = { "health-criterion": criterion, "health-criterion-of": protectors };
  return { ...told(response, message, audited), outcome: "lowered", message };
}

function told(
  response: AdmissionResponse,
  warning: string,
  audited: Readonly<Record<string, string>>,
): AdmissionResponse {
  const { warnings = [], auditAnnotations } = response;
  return { ...response, warnings: [...warnings, warning], auditAnnotations: { ...auditAnnotations, ...audited } };
}
