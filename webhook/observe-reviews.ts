/**
 * The metrics and log lines of admission requests: their number, outcome and duration. `observe-names.ts` counts them
 * by protector, namespace and user.
 */
import type { Log } from "../shared/observe/log.ts";
import type { Metrics } from "../shared/observe/metrics.ts";
import { NAMES, SECONDS } from "./observe.ts";
import { BYPASS_IGNORED } from "./request/exemption.ts";
import { FAILURE_TAGS, idOf } from "./reserve/verdict.ts";
import { ADMISSION_KINDS, type AdmissionRecord, OUTCOMES } from "./respond/admission-response.ts";
import { MAX_LISTED } from "./respond/deny-status.ts";

const BOOLEANS = ["false", "true"];

/** Returns a function that counts and logs each finished admission request. */
export function observeAdmissions(metrics: Metrics, log: Log): (record: AdmissionRecord) => void {
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
  const lostDenials = metrics.counter({
    name: "webhook_lost_protector_denials_total",
    help: "Denials by a lost protector.",
    labels: { core: NAMES },
  });
  return (record) => {
    const { kind, outcome, durationMs, failure, decisions, bypass, dryRun = false } = record;
    if (bypass?.ignored !== undefined) bypassIgnored.inc({ reason: bypass.ignored });
    for (const { protector, decision } of dryRun ? [] : (decisions ?? []))
      if (decision.kind === "lost") lostDenials.inc({ core: protector.core });
    requests.inc({ kind, outcome, dry_run: String(dryRun) });
    byCell.inc({ cell: record.cell, outcome });
    seconds.observe({ kind }, durationMs / 1000);
    if (failure !== undefined) failures.inc({ reason: failure });
    logAdmission(log, record);
  };
}

function logAdmission(log: Log, record: AdmissionRecord): void {
  const { kind, outcome, cell, uid, username, pod, durationMs, message, failure, decisions = [] } = record;
  if (outcome === "unprotected" || outcome === "exempt" || outcome === "ignored") return;
  const protectors = decisions.slice(0, MAX_LISTED).map(({ protector }) => idOf(protector));
  const more = decisions.length > MAX_LISTED ? { moreProtectors: decisions.length - MAX_LISTED } : {};
  const fields = { review: uid, kind, outcome, cell, username, pod, durationMs, protectors, ...more, message, failure };
  if (outcome === "failed") log.warn(fields, "A review could not be decided");
  else if (outcome === "allowed" || outcome === "bound") log.debug(fields, "Review");
  else log.info(fields, "Review");
}
