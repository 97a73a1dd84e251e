/** The update trigger as a process: options, access to the cell, life and observation. */

import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import { accessOrExit } from "../../shared/kube/credentials/access-or-exit.ts";
import { createLog, type Log } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { processHealth } from "../../shared/observe/process-health.ts";
import { observeLeaderElection, observeLifecycle } from "../../shared/observe/process-observer.ts";
import { Lifecycle } from "../../shared/runtime/lifecycle.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { systemProcess } from "../../shared/runtime/system-process.ts";
import { version } from "../../shared/runtime/version.ts";
import { LeaderTerm } from "../leader-term.ts";
import { probeBookmarks } from "./bookmarks.ts";
import { parseLabels, triggerOptions } from "./options.ts";
import { TRIGGER_ACTIONS, type TriggerEvent, UpdateTrigger } from "./trigger.ts";

const COMPONENT = "podseidon-update-trigger";
const GRACE_MS = 10_000;

function observe(metrics: Metrics, log: Log): (event: TriggerEvent) => void {
  const updates = metrics.counter({
    name: "update_trigger_updates_total",
    help: "Patches of the dummy pod and what they needed first, by outcome.",
    labels: { action: TRIGGER_ACTIONS, outcome: ["done", "failed"] },
  });
  const restores = metrics.counter({
    name: "update_trigger_restores_total",
    help: "Times that the stored counter went back: the cell's etcd was restored to an older state.",
  });
  return (event) => {
    switch (event.kind) {
      case "done":
        updates.inc({ action: event.action, outcome: "done" });
        if (event.action === "update") log.debug({ counter: event.counter }, "Patched the dummy pod");
        else log.info({ action: event.action, counter: event.counter }, "The dummy pod is there");
        return;
      case "failed":
        updates.inc({ action: event.action, outcome: "failed" });
        log.warn(
          { action: event.action, error: event.error, retryMs: event.retryMs },
          "The dummy pod could not be patched; nothing but a quiet watch stream suffers",
        );
        return;
      case "wentBack":
        restores.inc({});
        log.warn({ from: event.from, to: event.to }, "The counter went back: the cell's etcd was restored");
        return;
      case "schedulable":
        log.warn({}, "A pod of the dummy's name is there which a scheduler may take");
        return;
    }
  };
}

function reportBookmarks(metrics: Metrics, log: Log): (sends: boolean | undefined) => void {
  const needed = metrics.gauge({
    name: "update_trigger_needed",
    help: "0 when the apiserver sends bookmarks often enough that quiet streams move without the trigger.",
  });
  needed.set({}, 1);
  return (sends) => {
    needed.set({}, sends === true ? 0 : 1);
    if (sends === true) {
      log.info(
        {},
        "The apiserver sends bookmarks: positions move without this trigger, which now only reveals restores",
      );
    } else if (sends === false) log.info({}, "The apiserver sends no bookmarks: quiet streams need this trigger");
    else log.debug({}, "Whether the apiserver sends bookmarks is not known");
  };
}

/** Runs the update trigger until it is told to stop; resolves with the exit code. */
export async function run(): Promise<number> {
  const options = await commandLine(triggerOptions);
  const ports = systemPorts;
  const log = createLog({ component: "update-trigger", level: options.logLevel });
  const metrics = new Metrics({ processMetrics: true });
  const cluster = await accessOrExit(COMPONENT, "--kubeconfig", options.kubeconfig);
  const transport = createHttpsTransport(cluster, { ports, userAgent: `${COMPONENT}/${version}` });
  const namespace = options.namespace === "" ? (cluster.namespace ?? "default") : options.namespace;
  const trigger = new UpdateTrigger({
    client: new ApiClient(transport),
    ports,
    namespace,
    name: options.podName,
    labels: parseLabels(options.podLabel) ?? {},
    intervalMs: options.interval,
    onEvent: observe(metrics, log),
  });
  const probe = { transport, ports, namespace, podName: options.podName, onResult: reportBookmarks(metrics, log) };
  const work = async (signal: AbortSignal): Promise<void> => {
    await Promise.all([trigger.run(signal), probeBookmarks(probe, signal)]);
  };
  const election = {
    ...options,
    transport,
    clusterNamespace: cluster.namespace,
    lease: COMPONENT,
    observer: observeLeaderElection(metrics, log),
  };
  const leadership = new LeaderTerm(election, work);
  metrics.gaugeFrom(
    { name: "update_trigger_age_seconds", help: "Time since the last patch; absent on a standby." },
    (set) => {
      if (trigger.lastDoneMs !== undefined) set({}, (ports.clock.monotonicMs() - trigger.lastDoneMs) / 1000);
    },
  );
  const lifecycle = new Lifecycle({
    ports,
    process: systemProcess,
    unreadyMs: 0,
    graceMs: GRACE_MS,
    onEvent: observeLifecycle(log),
  });
  const health = processHealth(options, lifecycle, metrics);
  lifecycle
    .add({ name: "health", start: () => health.start(), stop: () => health.stop() })
    .add({ name: "transport", stop: () => transport.close() })
    .add({ name: "leadership", start: () => leadership.start(), stop: () => leadership.stop() });
  const code = await lifecycle.run();
  log.flush();
  return code;
}
