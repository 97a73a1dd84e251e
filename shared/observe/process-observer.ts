import type { LeaderEvent, LeaseCall, StopReason } from "../kube/election/leader-election.ts";
import type { LifecycleEvent } from "../runtime/lifecycle.ts";
import { EVENT_OUTCOMES, type EventOutcome } from "./event-outcomes.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

const CHANGES = ["leading", "expired", "lost", "released"] as const satisfies ("leading" | StopReason)[];
const CALLS = ["get", "create", "update"] as const satisfies LeaseCall[];
/** Leases that one process is a candidate for: one per cell or core cluster. */
const MAX_LEASES = 100;

export interface LeaderObserver {
  /** The `onEvent` of the elector of this lease. */
  observe(lease: string): (event: LeaderEvent) => void;
  /** Whether it leads, at each scrape. */
  track(lease: string, elector: { isLeader(): boolean }): void;
}

/** Metrics and log lines of every leader election of a process. */
export function observeLeaderElection(metrics: Metrics, log: Log): LeaderObserver {
  const lease = { max: MAX_LEASES };
  const electors = new Map<string, { isLeader(): boolean }>();
  metrics.gaugeFrom({ name: "leader", help: "1 while this process leads.", labels: { lease } }, (set) => {
    for (const [name, elector] of electors) set({ lease: name }, elector.isLeader() ? 1 : 0);
  });
  const changes = metrics.counter({
    name: "leader_changes_total",
    help: "Leaderships begun and ended, by how.",
    labels: { lease, change: CHANGES },
  });
  const failures = metrics.counter({
    name: "leader_failures_total",
    help: "Calls for the lease that failed.",
    labels: { lease, call: CALLS },
  });
  return {
    observe: (name) => (event) => {
      const { kind, ...fields } = event;
      if (kind === "leading") changes.inc({ lease: name, change: "leading" });
      if (event.kind === "stopped") changes.inc({ lease: name, change: event.reason });
      if (event.kind === "failed") {
        failures.inc({ lease: name, call: event.during });
        log.warn({ lease: name, ...fields }, "lease call failed");
      } else log.info({ lease: name, event: kind, ...fields }, "leader election");
    },
    track: (name, elector) => void electors.set(name, elector),
  };
}

/** The `onOutcome` of an event recorder. */
export function observeKubernetesEvents(metrics: Metrics): (outcome: EventOutcome) => void {
  const events = metrics.counter({
    name: "kubernetes_events_total",
    help: "Kubernetes Events, by what became of them.",
    labels: { outcome: EVENT_OUTCOMES },
  });
  return (outcome) => events.inc({ outcome });
}

/** The `onDropped` of a log. */
export function observeDroppedLines(metrics: Metrics): () => void {
  const dropped = metrics.counter({
    name: "log_lines_dropped_total",
    help: "Log lines that were given up because stdout took none.",
  });
  return () => dropped.inc({});
}

/** The `onEvent` of a lifecycle. */
export function observeLifecycle(log: Log): (event: LifecycleEvent) => void {
  return ({ kind, ...fields }) => {
    const bad = kind === "fatal" || kind === "stop-failed" || kind === "grace-exceeded";
    log[bad ? "error" : "info"]({ event: kind, ...fields }, "process life");
  };
}
