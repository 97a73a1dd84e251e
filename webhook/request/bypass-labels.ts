/** What has to be known of the force-delete annotation before `bypass.ts` is loaded, which few pods need. */
import { FORCE_DELETE_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";

/** Why an annotation did not let its pod go; metric labels. */
export const BYPASS_IGNORED = ["malformed", "expired", "forbidden", "unchecked"] as const;
export type BypassIgnored = (typeof BYPASS_IGNORED)[number];

/** Whether there is anything to judge; most pods have no such annotation. */
export function claimsBypass({ annotations }: Pod): boolean {
  return annotations?.[FORCE_DELETE_ANNOTATION] !== undefined;
}
