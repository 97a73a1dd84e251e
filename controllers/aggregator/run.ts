/** The aggregator as a process: options, access to the cell and the cores, life and observation. */

import { ApiClient, PODPROTECTORS_PATH } from "../../shared/kube/client/api-client.ts";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { accessOrExit } from "../../shared/kube/credentials/access-or-exit.ts";
import type { ClusterAccess } from "../../shared/kube/credentials/cluster-access.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { ShardedReflector } from "../../shared/kube/informer/sharded-reflector.ts";
import { offersShards } from "../../shared/kube/informer/shards.ts";
import type { WatchEvent } from "../../shared/kube/stream/watch-event.ts";
import { observeClocks } from "../../shared/observe/clock-observer.ts";
import { createLog, type Log } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { processHealth } from "../../shared/observe/process-health.ts";
import { observeDroppedLines, observeLeaderElection, observeLifecycle } from "../../shared/observe/process-observer.ts";
import { observeReconciles, type Tracked } from "../../shared/observe/reconcile-observer.ts";
import { observeListWatch } from "../../shared/observe/watch-observer.ts";
import type { BackupCore } from "../../shared/recovery/backup/backup-core.ts";
import { BackupKeeper } from "../../shared/recovery/backup/backup-keeper.ts";
import { backupMetrics, observeBackup } from "../../shared/recovery/backup/backup-observer.ts";
import { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import { Lifecycle } from "../../shared/runtime/lifecycle.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { systemProcess } from "../../shared/runtime/system-process.ts";
import { version } from "../../shared/runtime/version.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { LeaderTerm } from "../leader-term.ts";
import { Aggregator, type CoreAccess } from "./aggregator.ts";
import { parseTrimmedProtector, podParser } from "./counting/parsers.ts";
import { protectorMetrics } from "./counting/protector-metrics.ts";
import type { EventSink } from "./events.ts";
import { leaseName } from "./lease-name.ts";
import { eventLog } from "./log-events.ts";
import { eventMetrics, stateMetrics } from "./metrics.ts";
import { type AggregatorFlags, aggregatorOptions } from "./options.ts";
import { keepConfiguration } from "./webhook-configuration/configuration-duty.ts";
import { configurationKeeper, type KeeperWork } from "./webhook-configuration/keeper-duty.ts";

const COMPONENT = "podseidon-aggregator";
const EXIT_CONFIGURATION = 2;
/** Below the 30 s of the pod. */
const GRACE_MS = 20_000;
/** Protectors are busy while there is anything to do; what a quiet stream needs is only that a dead one is found. */
const PROTECTOR_STREAM_SECONDS = [8, 12] as const;

function connect(cluster: ClusterAccess): Transport {
  return createHttpsTransport(cluster, { ports: systemPorts, userAgent: `${COMPONENT}/${version}` });
}

/** Small pages: what a page leaves behind is collected while it is young, and 100,000 pods fit into a third of the memory. */
const POD_PAGE_SIZE = 100;

function watchPods(
  transport: Transport,
  options: AggregatorFlags,
  parse: (raw: unknown) => Pod,
  onEvent: (event: WatchEvent) => void,
): Reflector<Pod> | ShardedReflector<Pod> {
  const { namespace, podSelector, cellId, podShards } = options;
  const watch = {
    name: `pods of ${cellId}`,
    transport,
    ports: systemPorts,
    path: namespace === "" ? "/api/v1/pods" : `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`,
    query: podSelector === "" ? {} : { labelSelector: podSelector },
    parse,
    keyOf: (pod: Pod) => `${pod.namespace}/${pod.name}`,
    uidOf: (pod: Pod) => pod.uid,
    versionOf: (pod: Pod) => pod.resourceVersion,
    pageSize: POD_PAGE_SIZE,
    // A pod that can't be read is still there: what was known of it holds until it is gone.
    unparsable: "keepLast",
    onEvent,
  } as const;
  return podShards === 1 ? new Reflector<Pod>(watch) : new ShardedReflector<Pod>({ ...watch, shards: podShards });
}

/** As many shards as asked for where the server offers them: without its support each stream would carry every pod. */
async function shardsOf({ podShards, coreTimeout }: AggregatorFlags, transport: Transport, log: Log): Promise<number> {
  if (podShards === 1) return 1;
  const offers = await offersShards(new ApiClient(transport), "/api/v1/pods", { timeoutMs: coreTimeout });
  if (offers === true) return podShards;
  log.warn({ podShards, offers }, "The apiserver does not offer shardSelector; the pods are watched in one stream");
  return 1;
}

function watchProtectors(
  name: string,
  transport: Transport,
  onEvent: (event: WatchEvent) => void,
): Reflector<PodProtector> {
  return new Reflector<PodProtector>({
    name: `protectors of ${name}`,
    transport,
    ports: systemPorts,
    path: PODPROTECTORS_PATH,
    parse: parseTrimmedProtector,
    keyOf: ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`,
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
    serverTimeoutSeconds: PROTECTOR_STREAM_SECONDS,
    unparsable: "keepLast",
    onEvent,
  });
}

/** As the update trigger finds it, so that the defaults of both agree. */
function triggerNamespace({ updateTriggerNamespace, namespace }: AggregatorFlags, cluster: ClusterAccess): string {
  if (updateTriggerNamespace !== "") return updateTriggerNamespace;
  return namespace === "" ? (cluster.namespace ?? "default") : namespace;
}

/** Runs the aggregator until it is told to stop; resolves with the exit code. */
export async function run(): Promise<number> {
  const options = await commandLine(aggregatorOptions);
  const ports = systemPorts;
  const metrics = new Metrics({ processMetrics: true });
  const onDropped = observeDroppedLines(metrics);
  const log = createLog({ component: "aggregator", level: options.logLevel, onDropped });
  const sinks = [
    eventMetrics(
      metrics,
      options.core.map(({ name }) => name),
    ),
    eventLog(log.child({ cell: options.cellId }), ports.clock),
  ];
  const onEvent: EventSink = (event) => {
    for (const sink of sinks) sink(event);
  };
  const cluster = await accessOrExit(COMPONENT, "--kubeconfig", options.kubeconfig);
  const clocks = observeClocks(metrics, ports.clock);
  const transport = clocks.watch("cell", connect(cluster));
  const transports = [transport];
  const parser = podParser(options.syncTimeAlgorithm);
  const watches = observeListWatch({ metrics, log, clock: ports.clock });
  const observePods = watches.observe("pods");
  const podShards = await shardsOf(options, transport, log);
  const pods = watchPods(transport, { ...options, podShards }, parser.parse, (event) => {
    observePods(event);
    aggregator.onPodWatch(event);
    outlive.cellWatched(event);
  });
  watches.track("pods", pods);
  const cores: CoreAccess[] = [];
  const outliveCores: BackupCore[] = [];
  const clients: { readonly name: string; readonly client: ApiClient }[] = [];
  const watched: { readonly name: string; readonly watch: Startable }[] = [{ name: "pods", watch: pods }];
  for (const { name, path } of options.core) {
    const core = clocks.watch(`core ${name}`, connect(await accessOrExit(COMPONENT, `--core ${name}`, path ?? "")));
    transports.push(core);
    const observe = watches.observe(name);
    const protectors = watchProtectors(name, core, (event) => {
      observe(event);
      aggregator.onProtectorWatch(name, event);
      outlive.watched(name, event);
    });
    watches.track(name, protectors);
    watched.push({ name: `protectors of ${name}`, watch: protectors });
    const client = new ApiClient(core);
    clients.push({ name, client });
    cores.push({ name, client, protectors });
    outliveCores.push({ name, api: client, protectors, releases: releasesOf(name, core, options) });
  }
  const work = observeReconciles(metrics, log);
  const queueEvents = new Map(cores.map(({ name }) => [name, work.observe(name)]));
  const aggregator: Aggregator = new Aggregator({
    cellID: options.cellId,
    ports,
    pods,
    parser,
    cellClient: new ApiClient(transport),
    cores,
    triggerNamespace: triggerNamespace(options, cluster),
    settleMs: options.settlePeriod,
    heartbeatMs: options.heartbeatInterval,
    algorithm: options.syncTimeAlgorithm,
    voidAfterMs: options.voidAfter,
    rateMs: options.aggregationRate,
    coalesceMs: options.coalescePeriod,
    writeConcurrency: options.coreWriteConcurrency,
    timeoutMs: options.coreTimeout,
    mayWrite: () => leadership.isLeader,
    gateBoundMs: options.countedGateBound,
    onEvent,
    onQueueEvent: (core, event) => queueEvents.get(core)?.(event),
  });
  for (const { name } of cores) work.track(queueOf(aggregator, name));
  const outlive: BackupKeeper = new BackupKeeper({
    cellID: options.cellId,
    ports,
    cellApi: new ApiClient(transport),
    namespace: options.systemNamespace,
    membership: aggregator.membership,
    cores: outliveCores,
    settleMs: options.settlePeriod,
    headStartMs: options.restoreAfter,
    everyMs: options.copyInterval,
    timeoutMs: options.coreTimeout,
    mayWrite: () => leadership.isLeader,
    coreRestored: (core) => aggregator.coreRestored(core),
    onEvent: observeBackup(metrics, log.child({ cell: options.cellId })),
  });
  backupMetrics(metrics, outlive);
  const election = {
    ...options,
    transport,
    clusterNamespace: cluster.namespace,
    lease: leaseName(options),
    observer: observeLeaderElection(metrics, log),
  };
  const registration = keepConfiguration({
    options,
    ports,
    metrics,
    log,
    transport,
    cores: clients,
    mayWrite: () => leadership.isLeader,
    observeWatch: (name) => watches.observe(name),
  });
  const mayWrite = (): boolean => leadership.isLeader;
  const keeper = await keeperOf({ options, name: options.registration, ports, metrics, log, transport, mayWrite });
  const leadership: LeaderTerm = new LeaderTerm(election, async (signal) => {
    const outliving = options.outlive ? outlive.run(signal) : undefined;
    await Promise.all([aggregator.lead(signal), outliving, registration(signal), keeper.run(signal)]);
  });
  stateMetrics(metrics, aggregator, ports.clock);
  const names = cores.map(({ name }) => name);
  protectorMetrics(metrics, names, (core) => protectorsOf(aggregator, core), ports.clock);
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
    .add({ name: "transports", stop: () => transports.forEach((one) => void one.close()) });
  for (const { name, watch } of watched) lifecycle.add(source(name, watch));
  lifecycle.add({ name: "releases", stop: () => outlive.stop() });
  lifecycle.add({ name: "registration", stop: () => keeper.stop() });
  lifecycle.add({ name: "leadership", start: () => leadership.start(), stop: () => leadership.stop() });
  const code = await lifecycle.run();
  log.flush();
  return code;
}

function* protectorsOf({ membership }: Aggregator, core: string): Iterable<PodProtector> {
  for (const { protector } of membership.protectors(core)) yield protector;
}

/** A file that can't be used ends the process with what is wrong with it. */
async function keeperOf(parts: Parameters<typeof configurationKeeper>[0]): Promise<KeeperWork> {
  try {
    return await configurationKeeper(parts);
  } catch (error) {
    process.stderr.write(`${COMPONENT}: --registration-file: ${error instanceof Error ? error.message : error}\n`);
    process.exit(EXIT_CONFIGURATION);
  }
}

function releasesOf(core: string, transport: Transport, { systemNamespace }: AggregatorFlags): ReleaseRegister {
  return new ReleaseRegister({ core, transport, ports: systemPorts, namespace: systemNamespace });
}

/** The queue of the term that is under way: each term has one of its own. */
function queueOf(aggregator: Aggregator, core: string): Tracked {
  const queue = (): Tracked | undefined => aggregator.coreReconcilers.get(core)?.queue;
  return {
    name: core,
    get depth() {
      return queue()?.depth ?? 0;
    },
    get delayed() {
      return queue()?.delayed ?? 0;
    },
    get processing() {
      return queue()?.processing ?? 0;
    },
    get failing() {
      return queue()?.failing ?? 0;
    },
    longestWaitMs: () => queue()?.longestWaitMs() ?? 0,
    longestWorkMs: () => queue()?.longestWorkMs() ?? 0,
  };
}

type Startable = Pick<Reflector<unknown>, "start" | "stop" | "synced">;

function source(
  name: string,
  watch: Startable,
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
