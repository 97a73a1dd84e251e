/** Whether the protected pods of a cluster go and nobody is asked before, or nothing is denied. */
import { GROUP } from "../../shared/schema/annotations.ts";
import { answerFinding, answeringWebhook } from "./doctor/answer-finding.ts";
import { deniesNothing, parseDeployments, WEBHOOK_DEPLOYMENT } from "./doctor/component-findings.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { CommandError } from "./invocation/errors.ts";
import { askAboutNoPod } from "./question.ts";

/** The webhook of the MutatingWebhookConfiguration. It binds an eviction to its pod, and decides none. */
const BIND = `bind.${GROUP}`;

/**
 * Of a cluster that admitted the disruption of a protected pod of this namespace, which its webhook configuration may
 * leave out. One without a webhook configuration may ask all the same (docs/static-admission.md): then a webhook of its
 * files answers, before those of the API.
 */
export async function isUnprotected(
  cluster: Pick<ClusterClient, "raw">,
  configuration: unknown,
  namespace: string,
): Promise<boolean> {
  const response = await askAboutNoPod(cluster, namespace);
  const webhook = answeringWebhook(response);
  if (configuration !== "none") return webhook === undefined && response.status === 404;
  return webhook === BIND || answerFinding(response).level === "problem";
}

/** Whether the webhook, whose Deployment is in the cluster or in the core, runs with `--dry-run`. */
export async function runsDry(
  cluster: Pick<ClusterClient, "find">,
  core: Pick<ClusterClient, "find">,
  systemNamespace: string,
): Promise<boolean> {
  const path = `/apis/apps/v1/namespaces/${systemNamespace}/deployments/${WEBHOOK_DEPLOYMENT}`;
  try {
    return parseDeployments([(await cluster.find(path)) ?? (await core.find(path))]).some(deniesNothing);
  } catch (error) {
    // Who may not read it learns it by the webhook's warnings.
    if (error instanceof CommandError) return false;
    throw error;
  }
}
