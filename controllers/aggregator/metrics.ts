/** The aggregator's events as Prometheus metrics (design 11). Every outcome is there at zero from the start. */

import type { Metrics } from "../../shared/observe/metrics.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import { OPERATIONS } from "../../shared/schema/podprotector.ts";
import type { Aggregator } from "./aggregator.ts";
import { RESTORE_SIGNS } from "./counting/cell-pods.ts";
import {
  type AggregatorEvent,
  type EventSink,
  GATE_REASONS,
  RECONCILE_RESULTS,
  REFUSALS,
  SETTLE_RULES,
  WRITE_CAUSES,
  WRITE_FAILURES,
} from "./events.ts";

const CORE = { max: 100 };
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Declares the metrics that count events of these cores; returns the sink that feeds them. */
export function eventMetrics(metrics: Metrics, cores: readonly string[]): EventSink {
  const reconciles = metrics.counter({
    name: "aggregator_reconciles_total",
    help: "Protectors looked at, by what came of it.",
    labels: { core: CORE, result: RECONCILE_RESULTS },
  });
  const reconcileSeconds = metrics.histogram({
    name: "aggregator_reconcile_seconds",
    help: "Duration of one look at a protector, its write included.",
    buckets: SECONDS,
  });
  const writes = metrics.counter({
    name: "aggregator_writes_total",
    help: "Status writes that were made, by cause.",
    labels: { core: CORE, cause: WRITE_CAUSES },
  });
  const writeSeconds = metrics.histogram({
    name: "aggregator_write_seconds",
    help: "Duration of one status write.",
    labels: { core: CORE },
    buckets: SECONDS,
  });
  const latency = metrics.histogram({
    name: "aggregator_publish_seconds",
    help: "From the receipt of a pod's change to the response of the write that publishes it.",
    labels: { core: CORE },
    buckets: SECONDS,
  });
  const failures = metrics.counter({
    name: "aggregator_write_failures_total",
    help: "Status writes (and the reads after a conflict) that were not made, by kind.",
    labels: { core: CORE, failure: WRITE_FAILURES },
  });
  const settled = metrics.counter({
    name: "aggregator_reservations_settled_total",
    help: "Reservations taken out of the history, by operation and by the rule that settled them.",
    labels: { operation: [...OPERATIONS, "RANGE"], rule: SETTLE_RULES },
  });
  const refusals = metrics.counter({
    name: "aggregator_refusals_total",
    help: "Accountings that could not be written, because the snapshot is older than what is stored.",
    labels: { core: CORE, reason: REFUSALS },
  });
  const holds = metrics.counter({
    name: "aggregator_holds_total",
    help: "Cells put on hold because history may have been lost, by core.",
    labels: { core: CORE },
  });
  const restores = metrics.counter({
    name: "aggregator_cell_restores_total",
    help: "Times that the cell was seen to be restored to an older state.",
    labels: { sign: RESTORE_SIGNS },
  });
  const evidence = metrics.counter({
    name: "aggregator_evidence_total",
    help: "Quorum reads that settle reservations: GETs by what they found, and LISTs.",
    labels: { method: ["get", "list"], found: ["alive", "dead", "failed", "asked"] },
  });
  const voided = metrics.counter({
    name: "aggregator_voided_total",
    help: "Pods annotated to void a reservation that was never used (--void-after).",
    labels: { result: ["done", "gone", "failed"] },
  });
  const gates = metrics.counter({
    name: "aggregator_gates_opened_total",
    help: "Counted readiness gates that were opened, by why; Overdue: the count could not be stored within the bound.",
    labels: { reason: GATE_REASONS },
  });
  const gateSeconds = metrics.histogram({
    name: "aggregator_gate_seconds",
    help: "From a pod's being ready but for the counted gate to the gate's being open.",
    buckets: SECONDS,
  });
  const gateFailures = metrics.counter({
    name: "aggregator_gate_failures_total",
    help: "Tries to open a counted readiness gate that failed; they are repeated.",
  });
  const inexact = metrics.gauge({
    name: "aggregator_inexact_cores",
    help: "1 where the core's CRD drops this project's fields, so that accounting fell back to upstream's clock rule.",
    labels: { core: CORE },
  });
  for (const core of cores) {
    for (const result of RECONCILE_RESULTS) reconciles.inc({ core, result }, 0);
    for (const cause of WRITE_CAUSES) writes.inc({ core, cause }, 0);
    for (const failure of WRITE_FAILURES) failures.inc({ core, failure }, 0);
    for (const reason of REFUSALS) refusals.inc({ core, reason }, 0);
    holds.inc({ core }, 0);
    inexact.set({ core }, 0);
  }

  const record = (event: AggregatorEvent): void => {
    switch (event.kind) {
      case "reconciled":
        reconciles.inc({ core: event.id.core, result: event.result });
        reconcileSeconds.observe({}, event.durationMs / 1000);
        return;
      case "wrote":
        writes.inc({ core: event.id.core, cause: event.cause });
        writeSeconds.observe({ core: event.id.core }, event.durationMs / 1000);
        if (event.latencyMs !== undefined) latency.observe({ core: event.id.core }, event.latencyMs / 1000);
        return;
      case "writeFailed":
        failures.inc({ core: event.id.core, failure: event.failure });
        return;
      case "dropped":
        settled.inc({ operation: event.operation ?? "RANGE", rule: event.rule });
        return;
      case "refused":
        refusals.inc({ core: event.id.core, reason: event.refusal });
        return;
      case "held":
        holds.inc({ core: event.id.core });
        return;
      case "cellRestored":
        restores.inc({ sign: event.how });
        return;
      case "evidence":
        evidence.inc({ method: event.method, found: event.found });
        return;
      case "gateOpened":
        gates.inc({ reason: event.reason });
        gateSeconds.observe({}, event.waitedMs / 1000);
        return;
      case "gateFailed":
        gateFailures.inc({});
        return;
      case "voided":
        voided.inc({ result: event.result });
        return;
      case "fieldsDropped":
        inexact.set({ core: event.core }, 1);
        return;
      default:
        return;
    }
  };
  return record;
}

/** Declares the metrics that are read off the aggregator at each scrape. */
export function stateMetrics(metrics: Metrics, aggregator: Aggregator, clock: Clock): void {
  metrics.gaugeFrom(
    { name: "aggregator_protectors", help: "Protectors followed, by core.", labels: { core: CORE } },
    (set) => {
      for (const { name } of aggregator.cores) set({ core: name }, aggregator.membership.count(name));
    },
  );
  metrics.gaugeFrom(
    {
      name: "aggregator_update_trigger_age_seconds",
      help: "Time since the update trigger's pod last changed; absent where none was seen: then a restore of the cell shows only in versions and lists.",
    },
    (set) => {
      const { triggerSeenMs } = aggregator.cell;
      if (triggerSeenMs !== undefined) set({}, (clock.monotonicMs() - triggerSeenMs) / 1000);
    },
  );
  metrics.gaugeFrom(
    { name: "aggregator_gates_waiting", help: "Pods that are ready but for the counted gate.", labels: {} },
    (set) => {
      if (aggregator.gate !== undefined) set({}, aggregator.gate.waiting);
    },
  );
  metrics.gaugeFrom(
    {
      name: "aggregator_oldest_gate_seconds",
      help: "Time that the oldest of these pods has waited; beyond --counted-gate-bound is a fault.",
      labels: {},
    },
    (set) => {
      if (aggregator.gate !== undefined) set({}, aggregator.gate.oldestMs() / 1000);
    },
  );
  perTerm(metrics, aggregator, clock);
}

/** What only a leader knows; absent on a standby. */
function perTerm(metrics: Metrics, aggregator: Aggregator, clock: Clock): void {
  const each = (name: string, help: string, value: (term: Term) => number): void =>
    metrics.gaugeFrom({ name, help, labels: { core: CORE } }, (set) => {
      for (const [core, term] of aggregator.coreReconcilers) set({ core }, value(term));
    });
  const summary = summaries(clock);
  each("aggregator_held_protectors", "Protectors whose entry for this cell is on hold.", (term) => summary(term).held);
  each("aggregator_reservations", "Reservations that are not settled.", (term) => summary(term).reservations);
  each(
    "aggregator_deferred_resizes",
    "Pods whose resize the kubelet has deferred; each keeps its quota reserved until it is done.",
    (term) => summary(term).deferred,
  );
  each(
    "aggregator_oldest_reservation_seconds",
    "Time since this leader first saw the oldest reservation that is not settled; well above the settle period is a fault.",
    (term) => summary(term).oldestMs / 1000,
  );
  each(
    "aggregator_stale_cells",
    "Cells of the core that have missed their heartbeats.",
    (term) => term.staleCells().size,
  );
}

interface TermSummary {
  readonly atMs: number;
  readonly held: number;
  readonly reservations: number;
  readonly deferred: number;
  readonly oldestMs: number;
}

type Term = Aggregator["coreReconcilers"] extends ReadonlyMap<string, infer T> ? T : never;

/** One scrape asks for several numbers of the same thousands of protectors. */
const SUMMARY_AGE_MS = 100;

function summaries(clock: Clock): (term: Term) => TermSummary {
  const known = new WeakMap<Term, TermSummary>();
  return (term) => {
    const nowMs = clock.monotonicMs();
    const last = known.get(term);
    if (last !== undefined && nowMs - last.atMs < SUMMARY_AGE_MS) return last;
    const summary = summarize(term, nowMs);
    known.set(term, summary);
    return summary;
  };
}

function summarize(term: Term, nowMs: number): TermSummary {
  let held = 0;
  let reservations = 0;
  let deferred = 0;
  let oldestMs = 0;
  for (const [, progress] of term.states()) {
    if (progress.hold !== undefined) held++;
    reservations += progress.pending.length;
    deferred += progress.deferred.size;
    for (const { firstSeenMs } of progress.pending) oldestMs = Math.max(oldestMs, nowMs - firstSeenMs);
  }
  return { atMs: nowMs, held, reservations, deferred, oldestMs };
}
