import { hostname } from "node:os";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import { accessOrExit } from "../../shared/kube/credentials/access-or-exit.ts";
import type { ClusterAccess } from "../../shared/kube/credentials/cluster-access.ts";
import { EventRecorder } from "../../shared/observe/event-recorder.ts";
import { createLog } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { processHealth } from "../../shared/observe/process-health.ts";
import { observeKubernetesEvents, observeLifecycle } from "../../shared/observe/process-observer.ts";
import { Lifecycle } from "../../shared/runtime/lifecycle.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { systemProcess } from "../../shared/runtime/system-process.ts";
import { version } from "../../shared/runtime/version.ts";
import { Generator } from "./generator.ts";
import { generatorObserver, stateMetrics } from "./observe.ts";
import { type GeneratorFlags, generatorOptions } from "./options.ts";
import type { ElectionSettings } from "./setup.ts";
import { plugins } from "./sources/plugins/all.ts";

const COMPONENT = "podseidon-generator";
const DEFAULT_NAMESPACE = "podseidon-system";
/** Below the 30 s of the pod. */
const GRACE_MS = 20_000;
const LAST_EVENTS_MS = 2_000;
const OTHER_CALLS = 4;

function election(options: GeneratorFlags, cluster: ClusterAccess): ElectionSettings | undefined {
  if (!options.leaderElect) return undefined;
  return {
    namespace: options.leaderElectNamespace ?? cluster.namespace ?? DEFAULT_NAMESPACE,
    identity: `${hostname()}_${systemPorts.random.token()}`,
    leaseDurationMs: options.leaseDuration,
    renewDeadlineMs: options.renewDeadline,
    retryPeriodMs: options.retryPeriod,
  };
}

/** Runs the generator until it is told to stop; resolves with the exit code. */
export async function run(): Promise<number> {
  const options = await commandLine(generatorOptions);
  const log = createLog({ component: "generator", level: options.logLevel === "trace" ? "debug" : options.logLevel });
  const cluster = await accessOrExit(COMPONENT, "--kubeconfig", options.kubeconfig);
  const ports = systemPorts;
  const transport = createHttpsTransport(cluster, {
    ports,
    userAgent: `${COMPONENT}/${version}`,
    // One for each worker, and some for the lease, events and confirmations.
    maxRequestSockets: options.concurrency + OTHER_CALLS,
  });
  const metrics = new Metrics({ processMetrics: true });
  const onOutcome = observeKubernetesEvents(metrics);
  const events = new EventRecorder({ transport, ports, component: COMPONENT, onOutcome });
  const generator = new Generator({
    transport,
    ports,
    plugins: plugins(options),
    election: election(options, cluster),
    concurrency: options.concurrency,
    registerNamespace: options.leaderElectNamespace ?? cluster.namespace ?? DEFAULT_NAMESPACE,
    observer: generatorObserver({ metrics, log, events }),
  });
  stateMetrics(metrics, { orphans: () => generator.orphans().length, leading: () => generator.leading });
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
    .add({ name: "events", stop: () => events.stop(LAST_EVENTS_MS) })
    .add({
      name: "generator",
      start: () => generator.start(),
      ready: () => generator.problem(),
      stop: () => generator.stop(),
    });
  const code = await lifecycle.run();
  log.flush();
  return code;
}
