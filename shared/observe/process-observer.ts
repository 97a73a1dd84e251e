import type { KubeconfigEvent } from "../kube/credentials/cluster-access.ts";
import type { LeaderEvent, LeaseCall, StopReason } from "../kube/election/leader-election.ts";
import type { LifecycleEvent } from "../runtime/lifecycle.ts";
import { EVENT_OUTCOMES, type EventOutcome } from "./event-outcome.ts";
import { observeEvents } from "./event-table.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

const CHANGES = ["leading", "expired", "lost", "released"] as const satisfies ("leading" | StopReason)[];
const CALLS = ["get", "create", "update"] as const satisfies LeaseCall[];
const KUBECONFIG_CHANGES = ["renewed", "unusable"] as const satisfies KubeconfigEvent["kind"][];
/** Leases of one process: one for each cell or core cluster. */
const MAX_LEASES = 100;

export interface LeaderObserver {
  /** Returns the `onEvent` of the elector of this lease. */
  observe(lease: string): (event: LeaderEvent) => void;
  /** Shows at each scrape whether the elector leads. */
  track(lease: string, elector: { isLeader(): boolean }): void;
}

/** Metrics and log lines of every leader election of a process. */
export function observeLeaderElection(metrics: Metrics, log: Log): LeaderObserver {
  const labels = { lease: { max: MAX_LEASES } };
  const electors = new Map<string, { isLeader(): boolean }>();
  metrics.gaugeFrom({ name: "leader", help: "1 while this process leads.", labels }, (set) => {
    for (const [lease, elector] of electors) set({ lease }, Number(elector.isLeader()));
  });
  const changes = metrics.counter({
    name: "leader_changes_total",
    help: "Leaderships begun and ended, by how.",
    labels: { ...labels, change: CHANGES },
  });
  const failures = metrics.counter({
    name: "leader_failures_total",
    help: "Calls for the lease that failed.",
    labels: { ...labels, call: CALLS },
  });
  return {
    observe: (lease) => {
      const usual = { level: "info", message: "leader election" } as const;
      return observeEvents<LeaderEvent>(
        { log, fields: ({ kind, ...rest }) => ({ lease, event: kind, ...rest }) },
        {
          leading: { ...usual, count: () => changes.inc({ lease, change: "leading" }) },
          stopped: { ...usual, count: ({ reason }) => changes.inc({ lease, change: reason }) },
          observed: usual,
          failed: {
            level: "warn",
            message: "lease call failed",
            fields: ({ kind: _, ...rest }) => ({ lease, ...rest }),
            count: ({ during }) => failures.inc({ lease, call: during }),
          },
        },
      );
    },
    track: (lease, elector) => void electors.set(lease, elector),
  };
}

/** Returns the `onOutcome` of an event recorder. */
export function observeKubernetesEvents(metrics: Metrics): (outcome: EventOutcome) => void {
  const events = metrics.counter({
    name: "kubernetes_events_total",
    help: "Kubernetes Events, by what became of them.",
    labels: { outcome: EVENT_OUTCOMES },
  });
  return (outcome) => events.inc({ outcome });
}

/** Returns the `onEvent` of the kubeconfigs of a process. */
export function observeKubeconfigs(metrics: Metrics, log: Log): (event: KubeconfigEvent) => void {
  const changes = metrics.counter({
    name: "kubeconfig_changes_total",
    help: "Kubeconfigs that changed and were read again, or could not be used any more; then the last one serves.",
    labels: { change: KUBECONFIG_CHANGES },
  });
  const fields = ({ kind: _, ...rest }: KubeconfigEvent) => rest;
  return observeEvents<KubeconfigEvent>(
    { log, fields },
    {
      unverified: {
        level: "warn",
        message:
          "the server is not verified (insecure-skip-tls-verify, or http://): another one may answer in its place",
      },
      renewed: { level: "info", message: "kubeconfig read again", count: () => changes.inc({ change: "renewed" }) },
      unusable: {
        level: "error",
        message: "the kubeconfig, or a file of it, can't be used; its last usable content serves until it can",
        count: () => changes.inc({ change: "unusable" }),
      },
    },
  );
}

/** Returns the `onDropped` of a log. */
export function observeDroppedLines(metrics: Metrics): () => void {
  const dropped = metrics.counter({
    name: "log_lines_dropped_total",
    help: "Log lines that were given up because stdout took none.",
  });
  return () => dropped.inc({});
}

/** Returns the `onEvent` of a lifecycle. */
export function observeLifecycle(log: Log): (event: LifecycleEvent) => void {
  return ({ kind, ...fields }) => {
    const isFailure = kind === "fatal" || kind === "stop-failed" || kind === "grace-exceeded";
    log[isFailure ? "error" : "info"]({ event: kind, ...fields }, "process life");
  };
}
