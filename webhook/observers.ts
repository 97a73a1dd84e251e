/** What the webhook logs and counts of each event, and whom it tells. */
import type { ReflectorEvent } from "../shared/kube/informer/reflector-options.ts";
import type { Log } from "../shared/observe/log.ts";
import type { WebhookMetrics } from "./metrics.ts";
import type { OutageDetector } from "./reserve/outage-detector.ts";
import type { LostProtectorObserver } from "./reserve/protector-cache.ts";
import type { RecentReservations } from "./reserve/recent-reservations.ts";
import { dropsFields, type WriterObserver } from "./reserve/writer-observer.ts";
import type { AdmissionRecord } from "./respond/admission-response.ts";
import { idOf } from "./respond/responses.ts";

export interface Observers {
  readonly log: Log;
  readonly metrics: WebhookMetrics;
}

/** Observes the writers of one core. Lost history is answered by writing the recent reservations again. */
export function writerObserver(core: string, { log, metrics }: Observers, recent: RecentReservations): WriterObserver {
  return {
    wrote(result, requests, tookMs, message) {
      metrics.wrote(core, result, requests, tookMs);
      if (result === "written" || result === "conflict") return;
      log.warn({ core, result, requests, tookMs, error: message }, "A protector's status could not be written");
    },
    read(purpose, result, message) {
      metrics.read(core, purpose, result);
      if (result !== "found") log.warn({ core, purpose, result, error: message }, "A protector could not be read");
    },
    historyLost(finding, before, now) {
      metrics.historyLost(core, finding);
      log.warn(
        { core, protector: now.key, finding, before: before.version, now: now.version },
        "A protector's history may be lost; its cells are put on hold",
      );
      const cells = new Set(before.object.status?.cells.map(({ cellID }) => cellID));
      recent.reassert(now.key, finding === "wentBack" ? "WentBack" : "Replaced", cells);
    },
    committed(stored, batch) {
      recent.remember(stored.key, batch);
      if (metrics.exact(core, !dropsFields(stored, batch))) return;
      log.error(
        { core, protector: stored.key },
        "The PodProtector CRD of a core drops fields of this project: reservations are no longer exact; apply the CRD of this release",
      );
    },
    crashed(error) {
      metrics.crashed();
      log.error({ core, error }, "A decision failed because of a defect");
    },
  };
}

export function lostProtectorObserver(core: string, { log, metrics }: Observers): LostProtectorObserver {
  return {
    lost({ key, uid }, isKept) {
      metrics.lostProtector(core, "vanished");
      const fields = { core, protector: key, uid };
      if (isKept) log.error(fields, "A protector vanished without a release; its pods are refused until it is back");
      else log.error(fields, "Too many protectors have vanished: this one does not protect any more");
    },
    ended({ key, uid }, how) {
      metrics.lostProtector(core, how);
      log.warn({ core, protector: key, uid, how }, "A protector that had vanished is back or was released");
    },
  };
}

/** Tags of failures in which nothing was heard of the server. */
const SILENT: ReadonlySet<string> = new Set(["timeout", "dns"]);

export function noteWatchEvent(outage: OutageDetector, event: ReflectorEvent): void {
  if (event.kind === "failed") outage.failed(SILENT.has(event.tag));
  else if (event.kind === "listed" && event.reason === "standstill") outage.assumeOutage();
  else if (event.kind === "listed" || event.kind === "watching" || event.kind === "confirmed") outage.succeeded();
}

export function logWatchEvent(log: Log, core: string, event: ReflectorEvent): void {
  if (event.kind === "failed") log.warn({ core, ...event }, "Watching the protectors of a core failed");
  else if (event.kind === "unparsable") log.error({ core, ...event }, "A protector cannot be read");
  else if (event.kind === "versionWentBack") log.warn({ core, ...event }, "A core cluster went back in time");
  else log.debug({ core, ...event }, "Watching the protectors of a core");
}

export function logAdmission(log: Log, record: AdmissionRecord): void {
  const { kind, outcome, cell, uid, username, pod, durationMs, message, failure, decisions = [] } = record;
  if (outcome === "unprotected" || outcome === "exempt" || outcome === "ignored") return;
  const protectors = decisions.map(({ protector }) => idOf(protector));
  const fields = { review: uid, kind, outcome, cell, username, pod, durationMs, protectors, message, failure };
  if (outcome === "failed") log.warn(fields, "A review could not be decided");
  else if (outcome === "allowed" || outcome === "bound") log.debug(fields, "Review");
  else log.info(fields, "Review");
}
