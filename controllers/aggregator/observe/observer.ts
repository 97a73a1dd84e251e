/** How the aggregator's events appear: an operator has to know about warnings and errors; debug lines only explain. */
import { API_FAILURES } from "../../../shared/kube/client/api-result.ts";
import { counted, type EventTable, limitLines, observeEvents } from "../../../shared/observe/event-table.ts";
import type { Log, LogFields } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import { OPERATIONS, type ProtectorId } from "../../../shared/schema/podprotector.ts";
import {
  type AggregatorEvent,
  EVIDENCE_METHODS,
  EVIDENCE_RESULTS,
  type EventSink,
  GATE_REASONS,
  RECONCILE_RESULTS,
  REFUSALS,
  RESTORE_SIGNS,
  SETTLE_RULES,
  VOID_RESULTS,
  WRITE_CAUSES,
} from "./events.ts";

/** At most this many cores have their own series. */
export const MAX_CORES = 100;
/** An outage of a core fails the writes of all its protectors, so the log has one line in this time. */
const FAILURE_EVERY_MS = 10_000;
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export interface AggregatorObserverOptions {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly clock: Clock;
  /** The series of these cores exist from the start. */
  readonly cores: readonly string[];
}

/** Declares the metrics that count events; returns the sink that feeds them and the log. */
export function aggregatorObserver(options: AggregatorObserverOptions): EventSink {
  const table = { ...writeRows(options), ...historyRows(options), ...podRows(options), ...firstCountRows(options) };
  return observeEvents<AggregatorEvent>({ log: options.log, fields: fieldsOf }, table);
}

/** The protector by its core, namespace and name, and the rest. */
function fieldsOf(event: AggregatorEvent): LogFields {
  const { kind: _, ...fields } = event;
  if (!("id" in fields)) return fields;
  const { id, ...others } = fields;
  return { ...id, ...others };
}

/** The `count` of events that are counted by core alone. */
function byCore(
  { metrics, cores }: AggregatorObserverOptions,
  name: string,
  help: string,
): (event: OfProtector) => void {
  const labels = { core: { max: MAX_CORES, known: cores } };
  return counted(metrics, { name, help, labels, of: ({ id }) => ({ core: id.core }) });
}

interface OfProtector {
  readonly id: ProtectorId;
}

type Rows<K extends AggregatorEvent["kind"]> = Pick<EventTable<AggregatorEvent>, K>;

/** Reconciles of protectors and the writes to their status. */
function writeRows({ metrics, clock, cores }: AggregatorObserverOptions): Rows<"reconciled" | "wrote" | "writeFailed"> {
  const core = { max: MAX_CORES, known: cores };
  const labels = { core: { max: MAX_CORES } };
  const reconciles = metrics.counter({
    name: "aggregator_reconciles_total",
    help: "Protectors looked at, by what came of it.",
    labels: { core, result: RECONCILE_RESULTS },
  });
  const reconcileSeconds = metrics.histogram({
    name: "aggregator_reconcile_seconds",
    help: "Duration of one look at a protector, its write included.",
    buckets: SECONDS,
  });
  const writes = metrics.counter({
    name: "aggregator_writes_total",
    help: "Status writes that were made, by cause.",
    labels: { core, cause: WRITE_CAUSES },
  });
  const writeSeconds = metrics.histogram({
    name: "aggregator_write_seconds",
    help: "Duration of one status write.",
    labels,
    buckets: SECONDS,
  });
  const latency = metrics.histogram({
    name: "aggregator_publish_seconds",
    help: "From the receipt of a pod's change to the response of the write that publishes it.",
    labels,
    buckets: SECONDS,
  });
  const limited = limitLines(clock, FAILURE_EVERY_MS);
  return {
    reconciled: {
      count({ id, result, durationMs }) {
        reconciles.inc({ core: id.core, result });
        reconcileSeconds.observe({}, durationMs / 1000);
      },
    },
    wrote: {
      level: "debug",
      message: "Wrote a status",
      fields: ({ id, cause, durationMs }) => ({ ...id, cause, durationMs }),
      count({ id, cause, durationMs, latencyMs }) {
        writes.inc({ core: id.core, cause });
        writeSeconds.observe({ core: id.core }, durationMs / 1000);
        if (latencyMs !== undefined) latency.observe({ core: id.core }, latencyMs / 1000);
      },
    },
    writeFailed: {
      line({ failure }) {
        if (failure === "conflict") return ["debug", "Another writer was faster"];
        if (failure === "gone") return ["debug", "The protector is gone"];
        return ["warn", "The status could not be written"];
      },
      fields({ id, failure, message }) {
        if (failure === "conflict") return { ...id, message };
        if (failure === "gone") return { ...id };
        return limited(`${id.core}/${failure}`, { ...id, failure, message });
      },
      count: counted(metrics, {
        name: "aggregator_write_failures_total",
        help: "Status writes (and the reads after a conflict) that were not made, by kind.",
        labels: { core, failure: API_FAILURES },
        of: ({ id, failure }) => ({ core: id.core, failure }),
      }),
    },
  };
}

type HistoryKind =
  | ("dropped" | "refused" | "held" | "released")
  | ("fieldsDropped" | "fieldsKept" | "cellRestored" | "corruptHistory");

/** Reservations, and when they may have been lost. */
function historyRows(options: AggregatorObserverOptions): Rows<HistoryKind> {
  const { metrics, cores } = options;
  const core = { max: MAX_CORES, known: cores };
  const inexact = metrics.gauge({
    name: "aggregator_inexact_cores",
    help: "1 where the core's CRD drops fields of a count; without positions, upstream's clock rule settles.",
    labels: { core },
  });
  return {
    dropped: {
      level: "debug",
      message: "Settled a reservation",
      count: counted(metrics, {
        name: "aggregator_reservations_settled_total",
        help: "Reservations taken out of the history, by operation and by the rule that settled them.",
        labels: { operation: [...OPERATIONS, "RANGE"], rule: SETTLE_RULES },
        of: ({ operation, rule }) => ({ operation: operation ?? "RANGE", rule }),
      }),
    },
    refused: {
      level: "debug",
      message: "The snapshot is older than what is stored",
      fields: ({ id, refusal }) => ({ ...id, reason: refusal }),
      count: counted(metrics, {
        name: "aggregator_refusals_total",
        help: "Accountings that could not be written, because the snapshot is older than what is stored.",
        labels: { core, reason: REFUSALS },
        of: ({ id, refusal }) => ({ core: id.core, reason: refusal }),
      }),
    },
    held: {
      level: "warn",
      message: "Admission history may be lost, the cell is on hold",
      count: byCore(
        options,
        "aggregator_holds_total",
        "Cells put on hold because history may have been lost, by core.",
      ),
    },
    released: { level: "info", message: "The cell is no longer on hold" },
    fieldsDropped: {
      level: "error",
      message: "The CRD of the core drops fields: apply the CRD of this release",
      count: (event) => inexact.set({ core: event.core }, 1),
    },
    fieldsKept: {
      level: "info",
      message: "The CRD of the core keeps all fields again",
      count: (event) => inexact.set({ core: event.core }, 0),
    },
    cellRestored: {
      level: "warn",
      message: "The cell was restored to an older state",
      count: counted(metrics, {
        name: "aggregator_cell_restores_total",
        help: "Times that the cell was seen to be restored to an older state.",
        labels: { sign: RESTORE_SIGNS },
        of: ({ how }) => ({ sign: how }),
      }),
    },
    corruptHistory: {
      level: "error",
      message: "Packed admission history cannot be read; its sum still counts",
      count: byCore(
        options,
        "aggregator_unreadable_histories_total",
        "Times that packed admission history could not be read, which counts by its sum.",
      ),
    },
  };
}

type PodKind = "badSelector" | "vanished" | "evidence" | "gateOpened" | "gateFailed" | "deferred" | "voided";

/**
 * Waits before a first count: for the mark of the namespace (`--mark-namespaces`), or for the removal of a former id's
 * entry.
 */
function firstCountRows({
  metrics,
  clock,
}: AggregatorObserverOptions): Rows<"namespaceMarked" | "namespaceNotMarked" | "renamed"> {
  const limited = limitLines(clock, FAILURE_EVERY_MS);
  return {
    renamed: {
      level: "error",
      message:
        "This cluster had another id (formerCell), by which protectors count its pods: they are not counted twice. " +
        "Set that id again, or see docs/operations.md#rename-a-cell",
    },
    namespaceMarked: { level: "info", message: "A namespace with protectors is marked" },
    namespaceNotMarked: {
      level: "error",
      message: "A namespace with protectors could not be marked; what is not counted there yet is not protected",
      fields: ({ namespace, message }) => limited("mark", { namespace, message }),
      count: counted(metrics, {
        name: "aggregator_mark_failures_total",
        help: "Tries to mark a namespace that has protectors (--mark-namespaces) that failed; they are repeated.",
        of: () => ({}),
      }),
    },
  };
}

/** Single pods: which are counted, what quorum reads find of them, and the writes to them. */
function podRows(options: AggregatorObserverOptions): Rows<PodKind> {
  const { metrics, clock } = options;
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
  const limited = limitLines(clock, FAILURE_EVERY_MS);
  const vanished = metrics.counter({
    name: "aggregator_vanished_pods_total",
    help: "Available pods that disappeared without a deletion request, by core.",
    labels: { core: { max: MAX_CORES, known: options.cores } },
  });
  return {
    vanished: {
      level: "error",
      message: "Pods disappeared without a deletion request; etcd may have lost them",
      count: ({ id, pods }) => vanished.inc({ core: id.core }, pods),
    },
    badSelector: {
      level: "error",
      message: "The selector cannot be read; no pod is counted",
      count: byCore(
        options,
        "aggregator_unreadable_selectors_total",
        "Selectors that could not be read, by core; a protector with such a selector counts no pod.",
      ),
    },
    evidence: {
      count: counted(metrics, {
        name: "aggregator_evidence_total",
        help: "Quorum reads that settle reservations: GETs by what they found, and LISTs.",
        labels: { method: EVIDENCE_METHODS, found: EVIDENCE_RESULTS },
        of: ({ method, found }) => ({ method, found }),
      }),
    },
    gateOpened: {
      line: ({ reason }) =>
        reason === "Overdue"
          ? ["warn", "A pod's counted gate was opened though its count could not be stored in time"]
          : ["debug", "A pod's counted gate was opened"],
      fields: ({ podName, reason, waitedMs }) =>
        reason === "Overdue" ? limited("overdue", { podName, waitedMs }) : { podName, reason, waitedMs },
      count({ reason, waitedMs }) {
        gates.inc({ reason });
        gateSeconds.observe({}, waitedMs / 1000);
      },
    },
    gateFailed: {
      level: "warn",
      message: "A pod's counted gate could not be opened",
      fields: ({ podName, message }) => limited("gate", { podName, message }),
      count: counted(metrics, {
        name: "aggregator_gate_failures_total",
        help: "Tries to open a counted readiness gate that failed; they are repeated.",
        of: () => ({}),
      }),
    },
    deferred: {
      level: "info",
      message: "A resize is deferred by the kubelet; its quota stays reserved until it is done",
    },
    voided: {
      level: "info",
      message: "A reservation that was not used is voided",
      count: counted(metrics, {
        name: "aggregator_voided_total",
        help: "Pods annotated to void a reservation that was never used (--void-after).",
        labels: { result: VOID_RESULTS },
        of: ({ result }) => ({ result }),
      }),
    },
  };
}
