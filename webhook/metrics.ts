import type { Counter, Gauge, Histogram, Metrics } from "../shared/observe/metrics.ts";
import { type AdmissionRecord, OUTCOMES, REVIEW_KINDS } from "./handler.ts";
import { BYPASS_IGNORED } from "./request/bypass-labels.ts";
import type { FailureTag } from "./reserve/pending.ts";
import type { ReadPurpose, ReadResult, StatusWriteResult } from "./reserve/writer-observer.ts";

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
const HISTORY_FINDINGS = ["wentBack", "replaced"] as const;
const GHOST_EVENTS = ["vanished", "back", "released"] as const;
const COPIES_RESULTS = ["read", "none", "failed"] as const;

/** A core or cell is named by the operator: few, but not known here. */
const NAMES = { max: 100 };

const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const SIZES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

function shortStatus(status: number): (typeof REJECTED_STATUSES)[number] {
  return REJECTED_STATUSES.find((known) => known === String(status)) ?? "500";
}

/** The webhook's own metrics; every outcome exists at zero from the start (design 11). */
export class WebhookMetrics {
  readonly #reviews: Counter<{ kind: typeof REVIEW_KINDS; outcome: typeof OUTCOMES }>;
  readonly #seconds: Histogram<{ kind: typeof REVIEW_KINDS }>;
  readonly #failures: Counter<{ reason: typeof FAILURES }>;
  readonly #bypassIgnored: Counter<{ reason: typeof BYPASS_IGNORED }>;
  readonly #rejected: Counter<{ status: typeof REJECTED_STATUSES }>;
  readonly #writes: Counter<{ core: typeof NAMES; result: typeof WRITE_RESULTS }>;
  readonly #writeSeconds: Histogram<{ core: typeof NAMES }>;
  readonly #batch: Histogram<{ core: typeof NAMES }>;
  readonly #reads: Counter<{ core: typeof NAMES; purpose: typeof READ_PURPOSES; result: typeof READ_RESULTS }>;
  readonly #history: Counter<{ core: typeof NAMES; finding: typeof HISTORY_FINDINGS }>;
  readonly #crashes: Counter<Record<never, never>>;
  readonly #reloads: Counter<{ result: readonly ["ok", "failed"] }>;
  readonly #exact: Gauge<{ core: typeof NAMES }>;
  readonly #unparsable: Counter<{ core: typeof NAMES }>;
  readonly #ghosts: Counter<{ core: typeof NAMES; event: typeof GHOST_EVENTS }>;
  readonly #ghostRefusals: Counter<{ core: typeof NAMES }>;
  readonly #registerFailures: Counter<{ core: typeof NAMES }>;
  readonly #copies: Counter<{ cell: typeof NAMES; result: typeof COPIES_RESULTS }>;

  readonly #exactness = new Map<string, boolean>();

  constructor(metrics: Metrics) {
    this.#reviews = metrics.counter({
      name: "webhook_reviews_total",
      help: "Reviews answered, by what was asked and how it ended.",
      labels: { kind: REVIEW_KINDS, outcome: OUTCOMES },
    });
    this.#seconds = metrics.histogram({
      name: "webhook_review_seconds",
      help: "Time from the arrival of a review to its answer.",
      labels: { kind: REVIEW_KINDS },
      buckets: SECONDS,
    });
    this.#failures = metrics.counter({
      name: "webhook_review_failures_total",
      help: "Reviews answered with an HTTP error, so that failurePolicy decided.",
      labels: { reason: FAILURES },
    });
    this.#bypassIgnored = metrics.counter({
      name: "webhook_bypass_ignored_total",
      help: "Force-delete annotations that were not followed, by why; reviews with outcome forced are those that were.",
      labels: { reason: BYPASS_IGNORED },
    });
    this.#rejected = metrics.counter({
      name: "webhook_rejected_calls_total",
      help: "Calls that were no reviews: wrong method, type, cell, size or form.",
      labels: { status: REJECTED_STATUSES },
    });
    this.#writes = metrics.counter({
      name: "webhook_status_writes_total",
      help: "Writes of a protector's status, by result.",
      labels: { core: NAMES, result: WRITE_RESULTS },
    });
    this.#writeSeconds = metrics.histogram({
      name: "webhook_status_write_seconds",
      help: "Time of a write of a protector's status.",
      labels: { core: NAMES },
      buckets: SECONDS,
    });
    this.#batch = metrics.histogram({
      name: "webhook_batch_size",
      help: "Requests decided by one write.",
      labels: { core: NAMES },
      buckets: SIZES,
    });
    this.#reads = metrics.counter({
      name: "webhook_protector_reads_total",
      help: "Fresh reads of a protector, by why and result.",
      labels: { core: NAMES, purpose: READ_PURPOSES, result: READ_RESULTS },
    });
    this.#history = metrics.counter({
      name: "webhook_history_lost_total",
      help: "Protectors whose version went back or that were replaced by another of their name.",
      labels: { core: NAMES, finding: HISTORY_FINDINGS },
    });
    this.#crashes = metrics.counter({
      name: "webhook_defects_total",
      help: "Decisions that failed because of a defect of the program; each cost one review.",
    });
    this.#reloads = metrics.counter({
      name: "webhook_certificate_reloads_total",
      help: "Serving certificates that were read again.",
      labels: { result: ["ok", "failed"] },
    });
    this.#exact = metrics.gauge({
      name: "webhook_exact",
      help: "1 when the core keeps the fields that exact accounting rests on, 0 when its CRD drops them.",
      labels: { core: NAMES },
    });
    this.#unparsable = metrics.counter({
      name: "webhook_unreadable_protectors_total",
      help: "Versions of protectors that could not be read and were kept out.",
      labels: { core: NAMES },
    });
    this.#ghosts = metrics.counter({
      name: "webhook_ghost_events_total",
      help: "Protectors that vanished without a release, and those that came back or were released since.",
      labels: { core: NAMES, event: GHOST_EVENTS },
    });
    this.#ghostRefusals = metrics.counter({
      name: "webhook_ghost_refusals_total",
      help: "Refusals by a protector that vanished without a release.",
      labels: { core: NAMES },
    });
    this.#registerFailures = metrics.counter({
      name: "webhook_register_failures_total",
      help: "Failures to follow the register of released protectors.",
      labels: { core: NAMES },
    });
    this.#copies = metrics.counter({
      name: "webhook_copies_reads_total",
      help: "Reads of the copies of protectors in the cells, at the start, by result; none: the permission is missing.",
      labels: { cell: NAMES, result: COPIES_RESULTS },
    });
  }

  /** Notes whether a core keeps what is written; false when it has just turned out that it does not. */
  exact(core: string, isExact: boolean): boolean {
    const before = this.#exactness.get(core);
    if (before !== isExact) this.#exact.set({ core }, isExact ? 1 : 0);
    this.#exactness.set(core, isExact);
    return isExact || before === false;
  }

  ghost(core: string, event: (typeof GHOST_EVENTS)[number]): void {
    this.#ghosts.inc({ core, event });
  }

  registerFailed(core: string): void {
    this.#registerFailures.inc({ core });
  }

  copiesRead(cell: string, result: (typeof COPIES_RESULTS)[number]): void {
    this.#copies.inc({ cell, result });
  }

  finished({ kind, outcome, durationMs, failure, blockers, bypass }: AdmissionRecord): void {
    if (bypass?.ignored !== undefined) this.#bypassIgnored.inc({ reason: bypass.ignored });
    for (const { core, why } of blockers ?? []) if (why.kind === "vanished") this.#ghostRefusals.inc({ core });
    this.#reviews.inc({ kind, outcome });
    this.#seconds.observe({ kind }, durationMs / 1000);
    if (failure !== undefined) this.#failures.inc({ reason: failure });
  }

  rejected(status: number): void {
    this.#rejected.inc({ status: shortStatus(status) });
  }

  wrote(core: string, result: StatusWriteResult, requests: number, tookMs: number): void {
    this.#writes.inc({ core, result });
    this.#writeSeconds.observe({ core }, tookMs / 1000);
    this.#batch.observe({ core }, requests);
  }

  read(core: string, purpose: ReadPurpose, result: ReadResult): void {
    this.#reads.inc({ core, purpose, result });
  }

  historyLost(core: string, finding: (typeof HISTORY_FINDINGS)[number]): void {
    this.#history.inc({ core, finding });
  }

  crashed(): void {
    this.#crashes.inc({});
  }

  reloaded(result: "ok" | "failed"): void {
    this.#reloads.inc({ result });
  }

  unparsable(core: string): void {
    this.#unparsable.inc({ core });
  }
}
