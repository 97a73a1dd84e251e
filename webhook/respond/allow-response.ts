/** What is said of a disruption that passes: warnings that a person sees, audit annotations that last. */
import type { Pod } from "../../shared/schema/pod.ts";
import type { AdmissionResponse } from "../request/admission-request.ts";
import type { BypassVerdict } from "../request/bypass.ts";
import { type Judgement, type ProtectorMatch, versionOf } from "../reserve/pipeline.ts";

/** kube-apiserver cuts a warning at 256 characters. */
const MAX_REASON = 80;

/** "is suspended until ... (why)": whoever reads it should know that, and for how long, nothing is protected. */
function suspension(match: ProtectorMatch, pod: Pod): string {
  const { namespace, name } = match;
  const { until, reason } = versionOf(match)?.object.spec.suspend ?? {};
  const ends = until === undefined ? "" : ` until ${until}`;
  const why = reason === undefined || reason === "" ? "" : ` (${reason.slice(0, MAX_REASON)})`;
  return `PodProtector ${namespace}/${name} is suspended${ends}${why}: pod ${pod.name} is let go unprotected`;
}

/** Of suspended protectors, each with its end, for the audit log. */
function suspendedNames(judgements: readonly Judgement[]): string {
  return judgements.map(({ match: { namespace, name } }) => `${namespace}/${name}`).join(",");
}

/** The answer; `decision` is what each protector said, for the audit log. */
export function allowResponse(
  judgements: readonly Judgement[],
  pod: Pod,
  decision: string,
  bypass: BypassVerdict | undefined,
): AdmissionResponse {
  const suspended = judgements.filter(({ reason }) => reason === "Suspended");
  const warnings = suspended.map(({ match }) => suspension(match, pod));
  if (bypass?.forced === true)
    warnings.push(`pod ${pod.namespace}/${pod.name} is let go by its force-delete annotation`);
  warnings.push(...(bypass?.warnings ?? []));
  const auditAnnotations = {
    decision,
    ...(suspended.length === 0 ? {} : { suspended: suspendedNames(suspended) }),
    ...bypass?.auditAnnotations,
  };
  return warnings.length === 0 ? { auditAnnotations } : { auditAnnotations, warnings };
}
