/** Whether the protected pods of a cluster go and nobody is asked before. */
import { GROUP } from "../../shared/schema/annotations.ts";
import { answerFinding, answeringWebhook } from "./doctor/answer-finding.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { askAboutNoPod } from "./question.ts";

/** The webhook of the MutatingWebhookConfiguration. It binds an eviction to its pod, and decides none. */
const BIND = `bind.${GROUP}`;

/**
 * Of a cluster that admitted the disruption of a protected pod of this namespace. One without a webhook configuration
 * may ask all the same (docs/static-admission.md): then a webhook of its files answers, before those of the API.
 */
export async function isUnprotected(
  cluster: Pick<ClusterClient, "raw">,
  configuration: unknown,
  namespace: string,
): Promise<boolean> {
  if (configuration !== "none") return false;
  const response = await askAboutNoPod(cluster, namespace);
  return answeringWebhook(response) === BIND || answerFinding(response).level === "problem";
}
