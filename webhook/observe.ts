/**
 * The metrics and log lines of a replica and its process; `observe-reviews.ts` has those of admission requests. Every
 * series exists at zero from the start.
 */
import type { ReflectorEvent } from "../shared/kube/informer/reflector-options.ts";
import { counted, type EventTable, limitLines, observeEvents } from "../shared/observe/event-table.ts";
import { gaugeOf } from "../shared/observe/gauge.ts";
import type { Log } from "../shared/observe/log.ts";
import type { Metrics } from "../shared/observe/metrics.ts";
import type { Clock } from "../shared/runtime/clock.ts";
import type { WebhookServer } from "./http/server.ts";
import { certificateExpiryMs } from "./http/serving-certificate.ts";
import type { ProtectorCache } from "./reserve/protector-cache.ts";
import {
  LOST_HISTORY,
  type ProtectorEvent,
  READ_PURPOSES,
  READ_RESULTS,
  WRITE_RESULTS,
} from "./reserve/protector-event.ts";

const BACKUP_RESULTS = ["read", "none", "failed"] as const;

/** What a replica and its process report, beside finished admission requests. */
export type WebhookEvent =
  | (Exclude<ProtectorEvent, { kind: "committed" }> & { readonly core: string })
  /** The core stores every field of an own write, or drops fields that exact accounting needs. */
  | { readonly kind: "exact" | "inexact"; readonly core: string; readonly protector: string }
  | { readonly kind: "watch"; readonly core: string; readonly event: ReflectorEvent }
  | { readonly kind: "registerFailed"; readonly core: string; readonly error: unknown }
  | {
      readonly kind: "backupRead";
      readonly cell: string;
      readonly result: (typeof BACKUP_RESULTS)[number];
      readonly detail: string;
    }
  | { readonly kind: "markFailed"; readonly cell: string; readonly error: string }
  /** A call was answered without the handler. */
  | { readonly kind: "rejected"; readonly status: number; readonly reason: string }
  /** A defect failed one admission request. */
  | { readonly kind: "requestCrashed"; readonly error: unknown }
  | { readonly kind: "certificateReloaded"; readonly file: string }
  | { readonly kind: "certificateUnusable"; readonly error: unknown };

type Rows<K extends WebhookEvent["kind"]> = Pick<EventTable<WebhookEvent>, K>;

const REJECTED_STATUSES = ["400", "401", "403", "404", "405", "413", "415", "500", "503"] as const;
const LOST_EVENTS = ["vanished", "back", "released"] as const;

/** A core or cell has a name that the operator chose. */
export const NAMES = { max: 100 };

export const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** Lost protectors with their own series. */
const LOST = { max: 200 };
const SIZES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/** Anybody who reaches the port can send calls that are rejected, so each status gets one log line in this time. */
const REJECTED_EVERY_MS = 10_000;

/** Returns the `onEvent` of a replica and its process. */
export function observeWebhook(metrics: Metrics, log: Log, clock: Clock): (event: WebhookEvent) => void {
  const defects = metrics.counter({
    name: "webhook_defects_total",
    help: "Decisions and watch events that failed by a defect; each cost one admission request or one event.",
  });
  const defect = (): void => defects.inc({});
  const table = { ...callRows(metrics, defect), ...lossRows(metrics), ...processRows(metrics, clock, defect) };
  return observeEvents<WebhookEvent>({ log }, table);
}

/** Calls to the cores. */
function callRows(metrics: Metrics, defect: () => void): Rows<"wrote" | "read" | "exact" | "inexact" | "watch"> {
  const writes = metrics.counter({
    name: "webhook_status_writes_total",
    help: "Writes of a protector's status, by result.",
    labels: { core: NAMES, result: WRITE_RESULTS },
  });
  const writeSeconds = metrics.histogram({
    name: "webhook_status_write_seconds",
    help: "Time of a write of a protector's status.",
    labels: { core: NAMES },
    buckets: SECONDS,
  });
  const batchSize = metrics.histogram({
    name: "webhook_batch_size",
    help: "Requests decided by one write.",
    labels: { core: NAMES },
    buckets: SIZES,
  });
  const exact = metrics.gauge({
    name: "webhook_exact",
    help: "1 when the core stores what exact accounting needs, 0 when its CRD drops fields.",
    labels: { core: NAMES },
  });
  const unparsable = metrics.counter({
    name: "webhook_unreadable_protectors_total",
    help: "Versions of protectors that can't be read; the one before stays in force.",
    labels: { core: NAMES },
  });
  return {
    wrote: {
      level: "warn",
      message: "A protector's status could not be written",
      fields: ({ kind: _, ...fields }) =>
        fields.result === "written" || fields.result === "conflict" ? undefined : fields,
      count({ core, result, requests, tookMs }) {
        writes.inc({ core, result });
        writeSeconds.observe({ core }, tookMs / 1000);
        batchSize.observe({ core }, requests);
      },
    },
    read: {
      level: "warn",
      message: "A protector could not be read",
      fields: ({ kind: _, ...fields }) => (fields.result === "found" ? undefined : fields),
      count: counted(metrics, {
        name: "webhook_protector_reads_total",
        help: "Quorum reads of a protector, by purpose and result.",
        labels: { core: NAMES, purpose: READ_PURPOSES, result: READ_RESULTS },
        of: ({ core, purpose, result }) => ({ core, purpose, result }),
      }),
    },
    exact: { count: ({ core }) => exact.set({ core }, 1) },
    inexact: {
      level: "error",
      message:
        "The PodProtector CRD of a core drops fields of this project: " +
        "reservations are no longer exact; apply the CRD of this release",
      count: ({ core }) => exact.set({ core }, 0),
    },
    watch: {
      line: ({ event }) => WATCH_LINES[event.kind] ?? ["debug", "Watching the protectors of a core"],
      fields: ({ core, event }) => ({ core, ...event }),
      count({ core, event }) {
        if (event.kind === "unparsable") unparsable.inc({ core });
        if (event.kind === "handlerFailed") defect();
      },
    },
  };
}

const WATCH_LINES: Readonly<Partial<Record<ReflectorEvent["kind"], readonly ["warn" | "error", string]>>> = {
  failed: ["warn", "Watching the protectors of a core failed"],
  unparsable: ["error", "A protector cannot be read"],
  handlerFailed: ["error", "A change of a protector was not followed because of a defect"],
  versionWentBack: ["warn", "A core cluster went back in time"],
};

/** Lost history, and lost protectors. */
function lossRows(metrics: Metrics): Rows<"historyLost" | "lost" | "lostEnded" | "registerFailed" | "backupRead"> {
  const lostEvents = metrics.counter({
    name: "webhook_lost_protector_events_total",
    help: "Protectors that vanished without a release, that came back, or that were released.",
    labels: { core: NAMES, event: LOST_EVENTS },
  });
  return {
    historyLost: {
      level: "warn",
      message: "A protector's history may be lost; its cells are put on hold",
      fields: ({ core, finding, before, now }) => ({
        ...{ core, protector: now.key, finding },
        ...{ before: before.version, now: now.version },
      }),
      count: counted(metrics, {
        name: "webhook_history_lost_total",
        help: "Protectors whose version went back, or that were replaced by another of their name.",
        labels: { core: NAMES, finding: LOST_HISTORY },
        of: ({ core, finding }) => ({ core, finding }),
      }),
    },
    lost: {
      line: ({ isKept }) => [
        "error",
        isKept
          ? "A protector vanished without a release; disruptions of its pods are denied until it is back"
          : "Too many protectors have vanished: this one does not protect any more",
      ],
      fields: ({ core, protector: { key, uid } }) => ({ core, protector: key, uid }),
      count: ({ core }) => lostEvents.inc({ core, event: "vanished" }),
    },
    lostEnded: {
      level: "warn",
      message: "A protector that had vanished is back or was released",
      fields: ({ core, protector: { key, uid }, how }) => ({ core, protector: key, uid, how }),
      count: ({ core, how }) => lostEvents.inc({ core, event: how }),
    },
    registerFailed: {
      level: "warn",
      message: "The register of released protectors cannot be followed",
      count: counted(metrics, {
        name: "webhook_register_failures_total",
        help: "Failures to follow the release register.",
        labels: { core: NAMES },
        of: ({ core }) => ({ core }),
      }),
    },
    backupRead: {
      line: ({ result }) =>
        result === "read"
          ? ["info", "The backups of protectors in a cell were read"]
          : ["error", "The backups of protectors in a cell cannot be read"],
      fields: ({ cell, detail }) => ({ cell, detail }),
      count: counted(metrics, {
        name: "webhook_backup_reads_total",
        help: "Reads of the cells' backups at the start, by result; none: the permission is missing.",
        labels: { cell: NAMES, result: BACKUP_RESULTS },
        of: ({ cell, result }) => ({ cell, result }),
      }),
    },
  };
}

function processRows(
  metrics: Metrics,
  clock: Clock,
  count: () => void,
): Rows<"crashed" | "requestCrashed" | "rejected" | "markFailed" | "certificateReloaded" | "certificateUnusable"> {
  const reloads = metrics.counter({
    name: "webhook_certificate_reloads_total",
    help: "Serving certificates that were read again.",
    labels: { result: ["ok", "failed"] },
  });
  const unusable = metrics.gauge({
    name: "webhook_certificate_unusable",
    help: "1 while the files hold a serving certificate, key or client CA that can't be used; the ones before serve.",
  });
  const limited = limitLines(clock, REJECTED_EVERY_MS);
  return {
    crashed: { level: "error", message: "A decision failed because of a defect", count },
    requestCrashed: { level: "error", message: "An admission request failed because of a defect", count },
    rejected: {
      // Only an apiserver sends a POST. Its client's disruption fails, and the client does not learn the reason.
      line: ({ status }) => [
        status === 405 ? "debug" : "warn",
        "A call was rejected; an apiserver's failurePolicy decides",
      ],
      fields: ({ status, reason }) => limited(String(status), { status, reason }),
      count: counted(metrics, {
        name: "webhook_rejected_calls_total",
        help: "Calls of a wrong caller, method, type, cell, size or form.",
        labels: { status: REJECTED_STATUSES },
        of: ({ status }) => ({ status: REJECTED_STATUSES.find((known) => known === String(status)) ?? "500" }),
      }),
    },
    markFailed: { level: "warn", message: "A pending disruption could not be marked" },
    certificateReloaded: {
      level: "info",
      message: "The serving certificate was read again",
      count() {
        reloads.inc({ result: "ok" });
        unusable.set({}, 0);
      },
    },
    certificateUnusable: {
      level: "error",
      message: "The new serving certificate cannot be used; the old one stays",
      count() {
        reloads.inc({ result: "failed" });
        unusable.set({}, 1);
      },
    },
  };
}

type ShownCore = Pick<ProtectorCache, "name" | "size" | "lostCount" | "lost" | "leftOut" | "suspended" | "cacheAgeMs">;

/** Declares the gauges that are read from the running webhook at each scrape. */
export function declareGauges(
  metrics: Metrics,
  server: Pick<WebhookServer, "inFlight" | "bodyBytes" | "certificate">,
  cores: readonly ShownCore[],
  clock: Clock,
): void {
  const byCore = (name: string, help: string, value: (core: ShownCore) => number): void =>
    metrics.gaugeFrom({ name, help, labels: { core: NAMES } }, (set) => {
      for (const core of cores) set({ core: core.name }, value(core));
    });
  gaugeOf(metrics, "webhook_reviews_in_flight", "Admission requests without a response yet.", () => server.inFlight);
  const bodiesHelp = "Memory for the bodies of admission requests in flight.";
  gaugeOf(metrics, "webhook_review_bodies_bytes", bodiesHelp, () => server.bodyBytes);
  const expiryHelp = "Unix time at which the serving certificate in use expires.";
  const expirySeconds = (): number => certificateExpiryMs(server.certificate) / 1000;
  gaugeOf(metrics, "webhook_certificate_expiration_timestamp_seconds", expiryHelp, expirySeconds);
  byCore("webhook_protectors", "Protectors in the cache, by core cluster.", ({ size }) => size);
  byCore(
    "webhook_lost_protectors",
    "Lost protectors that are in force, by core cluster.",
    ({ lostCount }) => lostCount,
  );
  metrics.gaugeFrom(
    {
      name: "webhook_lost_protector",
      help: "1 for each lost protector that is in force; up to 200 of a core.",
      labels: { core: NAMES, namespace: LOST, protector: LOST },
    },
    (set) => {
      for (const core of cores)
        for (const { namespace, name } of core.lost(LOST.max)) set({ core: core.name, namespace, protector: name }, 1);
    },
  );
  const leftOutHelp = "Protectors that decide nothing, because --protector-selector leaves them out.";
  byCore("webhook_protectors_left_out", leftOutHelp, ({ leftOut }) => leftOut);
  const suspendedHelp = "Protectors that are suspended at the moment, by core cluster.";
  byCore("webhook_protectors_suspended", suspendedHelp, (core) => core.suspended(clock.nowMs()));
  const ageHelp =
    "Time since the protectors of a core were last known to be current, at most since the start; " +
    "decisions need less than 15.";
  const startedMs = clock.monotonicMs();
  // A replica that has never reached a core has to show in the alert, too.
  byCore("webhook_cache_age_seconds", ageHelp, (core) => {
    const nowMs = clock.monotonicMs();
    return Math.min(core.cacheAgeMs(nowMs), nowMs - startedMs) / 1000;
  });
}
