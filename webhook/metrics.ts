/** The webhook's own metrics. Every series exists at zero from the start. */
import type { Metrics } from "../shared/observe/metrics.ts";
import type { Clock } from "../shared/runtime/clock.ts";
import type { WebhookServer } from "./http/server.ts";
import { certificateExpiryMs } from "./http/serving-certificate.ts";
import { BYPASS_IGNORED } from "./request/exemption.ts";
import type { ProtectorCache } from "./reserve/protector-cache.ts";
import type { FailureTag } from "./reserve/verdict.ts";
import type { LostHistory, ReadPurpose, ReadResult, StatusWriteResult } from "./reserve/writer-observer.ts";
import { ADMISSION_KINDS, type AdmissionRecord, OUTCOMES } from "./respond/admission-response.ts";

const WRITE_RESULTS = [
  "written",
  "conflict",
  "gone",
  "rejected",
  "unknown",
  "unavailable",
] as const satisfies StatusWriteResult[];
const READ_RESULTS = ["found", "gone", "rejected", "unavailable"] as const satisfies ReadResult[];
const READ_PURPOSES = ["first", "stale", "confirm", "conflict", "unknown"] as const satisfies ReadPurpose[];
const FAILURES = [
  "core-unavailable",
  "core-rejected",
  "cell-unavailable",
  "deadline",
  "defect",
] as const satisfies FailureTag[];
const REJECTED_STATUSES = ["400", "404", "405", "413", "415", "500", "503"] as const;
const HISTORY_FINDINGS = ["wentBack", "replaced"] as const satisfies LostHistory[];
const LOST_EVENTS = ["vanished", "back", "released"] as const;
const BACKUP_RESULTS = ["read", "none", "failed"] as const;

/** A core or cell has a name that the operator chose. */
const NAMES = { max: 100 };

const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const SIZES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

function declareRequests(metrics: Metrics) {
  return {
    requests: metrics.counter({
      name: "webhook_reviews_total",
      help: "Admission requests, by kind and outcome.",
      labels: { kind: ADMISSION_KINDS, outcome: OUTCOMES },
    }),
    seconds: metrics.histogram({
      name: "webhook_review_seconds",
      help: "Time from the arrival of an admission request to its response.",
      labels: { kind: ADMISSION_KINDS },
      buckets: SECONDS,
    }),
    failures: metrics.counter({
      name: "webhook_review_failures_total",
      help: "Admission requests answered with an HTTP error, so that failurePolicy decided.",
      labels: { reason: FAILURES },
    }),
    bypassIgnored: metrics.counter({
      name: "webhook_bypass_ignored_total",
      help: "Force-delete annotations that were ignored, by reason; the outcome forced counts those that were followed.",
      labels: { reason: BYPASS_IGNORED },
    }),
    rejected: metrics.counter({
      name: "webhook_rejected_calls_total",
      help: "Calls that were not admission requests: wrong method, type, cell, size or form.",
      labels: { status: REJECTED_STATUSES },
    }),
    defects: metrics.counter({
      name: "webhook_defects_total",
      help: "Decisions that failed because of a defect of the program; each cost one admission request.",
    }),
    reloads: metrics.counter({
      name: "webhook_certificate_reloads_total",
      help: "Serving certificates that were read again.",
      labels: { result: ["ok", "failed"] },
    }),
  };
}

function declareCores(metrics: Metrics) {
  return {
    writes: metrics.counter({
      name: "webhook_status_writes_total",
      help: "Writes of a protector's status, by result.",
      labels: { core: NAMES, result: WRITE_RESULTS },
    }),
    writeSeconds: metrics.histogram({
      name: "webhook_status_write_seconds",
      help: "Time of a write of a protector's status.",
      labels: { core: NAMES },
      buckets: SECONDS,
    }),
    batchSize: metrics.histogram({
      name: "webhook_batch_size",
      help: "Requests decided by one write.",
      labels: { core: NAMES },
      buckets: SIZES,
    }),
    reads: metrics.counter({
      name: "webhook_protector_reads_total",
      help: "Quorum reads of a protector, by purpose and result.",
      labels: { core: NAMES, purpose: READ_PURPOSES, result: READ_RESULTS },
    }),
    exact: metrics.gauge({
      name: "webhook_exact",
      help: "1 when the core stores the fields that exact accounting needs, 0 when its CRD drops them.",
      labels: { core: NAMES },
    }),
  };
}

function declareLosses(metrics: Metrics) {
  return {
    history: metrics.counter({
      name: "webhook_history_lost_total",
      help: "Protectors whose version went back, or that were replaced by another of their name.",
      labels: { core: NAMES, finding: HISTORY_FINDINGS },
    }),
    unparsable: metrics.counter({
      name: "webhook_unreadable_protectors_total",
      help: "Versions of protectors that could not be read; the version before stays in force.",
      labels: { core: NAMES },
    }),
    lostEvents: metrics.counter({
      name: "webhook_ghost_events_total",
      help: "Protectors that vanished without a release, and lost protectors that came back or were released.",
      labels: { core: NAMES, event: LOST_EVENTS },
    }),
    lostDenials: metrics.counter({
      name: "webhook_ghost_refusals_total",
      help: "Denials by a lost protector.",
      labels: { core: NAMES },
    }),
    registerFailures: metrics.counter({
      name: "webhook_register_failures_total",
      help: "Failures to follow the register of released protectors.",
      labels: { core: NAMES },
    }),
    backupReads: metrics.counter({
      name: "webhook_copies_reads_total",
      help: "Reads of the backups in the cells at the start, by result; none: the permission is missing.",
      labels: { cell: NAMES, result: BACKUP_RESULTS },
    }),
  };
}

export class WebhookMetrics {
  readonly #requests: ReturnType<typeof declareRequests>;
  readonly #cores: ReturnType<typeof declareCores>;
  readonly #losses: ReturnType<typeof declareLosses>;
  readonly #isExact = new Map<string, boolean>();

  constructor(metrics: Metrics) {
    this.#requests = declareRequests(metrics);
    this.#cores = declareCores(metrics);
    this.#losses = declareLosses(metrics);
  }

  finished({ kind, outcome, durationMs, failure, decisions, bypass }: AdmissionRecord): void {
    if (bypass?.ignored !== undefined) this.#requests.bypassIgnored.inc({ reason: bypass.ignored });
    for (const { protector, decision } of decisions ?? [])
      if (decision.kind === "lost") this.#losses.lostDenials.inc({ core: protector.core });
    this.#requests.requests.inc({ kind, outcome });
    this.#requests.seconds.observe({ kind }, durationMs / 1000);
    if (failure !== undefined) this.#requests.failures.inc({ reason: failure });
  }

  rejected(status: number): void {
    const known = REJECTED_STATUSES.find((one) => one === String(status)) ?? "500";
    this.#requests.rejected.inc({ status: known });
  }

  crashed(): void {
    this.#requests.defects.inc({});
  }

  reloaded(result: "ok" | "failed"): void {
    this.#requests.reloads.inc({ result });
  }

  wrote(core: string, result: StatusWriteResult, requests: number, tookMs: number): void {
    this.#cores.writes.inc({ core, result });
    this.#cores.writeSeconds.observe({ core }, tookMs / 1000);
    this.#cores.batchSize.observe({ core }, requests);
  }

  read(core: string, purpose: ReadPurpose, result: ReadResult): void {
    this.#cores.reads.inc({ core, purpose, result });
  }

  /** Notes whether a core stores every field; false when it has just turned out that it does not. */
  exact(core: string, isExact: boolean): boolean {
    const before = this.#isExact.get(core);
    if (before !== isExact) this.#cores.exact.set({ core }, isExact ? 1 : 0);
    this.#isExact.set(core, isExact);
    return isExact || before === false;
  }

  historyLost(core: string, finding: LostHistory): void {
    this.#losses.history.inc({ core, finding });
  }

  unparsable(core: string): void {
    this.#losses.unparsable.inc({ core });
  }

  lostProtector(core: string, event: (typeof LOST_EVENTS)[number]): void {
    this.#losses.lostEvents.inc({ core, event });
  }

  registerFailed(core: string): void {
    this.#losses.registerFailures.inc({ core });
  }

  backupRead(cell: string, result: (typeof BACKUP_RESULTS)[number]): void {
    this.#losses.backupReads.inc({ cell, result });
  }
}

/** The gauges that are read from the running webhook at each scrape. */
export function declareGauges(
  metrics: Metrics,
  server: WebhookServer,
  cores: readonly ProtectorCache[],
  clock: Clock,
): void {
  const whole = (name: string, help: string, value: () => number): void =>
    metrics.gaugeFrom({ name, help, labels: {} }, (set) => set({}, value()));
  const byCore = (name: string, help: string, value: (core: ProtectorCache) => number): void =>
    metrics.gaugeFrom({ name, help, labels: { core: NAMES } }, (set) => {
      for (const core of cores) {
        const found = value(core);
        if (Number.isFinite(found)) set({ core: core.name }, found);
      }
    });
  whole("webhook_reviews_in_flight", "Admission requests without a response yet.", () => server.inFlight);
  whole(
    "webhook_review_bodies_bytes",
    "Memory for the bodies of admission requests in flight.",
    () => server.bodyBytes,
  );
  whole(
    "webhook_certificate_expiration_timestamp_seconds",
    "Unix time at which the serving certificate in use expires.",
    () => certificateExpiryMs(server.certificate) / 1000,
  );
  byCore("webhook_protectors", "Protectors in the cache, by core cluster.", ({ size }) => size);
  byCore("webhook_ghosts", "Lost protectors that are in force, by core cluster.", ({ lostCount }) => lostCount);
  byCore("webhook_protectors_suspended", "Protectors that are suspended at the moment, by core cluster.", (core) =>
    core.suspended(clock.nowMs()),
  );
  byCore(
    "webhook_cache_age_seconds",
    "Time since the protectors of a core were last known to be current; decisions need less than 15.",
    (core) => core.cacheAgeMs(clock.monotonicMs()) / 1000,
  );
}
