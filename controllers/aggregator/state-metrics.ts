/** Gauges of the aggregator, read at each scrape. */
import { gaugeOf } from "../../shared/observe/gauge.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import type { Aggregator } from "./aggregator.ts";
import { MAX_CORES } from "./observe/observer.ts";
import type { CoreReconciler } from "./settling/core-reconciler.ts";

const CORE = { max: MAX_CORES };
/** One scrape reads several numbers of the same thousands of protectors. */
const SUMMARY_AGE_MS = 100;

/** Some five seconds are usual for a quiet cell: the update trigger patches its pod, and bookmarks arrive. */
const GAP_SECONDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 30, 60, 150];

/** Returns a function that records a gap between two watch events of the cell's pods. */
export function eventGaps(metrics: Metrics, cell: string): (gapMs: number) => void {
  const gaps = metrics.histogram({
    name: "aggregator_event_gap_seconds",
    help:
      "From one event or bookmark of the watch of a cell's pods to the next: for so long a change may have been " +
      "under way unseen.",
    labels: { cell: [cell] },
    buckets: GAP_SECONDS,
  });
  return (gapMs) => gaps.observe({ cell }, gapMs / 1000);
}

/** Declares the gauges that show what the aggregator follows and remembers. */
export function stateMetrics(metrics: Metrics, aggregator: Aggregator, clock: Clock, cell: string): void {
  metrics.gaugeFrom(
    { name: "aggregator_protectors", help: "Protectors followed, by core.", labels: { core: CORE } },
    (set) => {
      for (const { name } of aggregator.cores) set({ core: name }, aggregator.membership.count(name));
    },
  );
  gaugeOf(
    metrics,
    "aggregator_update_trigger_age_seconds",
    "Time since the update trigger's pod last changed; absent where none was " +
      "seen: then a restore of the cell shows only in versions and lists.",
    () => {
      const { triggerSeenMs } = aggregator.cell;
      return triggerSeenMs === undefined ? undefined : (clock.monotonicMs() - triggerSeenMs) / 1000;
    },
  );
  gaugeOf(
    metrics,
    "aggregator_gates_waiting",
    "Pods that are ready but for the counted gate.",
    () => aggregator.gate?.waiting,
  );
  gaugeOf(
    metrics,
    "aggregator_oldest_gate_seconds",
    "Time that the oldest of these pods has waited; beyond --counted-gate-bound is a fault.",
    () => (aggregator.gate === undefined ? undefined : aggregator.gate.oldestMs() / 1000),
  );
  leaderMetrics(metrics, aggregator, clock, cell);
}

/** Gauges that only a leader knows; absent on a standby. */
function leaderMetrics(metrics: Metrics, aggregator: Aggregator, clock: Clock, cell: string): void {
  const each = (name: string, help: string, value: (reconciler: CoreReconciler) => number): void =>
    metrics.gaugeFrom({ name, help, labels: { core: CORE } }, (set) => {
      for (const [core, reconciler] of aggregator.coreReconcilers) set({ core }, value(reconciler));
    });
  const summary = summaries(clock);
  metrics.gaugeFrom(
    {
      name: "aggregator_held_protectors",
      help: "Protectors whose entry for this cell is on hold.",
      // The alert names the cell: one Prometheus may scrape the aggregators of several.
      labels: { core: CORE, cell: [cell] },
    },
    (set) => {
      for (const [core, reconciler] of aggregator.coreReconcilers) set({ core, cell }, summary(reconciler).held);
    },
  );
  each("aggregator_reservations", "Reservations that are not settled.", (one) => summary(one).reservations);
  each(
    "aggregator_deferred_resizes",
    "Pods whose resize the kubelet has deferred; each keeps its quota reserved until it is done.",
    (one) => summary(one).deferred,
  );
  each(
    "aggregator_oldest_reservation_seconds",
    "Time since this leader first saw the oldest reservation that is " +
      "not settled; well above the settle period is a fault.",
    (one) => summary(one).oldestMs / 1000,
  );
  each(
    "aggregator_stale_cells",
    "Cells of the core that have missed their heartbeats.",
    (one) => one.staleCells().size,
  );
}

interface ReconcilerSummary {
  readonly atMs: number;
  readonly held: number;
  readonly reservations: number;
  readonly deferred: number;
  readonly oldestMs: number;
}

function summaries(clock: Clock): (reconciler: CoreReconciler) => ReconcilerSummary {
  const newest = new WeakMap<CoreReconciler, ReconcilerSummary>();
  return (reconciler) => {
    const nowMs = clock.monotonicMs();
    const last = newest.get(reconciler);
    if (last !== undefined && nowMs - last.atMs < SUMMARY_AGE_MS) return last;
    const summary = summarize(reconciler, nowMs);
    newest.set(reconciler, summary);
    return summary;
  };
}

function summarize(reconciler: CoreReconciler, nowMs: number): ReconcilerSummary {
  let held = 0;
  let reservations = 0;
  let deferred = 0;
  let oldestMs = 0;
  for (const [, progress] of reconciler.states()) {
    if (progress.hold !== undefined) held++;
    reservations += progress.pending.length;
    deferred += progress.deferred.size;
    for (const { firstSeenMs } of progress.pending) oldestMs = Math.max(oldestMs, nowMs - firstSeenMs);
  }
  return { atMs: nowMs, held, reservations, deferred, oldestMs };
}
