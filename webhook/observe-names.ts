/**
 * Admission requests by what the users of a cluster name: protectors, namespaces, and themselves. Loaded once the port
 * is open.
 */
import type { Metrics } from "../shared/observe/metrics.ts";
import { topCounter } from "../shared/observe/top-counter.ts";
import type { AdmissionRecord } from "./respond/admission-response.ts";

/** Protectors with series in `webhook_denials_total`. */
const MAX_DENIERS = 500;
/** Namespaces and users with series, where flags ask for them. */
const MAX_NAMESPACES = 200;
const MAX_USERS = 100;
/** Prefix of a kubelet's user name; the rest is the node's name. */
const KUBELET = "system:node:";

interface AskedNames {
  readonly metricsByNamespace: boolean;
  readonly metricsByUser: boolean;
}

/** Returns a function that counts each finished admission request. */
export function observeNames(metrics: Metrics, asked: AskedNames): (record: AdmissionRecord) => void {
  const denials = topCounter(metrics, {
    name: "webhook_denials_total",
    help:
      "Denials by a protector, busy ones too, enforced or only warned of, no dry runs of clients: the 500 that deny " +
      "most; the rest is other.",
    names: ["core", "namespace", "protector"],
    kind: "enforced",
    max: MAX_DENIERS,
  });
  const byNamespace = !asked.metricsByNamespace
    ? undefined
    : topCounter(metrics, {
        name: "webhook_namespace_reviews_total",
        help:
          "Admission requests about pods, by namespace and outcome, no dry runs (--metrics-by-namespace): " +
          "the 200 namespaces that have most; the rest is other.",
        names: ["namespace"],
        kind: "outcome",
        max: MAX_NAMESPACES,
      });
  const byUser = !asked.metricsByUser
    ? undefined
    : topCounter(metrics, {
        name: "webhook_user_reviews_total",
        help:
          "Admission requests by user and outcome, no dry runs (--metrics-by-user): the 100 users that have most; " +
          "the rest is other. All kubelets are system:node.",
        names: ["user"],
        kind: "outcome",
        max: MAX_USERS,
      });
  return ({ pod, username, outcome, decisions = [], dryRun = false }) => {
    if (dryRun) return;
    const enforced = String(outcome !== "dryRunDenied");
    for (const { protector, decision } of decisions) {
      const { core, namespace, name } = protector;
      if (decision.kind !== "allowed") denials.inc({ core, namespace, protector: name, enforced });
    }
    if (pod !== undefined) byNamespace?.inc({ namespace: pod.namespace, outcome });
    byUser?.inc({ user: username.startsWith(KUBELET) ? "system:node" : username, outcome });
  };
}
