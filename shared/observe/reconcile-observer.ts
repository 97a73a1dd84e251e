import type { ReconcileOutcome } from "../runtime/reconcile.ts";
import type { QueueEvent, WorkQueue } from "../runtime/work-queue.ts";
import { observeEvents } from "./event-table.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

const OUTCOMES = ["done", "later", "failed", "given-up"] as const;
const SECONDS = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60];
const LABELS = { queue: { max: 20 } };

interface ReconcileObserver {
  /** Returns the `onEvent` of the queue of this name. */
  observe(queue: string): (event: QueueEvent) => void;
  /** Returns the `onOutcome` of its workers. */
  outcomes<K>(queue: string): (key: K, outcome: ReconcileOutcome) => void;
  /** Shows at each scrape the queue's depths and longest times; 0 while there is no queue. */
  track(name: string, queue: () => Tracked | undefined): void;
}

type Tracked = Pick<
  WorkQueue<unknown>,
  "depth" | "delayed" | "processing" | "failing" | "longestWaitMs" | "longestWorkMs"
>;

/** Metrics and log lines of every work queue of a process, and of its reconcilers. */
export function observeReconciles(metrics: Metrics, log: Log): ReconcileObserver {
  const queues = new Map<string, () => Tracked | undefined>();
  showQueues(metrics, queues);
  const counters = countersOf(metrics);
  const outcomes = metrics.counter({
    name: "reconciles_total",
    help: "Reconciles of one key by outcome: done, again later, failed and retried, or given up until a change.",
    labels: { ...LABELS, outcome: OUTCOMES },
  });
  return {
    observe: (queue) =>
      observeEvents<QueueEvent>(
        { log },
        {
          queued: { count: () => counters.adds.inc({ queue }) },
          merged: { count: () => counters.merged.inc({ queue }) },
          taken: { count: ({ waitedMs }) => counters.waited.observe({ queue }, waitedMs / 1000) },
          done: { count: ({ workedMs }) => counters.worked.observe({ queue }, workedMs / 1000) },
          retried: { count: () => counters.retries.inc({ queue }) },
          refused: { count: () => counters.refused.inc({ queue }) },
        },
      ),
    outcomes: (queue) => (key, outcome) => {
      const isGivenUp = outcome.kind === "failed" && !outcome.retriable;
      outcomes.inc({ queue, outcome: isGivenUp ? "given-up" : outcome.kind });
      if (outcome.kind === "failed")
        log.warn({ queue, item: key, retriable: outcome.retriable, error: outcome.error }, "reconcile failed");
    },
    track: (name, queue) => void queues.set(name, queue),
  };
}

function countersOf(metrics: Metrics) {
  const counter = (name: string, help: string) => metrics.counter({ name, help, labels: LABELS });
  const seconds = (name: string, help: string) => metrics.histogram({ name, help, labels: LABELS, buckets: SECONDS });
  return {
    adds: counter("queue_adds_total", "Keys that became ready."),
    merged: counter("queue_merged_total", "Adds of keys that were ready or in backoff already."),
    retries: counter("queue_retries_total", "Keys that failed and wait for their next try."),
    refused: counter("queue_refused_total", "Adds that a full queue did not take."),
    waited: seconds("queue_wait_seconds", "How long a ready key waited for a worker."),
    worked: seconds("queue_work_seconds", "How long the work on a key took."),
  };
}

function showQueues(metrics: Metrics, queues: ReadonlyMap<string, () => Tracked | undefined>): void {
  const gauge = (name: string, help: string, read: (queue: Tracked) => number): void => {
    metrics.gaugeFrom({ name, help, labels: LABELS }, (set) => {
      for (const [queue, tracked] of queues) {
        const current = tracked();
        set({ queue }, current === undefined ? 0 : read(current));
      }
    });
  };
  gauge("queue_depth", "Keys that wait for a worker.", ({ depth }) => depth);
  gauge("queue_delayed", "Keys that wait for a time.", ({ delayed }) => delayed);
  gauge("queue_processing", "Keys at work.", ({ processing }) => processing);
  gauge("queue_failing", "Keys whose last try failed.", ({ failing }) => failing);
  gauge("queue_oldest_seconds", "How long the first ready key has waited.", (queue) => queue.longestWaitMs() / 1000);
  const help = "How long the longest running work has been going on.";
  gauge("queue_longest_work_seconds", help, (queue) => queue.longestWorkMs() / 1000);
}
