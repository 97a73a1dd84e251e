/**
 * The warning about a disruption that a protector allows only because it does not enforce its decision
 * (docs/design.md#enforcement). Loaded with the first such disruption.
 */
import type { DisruptionTarget } from "../request/disruption-target.ts";
import { type Allowance, type Denial, idOf, unenforcedIn } from "../reserve/verdict.ts";
import type { AdmissionResponse } from "./admission-response.ts";
import type { DenialContext } from "./denial-outlook.ts";
import { causeOf, denyStatus, MAX_LISTED } from "./deny-status.ts";

/** The response, with the text of the denial as a warning. */
export function withDenials(
  response: AdmissionResponse,
  decisions: readonly Allowance[],
  { pod, operation, done }: Pick<DisruptionTarget, "pod" | "operation" | "done">,
  context: DenialContext,
): AdmissionResponse {
  const denials = unenforcedIn(decisions);
  if (denials.length === 0) return response;
  const { message } = denyStatus({ operation, namespace: pod.namespace, pod: pod.name, done }, denials, context);
  return told(response, denials, message);
}

/** The denials replace the decisions, so that Events and logs show what would be denied. */
export function told(response: AdmissionResponse, denials: readonly Denial[], message: string): AdmissionResponse {
  const { warnings = [], auditAnnotations, outcome } = response;
  const notEnforced = denials
    .slice(0, MAX_LISTED)
    .map((one) => `${idOf(one.protector)}=${causeOf(one)}`)
    .join();
  return {
    ...response,
    ...(outcome === "allowed" ? { outcome: "dryRunDenied", decisions: [...denials], message } : {}),
    warnings: [...warnings, `not enforced: ${message}`],
    auditAnnotations: { ...auditAnnotations, "not-enforced": notEnforced },
  };
}
