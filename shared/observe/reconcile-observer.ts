import type { ReconcileOutcome } from "../runtime/reconcile.ts";
import type { QueueEvent, WorkQueue } from "../runtime/work-queue.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

const OUTCOMES = ["done", "later", "failed", "given-up"] as const;
const SECONDS = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60];
const MAX_QUEUES = 20;

export interface ReconcileObserver {
  /** The `onEvent` of the queue of this name. */
  observe(queue: string): (event: QueueEvent) => void;
  /** The `onOutcome` of its workers. */
  outcomes<K>(queue: string): (key: K, outcome: ReconcileOutcome) => void;
  /** Its depths and longest times, at each scrape; 0 while there is no queue. */
  track(name: string, queue: () => Tracked | undefined): void;
}

/** What of a queue is shown. */
type Tracked = Pick<
  WorkQueue<unknown>,
  "depth" | "delayed" | "processing" | "failing" | "longestWaitMs" | "longestWorkMs"
>;

/** Metrics and log lines of every work queue of a process and of the reconcilers behind them. */
export function observeReconciles(metrics: Metrics, log: Log): ReconcileObserver {
  const queue = { max: MAX_QUEUES };
  const queues = new Map<string, () => Tracked | undefined>();
  trackQueues(metrics, queues);
  const counters = countersOf(metrics);
  const outcomes = metrics.counter({
    name: "reconciles_total",
    help: "Work on one key, by how it ended: done, to be looked at later, failed and tried again, or given up until a change.",
    labels: { queue, outcome: OUTCOMES },
  });
  return {
    observe: (name) => (event) => count(counters, name, event),
    outcomes: (name) => (key, outcome) => {
      const kind = outcome.kind === "failed" && !outcome.retriable ? "given-up" : outcome.kind;
      outcomes.inc({ queue: name, outcome: kind });
      if (outcome.kind === "failed")
        log.warn({ queue: name, item: key, retriable: outcome.retriable, error: outcome.error }, "reconcile failed");
    },
    track: (name, tracked) => void queues.set(name, tracked),
  };
}

function countersOf(metrics: Metrics) {
  const labels = { queue: { max: MAX_QUEUES } };
  return {
    adds: metrics.counter({ name: "queue_adds_total", help: "Keys that became ready.", labels }),
    merged: metrics.counter({
      name: "queue_merged_total",
      help: "Adds of keys that were ready or in backoff already.",
      labels,
    }),
    retries: metrics.counter({
      name: "queue_retries_total",
      help: "Keys that failed and wait for their next try.",
      labels,
    }),
    refused: metrics.counter({ name: "queue_refused_total", help: "Adds that a full queue did not take.", labels }),
    waited: metrics.histogram({
      name: "queue_wait_seconds",
      help: "How long a ready key waited for a worker.",
      labels,
      buckets: SECONDS,
    }),
    worked: metrics.histogram({
      name: "queue_work_seconds",
      help: "How long the work on a key took.",
      labels,
      buckets: SECONDS,
    }),
  };
}

function count(counters: ReturnType<typeof countersOf>, queue: string, event: QueueEvent): void {
  switch (event.kind) {
    case "queued":
      counters.adds.inc({ queue });
      break;
    case "merged":
      counters.merged.inc({ queue });
      break;
    case "taken":
      counters.waited.observe({ queue }, event.waitedMs / 1000);
      break;
    case "done":
      counters.worked.observe({ queue }, event.workedMs / 1000);
      break;
    case "retried":
      counters.retries.inc({ queue });
      break;
    case "refused":
      counters.refused.inc({ queue });
      break;
  }
}

function trackQueues(metrics: Metrics, queues: ReadonlyMap<string, () => Tracked | undefined>): void {
  const gauge = (name: string, help: string, value: (queue: Tracked) => number): void => {
    metrics.gaugeFrom({ name, help, labels: { queue: { max: MAX_QUEUES } } }, (set) => {
      for (const [name, queue] of queues) {
        const current = queue();
        set({ queue: name }, current === undefined ? 0 : value(current));
      }
    });
  };
  gauge("queue_depth", "Keys that wait for a worker.", ({ depth }) => depth);
  gauge("queue_delayed", "Keys that wait for a time.", ({ delayed }) => delayed);
  gauge("queue_processing", "Keys at work.", ({ processing }) => processing);
  gauge("queue_failing", "Keys whose last try failed.", ({ failing }) => failing);
  gauge("queue_oldest_seconds", "How long the first ready key has waited.", (queue) => queue.longestWaitMs() / 1000);
  gauge(
    "queue_longest_work_seconds",
    "How long the longest running work has been going on.",
    (queue) => queue.longestWorkMs() / 1000,
  );
}
