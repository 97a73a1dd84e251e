/** The finding of `doctor` about the response to an eviction of a pod that does not exist. Pure. */
import type { ApiResponse } from "../../../shared/kube/client/transport.ts";
import { GROUP } from "../../../shared/schema/annotations.ts";
import { answerOf } from "../disruption-dry-run.ts";
import { statusOf } from "../invocation/cluster.ts";
import { type Finding, ok, problem, unknown } from "./findings.ts";

const CHECK = "webhook";
const DOWN = "see docs/runbooks/PodseidonWebhookDown.md";
/** kube-apiserver's words about the webhook's own error, which they quote. */
const UNDECIDED = /failed calling webhook "[^"]*podseidon[^"]*": .*an error on the server \("/;

/** Webhooks in files on kube-apiserver's host (docs/static-admission.md) have a name that the API does not allow. */
const OWN = [`.${GROUP}`, ".podseidon.static.k8s.io"];

/** The name of the webhook that denied a request. */
export function answeringWebhook(response: ApiResponse): string | undefined {
  return /^admission webhook "([^"]+)"/.exec(statusOf(response).message)?.[1];
}

/** The webhook also decides an eviction of a pod that does not exist: the webhook's 404 shows that it was reached. */
export function answerFinding(response: ApiResponse): Finding {
  const { message } = statusOf(response);
  const name = answeringWebhook(response);
  if (OWN.some((own) => name?.endsWith(own))) {
    if (response.status === 404) return ok(CHECK, `answers as ${name}`);
    return problem(CHECK, message, `it was reached, and can decide nothing: ${DOWN}`);
  }
  if (name !== undefined)
    return unknown(CHECK, message, `${name} denies it before podseidon is asked: let it pass the eviction of this pod`);
  // In dry-run mode, the webhook denies nothing, but warns about each denial.
  if (answerOf(response).warnings.some((text) => text.startsWith("dry run: ")))
    return ok(CHECK, "answers, by warnings alone");
  if (response.status === 403) return unknown(CHECK, message, "asking needs the permission to create pods/eviction");
  if (UNDECIDED.test(message))
    return problem(
      CHECK,
      message,
      "it was reached, and can decide nothing: see docs/runbooks/PodseidonReviewsFailing.md",
    );
  if (response.status >= 500)
    return problem(CHECK, message, `deletions of pods are denied while it does not answer: ${DOWN}`);
  return problem(CHECK, `was not asked: ${message}`, "see the webhook configuration");
}
