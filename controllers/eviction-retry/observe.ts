/** The metrics, log lines and Kubernetes Events of the repeated evictions. */
import type { EventNote, EventRecorder } from "../../shared/observe/event-recorder.ts";
import { limitLines, observeEvents } from "../../shared/observe/event-table.ts";
import { gaugeOf } from "../../shared/observe/gauge.ts";
import type { Log } from "../../shared/observe/log.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import { EVICTION_OUTCOMES, type EvictionEvent } from "./eviction-retrier.ts";

/** Each pod that waits has its Event, and thousands may while no webhook answers. */
const FAILURE_EVERY_MS = 10_000;

export function observeEvictions(
  metrics: Metrics,
  log: Log,
  events: Pick<EventRecorder, "record">,
  clock: Pick<Clock, "monotonicMs">,
): (event: EvictionEvent) => void {
  const evictions = metrics.counter({
    name: "eviction_retry_evictions_total",
    help: "Evictions of pods that taints evict and whose denied deletion nobody repeats, by outcome.",
    labels: { outcome: EVICTION_OUTCOMES },
  });
  // Once of each pod that waits: the webhook tells of every denial.
  const count = (event: EvictionEvent): void => {
    evictions.inc({ outcome: event.kind });
    if (event.isFirst && (event.kind === "denied" || event.kind === "failed")) events.record(waitingNote(event));
  };
  const limited = limitLines(clock, FAILURE_EVERY_MS);
  return observeEvents<EvictionEvent>(
    { log, events },
    {
      evicted: { level: "info", message: "Evicted a pod from its tainted node", count, note: evictedNote },
      denied: {
        line: ({ isFirst }) => [isFirst ? "info" : "debug", "The eviction was denied and will be tried again"],
        count,
      },
      gone: { level: "debug", message: "The pod is gone", count },
      failed: {
        level: "warn",
        message: "The eviction failed and will be tried again",
        fields: ({ kind, ...rest }) => limited(kind, rest),
        count,
      },
    },
  );
}

function evictedNote({ pod, node, taints }: EvictionEvent): EventNote {
  const taint = taints.join(", ");
  const message = `evicted from node ${node} (taint ${taint}): its deletion had been denied, and nobody repeated it`;
  return { regarding: regarding(pod), type: "Normal", reason: "TaintEvictionRetried", message };
}

function waitingNote({ pod, node, taints, message }: EvictionEvent): EventNote {
  const text = `waits on node ${node} for its eviction (taint ${taints.join(", ")}), which is tried again: ${message}`;
  return { regarding: regarding(pod), type: "Warning", reason: "TaintEvictionWaiting", message: text };
}

function regarding(pod: EvictionEvent["pod"]): EventNote["regarding"] {
  return { apiVersion: "v1", kind: "Pod", ...pod };
}

export function evictionMetrics(
  metrics: Metrics,
  current: () => { readonly waiting: number; readonly oldestMs: number } | undefined,
): void {
  const help = "Pods that wait on a tainted node, because their eviction is denied; absent on a standby.";
  gaugeOf(metrics, "eviction_retry_waiting_pods", help, () => current()?.waiting);
  const oldestHelp =
    "Time since the first eviction of the pod that has waited longest; 0 without one, absent on a standby.";
  gaugeOf(metrics, "eviction_retry_oldest_waiting_seconds", oldestHelp, () => {
    const oldestMs = current()?.oldestMs;
    return oldestMs === undefined ? undefined : oldestMs / 1000;
  });
}
