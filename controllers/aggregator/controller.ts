/**
 * The aggregator of one cell, wired: it follows the cell's pods and the protectors of every core for as long as the
 * process lives, and accounts, keeps backups and looks after the webhook configuration while it leads.
 *
 * Read `aggregator.ts` next, then `counting/` (which pods count) and `settling/` (what is written to a protector).
 */
import { ApiClient, PODPROTECTORS_PATH } from "../../shared/kube/client/api-client.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import type { ClusterAccess } from "../../shared/kube/credentials/cluster-access.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { ShardedReflector } from "../../shared/kube/informer/sharded-reflector.ts";
import { offersShards } from "../../shared/kube/informer/shards.ts";
import type { WatchEvent } from "../../shared/kube/stream/watch-event.ts";
import type { Log } from "../../shared/observe/log.ts";
import { observeReconciles } from "../../shared/observe/reconcile-observer.ts";
import { observeListWatch } from "../../shared/observe/watch-observer.ts";
import { backupMetrics, observeBackup } from "../../shared/recovery/backup/backup-events.ts";
import { BackupKeeper } from "../../shared/recovery/backup/backup-keeper.ts";
import { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import type { Part } from "../../shared/runtime/lifecycle.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import type { NamedPath } from "../../shared/runtime/options/option-types.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { Controller, ControllerContext, ControllerParts } from "../run-controller.ts";
import { Aggregator } from "./aggregator.ts";
import { parseTrimmedProtector, podParser } from "./counting/parsers.ts";
import { protectorMetrics } from "./counting/protector-metrics.ts";
import { leaseName } from "./lease-name.ts";
import { aggregatorObserver } from "./observe/observer.ts";
import { type AggregatorFlags, aggregatorOptions, OWN_CLUSTER } from "./options.ts";
import { stateMetrics } from "./state-metrics.ts";
import {
  type ConfigurationWork,
  caInjection,
  configurationKeeping,
  readDeclared,
} from "./webhook-configuration/leader-work.ts";

const EXIT_CONFIGURATION = 2;
/** Protectors change while there is work; a quiet stream only has to find out that it is dead. */
const PROTECTOR_STREAM_SECONDS = [8, 12] as const;
/** Small pages: the garbage of a page is collected while it is young, and 100,000 pods need a third of the memory. */
const POD_PAGE_SIZE = 100;

type Context = ControllerContext<AggregatorFlags>;

export const aggregatorController: Controller<AggregatorFlags> = {
  name: aggregatorOptions.name,
  flags: () => commandLine(aggregatorOptions),
  graceMs: 20_000,
  server: "cell",
  election: (flags) => ({ ...flags, lease: leaseName(flags) }),
  build,
};

async function build(context: Context): Promise<ControllerParts> {
  const { flags, ports, log, metrics, transport, cluster, mayWrite } = context;
  const onEvent = aggregatorObserver({
    ...{ metrics, clock: ports.clock },
    log: log.child({ cell: flags.cellId }),
    cores: flags.core.map(({ name }) => name),
  });
  const watches = observeListWatch({ metrics, log, clock: ports.clock });
  const observePods = watches.observe("pods");
  const parser = podParser(flags.syncTimeAlgorithm);
  const podShards = await shardsOf(flags, transport, log);
  const pods = watchPods(context, podShards, parser.parse, (event) => {
    observePods(event);
    aggregator.onPodWatch(event);
    backups.cellWatched(event);
  });
  watches.track("pods", pods);
  const cores: Core[] = [];
  for (const { name, path } of flags.core) {
    const observe = watches.observe(name);
    const core = await connectCore(context, { name, path }, (event) => {
      observe(event);
      aggregator.onProtectorWatch(name, event);
      backups.watched(name, event);
    });
    watches.track(name, core.protectors);
    cores.push(core);
  }
  const cellClient = new ApiClient(transport);
  const queues = observeReconciles(metrics, log);
  const queueEvents = new Map(cores.map(({ name }) => [name, queues.observe(name)]));
  const aggregator: Aggregator = new Aggregator({
    ...settings(flags),
    ...{ ports, pods, parser, cellClient, cores, mayWrite, onEvent },
    triggerNamespace: triggerNamespace(flags, cluster),
    onQueueEvent: (core, event) => queueEvents.get(core)?.(event),
  });
  // Each leadership has a queue of its own.
  for (const { name } of cores) queues.track(name, () => aggregator.coreReconcilers.get(name)?.queue);
  const backups: BackupKeeper = new BackupKeeper({
    ...{ ports, cores, mayWrite, membership: aggregator.membership },
    cellID: flags.cellId,
    cellApi: cellClient,
    namespace: flags.systemNamespace,
    settleMs: flags.settlePeriod,
    headStartMs: flags.restoreAfter,
    everyMs: flags.copyInterval,
    timeoutMs: flags.coreTimeout,
    coreRestored: (core) => aggregator.coreRestored(core),
    onEvent: observeBackup(metrics, log.child({ cell: flags.cellId })),
  });
  backupMetrics(metrics, backups);
  stateMetrics(metrics, aggregator, ports.clock);
  const names = cores.map(({ name }) => name);
  protectorMetrics(metrics, names, (core) => protectorsOf(aggregator, core), ports.clock);
  const configuration = await configurationWork(context, cores, (resource, event) => watches.observe(resource)(event));
  return {
    async lead(signal) {
      const keeping = flags.outlive ? backups.run(signal) : undefined;
      await Promise.all([aggregator.lead(signal), keeping, ...configuration.map(({ lead }) => lead(signal))]);
    },
    parts: [
      watchPart("pods", pods),
      ...cores.map(({ name, protectors }) => watchPart(`protectors of ${name}`, protectors)),
      { name: "releases", stop: () => backups.stop() },
      ...configuration.flatMap(({ stop }) => (stop === undefined ? [] : [{ name: "registration", stop }])),
    ],
  };
}

/** What the flags say of counting and of writes. */
function settings(flags: AggregatorFlags) {
  return {
    cellID: flags.cellId,
    settleMs: flags.settlePeriod,
    heartbeatMs: flags.heartbeatInterval,
    algorithm: flags.syncTimeAlgorithm,
    voidAfterMs: flags.voidAfter,
    rateMs: flags.aggregationRate,
    coalesceMs: flags.coalescePeriod,
    writeConcurrency: flags.coreWriteConcurrency,
    timeoutMs: flags.coreTimeout,
    gateBoundMs: flags.countedGateBound,
  };
}

/** A core cluster, as the aggregator and the backup keeper use it. */
interface Core {
  readonly name: string;
  readonly client: ApiClient;
  readonly api: ApiClient;
  readonly protectors: Reflector<PodProtector>;
  readonly releases: ReleaseRegister;
}

async function connectCore(
  { flags, ports, connect }: Context,
  { name, path = "" }: NamedPath,
  onEvent: (event: WatchEvent) => void,
): Promise<Core> {
  const transport = await connect(`core ${name}`, `--core ${name}`, path);
  const client = new ApiClient(transport);
  const protectors = new Reflector<PodProtector>({
    ...{ transport, ports, onEvent },
    name: `protectors of ${name}`,
    path: PODPROTECTORS_PATH,
    parse: parseTrimmedProtector,
    keyOf: ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`,
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
    serverTimeoutSeconds: PROTECTOR_STREAM_SECONDS,
    unparsable: "keepLast",
  });
  const releases = new ReleaseRegister({ core: name, transport, ports, namespace: flags.systemNamespace });
  return { name, client, api: client, protectors, releases };
}

/**
 * As many shards as flags ask for where the server offers them: without its support each stream would carry every pod.
 */
async function shardsOf({ podShards, coreTimeout }: AggregatorFlags, transport: Transport, log: Log): Promise<number> {
  if (podShards === 1) return 1;
  const offers = await offersShards(new ApiClient(transport), "/api/v1/pods", { timeoutMs: coreTimeout });
  if (offers === true) return podShards;
  log.warn({ podShards, offers }, "The apiserver does not offer shardSelector; the pods are watched in one stream");
  return 1;
}

function watchPods(
  { flags, transport, ports }: Context,
  shards: number,
  parse: (raw: unknown) => Pod,
  onEvent: (event: WatchEvent) => void,
): Reflector<Pod> | ShardedReflector<Pod> {
  const { namespace, podSelector, cellId } = flags;
  const watch = {
    ...{ transport, ports, parse, onEvent },
    name: `pods of ${cellId}`,
    path: namespace === "" ? "/api/v1/pods" : `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`,
    query: podSelector === "" ? {} : { labelSelector: podSelector },
    keyOf: (pod: Pod) => `${pod.namespace}/${pod.name}`,
    uidOf: (pod: Pod) => pod.uid,
    versionOf: (pod: Pod) => pod.resourceVersion,
    pageSize: POD_PAGE_SIZE,
    // A pod that can't be read still exists: its last readable version holds until it is deleted.
    unparsable: "keepLast",
  } as const;
  return shards === 1 ? new Reflector<Pod>(watch) : new ShardedReflector<Pod>({ ...watch, shards });
}

/** As the update trigger finds it, so that the defaults of both agree. */
function triggerNamespace({ updateTriggerNamespace, namespace }: AggregatorFlags, cluster: ClusterAccess): string {
  if (updateTriggerNamespace !== "") return updateTriggerNamespace;
  return namespace === "" ? (cluster.namespace ?? "default") : namespace;
}

/** The CA injector and the webhook configuration keeper, as far as the flags ask for them. */
async function configurationWork(
  context: Context,
  cores: readonly Core[],
  onWatchEvent: (resource: string, event: WatchEvent) => void,
): Promise<ConfigurationWork[]> {
  const { flags, ports, metrics, log, transport, mayWrite } = context;
  const common = {
    ...{ ports, metrics, log, transport, mayWrite },
    cellID: flags.cellId,
    name: flags.registration,
    namespace: flags.systemNamespace,
    timeoutMs: flags.coreTimeout,
  };
  const work: ConfigurationWork[] = [];
  if (flags.caCluster !== "") {
    const publisher =
      flags.caCluster === OWN_CLUSTER
        ? new ApiClient(transport)
        : cores.find(({ name }) => name === flags.caCluster)?.client;
    if (publisher === undefined) throw new Error(`there is no core ${flags.caCluster}`);
    work.push(caInjection({ ...common, publisher, intervalMs: flags.caInterval, onWatchEvent }));
  }
  if (flags.keepRegistration) {
    const declared = await readDeclared(flags.registrationFile, flags.cellId).catch(unusableFile);
    work.push(configurationKeeping({ ...common, component: aggregatorOptions.name, declared }));
  }
  return work;
}

function unusableFile(error: unknown): never {
  process.stderr.write(
    `${aggregatorOptions.name}: --registration-file: ${error instanceof Error ? error.message : error}\n`,
  );
  process.exit(EXIT_CONFIGURATION);
}

function* protectorsOf({ membership }: Aggregator, core: string): Iterable<PodProtector> {
  for (const { protector } of membership.protectors(core)) yield protector;
}

function watchPart(name: string, watch: Pick<Reflector<unknown>, "start" | "stop" | "synced">): Part {
  return {
    name,
    start: () => watch.start(),
    stop: () => watch.stop(),
    ready: () => (watch.synced ? undefined : "not listed yet"),
  };
}
