/** Whether a cluster disrupts protected pods without asking the webhook, or the webhook denies nothing. */
import { GROUP } from "../../shared/schema/annotations.ts";
import { askAboutNoPod } from "./disruption-dry-run.ts";
import { answerFinding, answeringWebhook } from "./doctor/answer-finding.ts";
import { deniesNothing, parseDeployments, WEBHOOK_DEPLOYMENT } from "./doctor/component-findings.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { orElse } from "./invocation/errors.ts";

/** The webhook of the MutatingWebhookConfiguration, which binds an eviction to its pod, but does not decide it. */
const BIND = `bind.${GROUP}`;

/**
 * For a cluster that admitted the disruption of a protected pod in this namespace: whether it did so without asking,
 * for example because its webhook configuration excludes the namespace. A cluster without a webhook configuration may
 * still ask (docs/static-admission.md): then a webhook from its files answers, before those of the API.
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
  const find = async (): Promise<unknown> => (await cluster.find(path)) ?? (await core.find(path));
  // A user who may not read the Deployment sees the webhook's warnings.
  return parseDeployments([await find().catch(orElse(() => undefined))]).some(deniesNothing);
}
