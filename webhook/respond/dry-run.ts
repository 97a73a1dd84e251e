import type { AdmissionResponse } from "./admission-response.ts";

/** The response in dry-run mode to what would be denied. */
export function asWarning(response: AdmissionResponse): AdmissionResponse {
  const { errorStatus: _, denial, delivered: __, auditAnnotations, ...recorded } = response;
  const message = denial?.message ?? response.message ?? "the admission request failed";
  return {
    ...recorded,
    outcome: "dryRunDenied",
    warnings: [`dry run: ${message}`],
    auditAnnotations: { ...auditAnnotations, "dry-run": "true" },
  };
}
