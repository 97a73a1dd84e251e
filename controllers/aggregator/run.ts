/** The aggregator as a process: options, access to the cell and the cores, life and observation. */
import { hostname } from "node:os";
import { ApiClient, PODPROTECTORS_PATH } from "../../shared/kube/api.ts";
import { AccessError, type ClusterAccess } from "../../shared/kube/cluster-access.ts";
import { createHttpsTransport } from "../../shared/kube/https-transport.ts";
import { loadClusterAccess } from "../../shared/kube/kubeconfig.ts";
import { LeaderElector } from "../../shared/kube/leader-election.ts";
import { ListWatch } from "../../shared/kube/list-watch.ts";
import type { Transport } from "../../shared/kube/transport.ts";
import type { WatchEvent } from "../../shared/kube/watch-event.ts";
import { createLog, type Log } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { commandLine } from "../../shared/runtime/command-line.ts";
import { HealthServer } from "../../shared/runtime/health-server.ts";
import { Lifecycle, type LifecycleEvent } from "../../shared/runtime/lifecycle.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { systemProcess } from "../../shared/runtime/system-process.ts";
import { version } from "../../shared/runtime/version.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { Aggregator, type CoreAccess } from "./aggregator.ts";
import type { EventSink } from "./events.ts";
import { leaseName } from "./lease-name.ts";
import { eventLog } from "./log-events.ts";
import { eventMetrics, stateMetrics } from "./metrics.ts";
import { type AggregatorOptions, aggregatorOptions } from "./options.ts";
import { podParser } from "./pod-parser.ts";
import { parseTrimmedProtector } from "./protector-parser.ts";

const COMPONENT = "podseidon-aggregator";
const DEFAULT_NAMESPACE = "podseidon-system";
const EXIT_CONFIGURATION = 2;
/** Below the 30 s of the pod. */
const GRACE_MS = 20_000;
/** Bookmarks come before the end of a stream: the position of a quiet cell moves about as often as this. */
const SERVER_TIMEOUT_SECONDS = [8, 12] as const;

async function access(flag: string, path: string): Promise<ClusterAccess> {
  try {
    return await loadClusterAccess(path, { env: process.env });
  } catch (error) {
    if (!(error instanceof AccessError)) throw error;
    process.stderr.write(`${COMPONENT}: ${flag}: ${error.message}\n`);
    process.exit(EXIT_CONFIGURATION);
  }
}

function connect(cluster: ClusterAccess): Transport {
  return createHttpsTransport(cluster, { ports: systemPorts, userAgent: `${COMPONENT}/${version}` });
}

function watchPods(
  transport: Transport,
  options: AggregatorOptions,
  parse: (raw: unknown) => Pod,
  onEvent: (event: WatchEvent) => void,
): ListWatch<Pod> {
  const { namespace, podSelector, cellId } = options;
  return new ListWatch<Pod>({
    name: `pods of ${cellId}`,
    transport,
    ports: systemPorts,
    path: namespace === "" ? "/api/v1/pods" : `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`,
    query: podSelector === "" ? {} : { labelSelector: podSelector },
    parse,
    keyOf: (pod) => `${pod.namespace}/${pod.name}`,
    uidOf: (pod) => pod.uid,
    versionOf: (pod) => pod.resourceVersion,
    serverTimeoutSeconds: SERVER_TIMEOUT_SECONDS,
    // A pod that can't be read is still there: what was known of it holds until it is gone.
    unparsable: "keepLast",
    onEvent,
  });
}

function watchProtectors(
  name: string,
  transport: Transport,
  onEvent: (event: WatchEvent) => void,
): ListWatch<PodProtector> {
  return new ListWatch<PodProtector>({
    name: `protectors of ${name}`,
    transport,
    ports: systemPorts,
    path: PODPROTECTORS_PATH,
    parse: parseTrimmedProtector,
    keyOf: ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`,
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
    serverTimeoutSeconds: SERVER_TIMEOUT_SECONDS,
    unparsable: "keepLast",
    onEvent,
  });
}

function logLifecycle(log: Log, event: LifecycleEvent): void {
  const bad = event.kind === "fatal" || event.kind === "stop-failed" || event.kind === "grace-exceeded";
  if (bad) log.error({ ...event }, "The process is not well");
  else log.info({ ...event }, "Lifecycle");
}

/** Leads while the lease is held, or at once where there is no election. */
class Leadership {
  readonly #aggregator: () => Aggregator;
  readonly #elector: LeaderElector | undefined;
  readonly #alone = new AbortController();
  #leading: Promise<void> = Promise.resolve();

  constructor(
    options: AggregatorOptions,
    cluster: ClusterAccess,
    transport: Transport,
    log: Log,
    aggregator: () => Aggregator,
  ) {
    this.#aggregator = aggregator;
    if (!options.leaderElect) return;
    this.#elector = new LeaderElector({
      transport,
      ports: systemPorts,
      namespace: options.leaderElectNamespace ?? cluster.namespace ?? DEFAULT_NAMESPACE,
      name: leaseName(options),
      identity: `${hostname()}_${systemPorts.random.token()}`,
      leaseDurationMs: options.leaseDuration,
      renewDeadlineMs: options.renewDeadline,
      retryPeriodMs: options.retryPeriod,
      onStartedLeading: (signal) => this.#lead(signal),
      onStoppedLeading: () => this.#leading,
      onEvent: (event) => {
        if (event.kind === "failed") log.warn({ ...event }, "The lease could not be had");
        else log.info({ ...event }, "Leader election");
      },
    });
  }

  get isLeader(): boolean {
    return this.#elector === undefined ? !this.#alone.signal.aborted : this.#elector.isLeader();
  }

  start(): void {
    if (this.#elector === undefined) this.#lead(this.#alone.signal);
    else this.#elector.start();
  }

  async stop(): Promise<void> {
    this.#alone.abort();
    await this.#elector?.stop();
    await this.#leading;
  }

  #lead(signal: AbortSignal): void {
    // A term that is still ending must not overlap with the next: both would move the same needs.
    this.#leading = this.#leading.then(() => this.#aggregator().lead(signal));
  }
}

/** Runs the aggregator until it is told to stop; resolves with the exit code. */
export async function run(): Promise<number> {
  const options = await commandLine(aggregatorOptions);
  const ports = systemPorts;
  const log = createLog({ component: "aggregator", level: options.logLevel });
  const metrics = new Metrics({ processMetrics: true });
  const sinks = [eventMetrics(metrics), eventLog(log.child({ cell: options.cellId }))];
  const onEvent: EventSink = (event) => {
    for (const sink of sinks) sink(event);
  };
  const cluster = await access("--kubeconfig", options.kubeconfig);
  const transport = connect(cluster);
  const transports = [transport];
  const parser = podParser(options.syncTimeAlgorithm);
  const pods = watchPods(transport, options, parser.parse, (event) => aggregator.podsWatched(event));
  const cores: CoreAccess[] = [];
  for (const { name, path } of options.core) {
    const core = connect(await access(`--core ${name}`, path ?? ""));
    transports.push(core);
    const protectors = watchProtectors(name, core, (event) => aggregator.protectorsWatched(name, event));
    cores.push({ name, client: new ApiClient(core), protectors });
  }
  const aggregator: Aggregator = new Aggregator({
    cellID: options.cellId,
    ports,
    pods,
    parser,
    cellClient: new ApiClient(transport),
    cores,
    settleMs: options.settlePeriod,
    heartbeatMs: options.heartbeatInterval,
    algorithm: options.syncTimeAlgorithm,
    voidAfterMs: options.voidAfter,
    rateMs: options.aggregationRate,
    coalesceMs: options.coalescePeriod,
    writeConcurrency: options.coreWriteConcurrency,
    timeoutMs: options.coreTimeout,
    mayWrite: () => leadership.isLeader,
    onEvent,
  });
  const leadership: Leadership = new Leadership(options, cluster, transport, log, () => aggregator);
  stateMetrics(metrics, aggregator, ports.clock);
  metrics.gaugeFrom({ name: "aggregator_leader", help: "1 while this replica leads.", labels: {} }, (set) =>
    set({}, leadership.isLeader ? 1 : 0),
  );
  const lifecycle = new Lifecycle({
    ports,
    process: systemProcess,
    unreadyMs: 0,
    graceMs: GRACE_MS,
    onEvent: (event) => logLifecycle(log, event),
  });
  const health = new HealthServer({
    healthAddress: options.healthProbeBindAddress,
    metricsAddress: options.metricsBindAddress,
    readiness: () => lifecycle.readiness(),
    liveness: () => lifecycle.liveness(),
    metrics: () => metrics.render(),
  });
  lifecycle
    .add({ name: "health", start: () => health.start(), stop: () => health.stop() })
    .add({ name: "transports", stop: () => transports.forEach((one) => void one.close()) })
    .add(source("pods", pods));
  for (const { name, protectors } of cores) lifecycle.add(source(`protectors of ${name}`, protectors));
  lifecycle.add({ name: "leadership", start: () => leadership.start(), stop: () => leadership.stop() });
  const code = await lifecycle.run();
  log.flush();
  return code;
}

function source(
  name: string,
  watch: Pick<ListWatch<unknown>, "start" | "stop" | "synced">,
): {
  name: string;
  start: () => void;
  stop: () => Promise<void>;
  ready: () => string | undefined;
} {
  return {
    name,
    start: () => watch.start(),
    stop: () => watch.stop(),
    ready: () => (watch.synced ? undefined : "not listed yet"),
  };
}
