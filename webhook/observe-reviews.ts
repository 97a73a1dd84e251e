/** The metrics and log lines of admission requests: how many, what became of them, whose, and how long they took. */
import type { Log } from "../shared/observe/log.ts";
import type { Metrics } from "../shared/observe/metrics.ts";
import { NAMES, SECONDS } from "./observe.ts";
import { BYPASS_IGNORED } from "./request/exemption.ts";
import { FAILURE_TAGS, idOf } from "./reserve/verdict.ts";
import { ADMISSION_KINDS, type AdmissionRecord, OUTCOMES } from "./respond/admission-response.ts";

/** Protectors with series in `webhook_denials_total`. */
const MAX_DENIERS = 500;
/** Namespaces and users with series, where these are asked for. */
const MAX_NAMESPACES = 200;
const MAX_USERS = 100;
/** How the name of a kubelet begins; the rest is the node's. */
const KUBELET = "system:node:";
const BOOLEANS = ["false", "true"];

/** Which admission requests are counted by what the cluster's users name. */
interface ReviewMetrics {
  readonly metricsByNamespace: boolean;
  readonly metricsByUser: boolean;
}

/** Returns what counts and logs each finished admission request. */
export function observeAdmissions(
  metrics: Metrics,
  log: Log,
  asked: ReviewMetrics = { metricsByNamespace: false, metricsByUser: false },
): (record: AdmissionRecord) => void {
  const requests = metrics.counter({
    name: "webhook_reviews_total",
    help: "Admission requests, by kind and outcome; kubectl podseidon asks by dry runs.",
    labels: { kind: ADMISSION_KINDS, outcome: OUTCOMES, dry_run: BOOLEANS },
  });
  const seconds = metrics.histogram({
    name: "webhook_review_seconds",
    help: "Time from the arrival of an admission request to its response.",
    labels: { kind: ADMISSION_KINDS },
    buckets: SECONDS,
  });
  const failures = metrics.counter({
    name: "webhook_review_failures_total",
    help: "Admission requests answered with an HTTP error: failurePolicy decided.",
    labels: { reason: FAILURE_TAGS },
  });
  const bypassIgnored = metrics.counter({
    name: "webhook_bypass_ignored_total",
    help: "Force-delete annotations that were ignored, by reason.",
    labels: { reason: BYPASS_IGNORED },
  });
  const byCell = metrics.counter({
    name: "webhook_cell_reviews_total",
    help: "Admission requests, by cell and outcome.",
    labels: { cell: NAMES, outcome: OUTCOMES },
  });
  const denials = metrics.topCounter({
    name: "webhook_denials_total",
    help:
      "Denials by a protector, busy ones too, enforced or only warned of, no dry runs of clients: the 500 that deny " +
      "most; the rest is other.",
    names: ["core", "namespace", "protector"],
    kind: "enforced",
    max: MAX_DENIERS,
  });
  const byName = namedReviews(metrics, asked);
  const lostDenials = metrics.counter({
    name: "webhook_lost_protector_denials_total",
    help: "Denials by a lost protector.",
    labels: { core: NAMES },
  });
  return (record) => {
    const { kind, outcome, durationMs, failure, decisions, bypass, dryRun = false } = record;
    if (bypass?.ignored !== undefined) bypassIgnored.inc({ reason: bypass.ignored });
    const enforced = String(outcome !== "dryRunDenied");
    for (const { protector, decision } of dryRun ? [] : (decisions ?? [])) {
      const { core, namespace, name } = protector;
      if (decision.kind === "lost") lostDenials.inc({ core });
      if (decision.kind !== "allowed") denials.inc({ core, namespace, protector: name, enforced });
    }
    requests.inc({ kind, outcome, dry_run: String(dryRun) });
    byCell.inc({ cell: record.cell, outcome });
    if (!dryRun) byName(record);
    seconds.observe({ kind }, durationMs / 1000);
    if (failure !== undefined) failures.inc({ reason: failure });
    logAdmission(log, record);
  };
}

/** Counts by namespace and by user, where that is asked for. */
function namedReviews(metrics: Metrics, asked: ReviewMetrics): (record: AdmissionRecord) => void {
  const byNamespace = !asked.metricsByNamespace
    ? undefined
    : metrics.topCounter({
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
    : metrics.topCounter({
        name: "webhook_user_reviews_total",
        help:
          "Admission requests by user and outcome, no dry runs (--metrics-by-user): the 100 users that have most; " +
          "the rest is other. All kubelets are system:node.",
        names: ["user"],
        kind: "outcome",
        max: MAX_USERS,
      });
  return ({ pod, username, outcome }) => {
    if (pod !== undefined) byNamespace?.inc({ namespace: pod.namespace, outcome });
    byUser?.inc({ user: username.startsWith(KUBELET) ? "system:node" : username, outcome });
  };
}

function logAdmission(log: Log, record: AdmissionRecord): void {
  const { kind, outcome, cell, uid, username, pod, durationMs, message, failure, decisions = [] } = record;
  if (outcome === "unprotected" || outcome === "exempt" || outcome === "ignored") return;
  const protectors = decisions.map(({ protector }) => idOf(protector));
  const fields = { review: uid, kind, outcome, cell, username, pod, durationMs, protectors, message, failure };
  if (outcome === "failed") log.warn(fields, "A review could not be decided");
  else if (outcome === "allowed" || outcome === "bound") log.debug(fields, "Review");
  else log.info(fields, "Review");
}
