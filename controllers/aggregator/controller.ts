/**
 * Wires the aggregator of one cell: its parts, and what runs while it leads. `aggregator.ts` says in which order to
 * read this folder.
 */

import { hash } from "node:crypto";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { ClusterAccess } from "../../shared/kube/credentials/cluster-access.ts";
import type { ReflectorEvent } from "../../shared/kube/informer/reflector-options.ts";
import { EventRecorder } from "../../shared/observe/event-recorder.ts";
import { observeKubernetesEvents } from "../../shared/observe/process-observer.ts";
import { observeReconciles } from "../../shared/observe/reconcile-observer.ts";
import { observeListWatch, type WatchObserver } from "../../shared/observe/watch-observer.ts";
import { BackupKeeper } from "../../shared/recovery/backup/backup-keeper.ts";
import { observeRecovery, recoveryMetrics } from "../../shared/recovery/recovery-events.ts";
import { messageOf } from "../../shared/runtime/errors.ts";
import type { Part } from "../../shared/runtime/lifecycle.ts";
import { mounted } from "../../shared/runtime/mount-root.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { AGGREGATOR_LEASE, ENFORCED_NAMESPACE_LABEL } from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { Controller, ControllerContext, ControllerParts } from "../run-controller.ts";
import { Aggregator, type AggregatorOptions } from "./aggregator.ts";
import type { NamespaceMarker } from "./counting/namespace-marker.ts";
import { type PodParser, podParser } from "./counting/parsers.ts";
import { type Core, connectCore, type Pods, watchPods } from "./informers.ts";
import type { EventSink } from "./observe/events.ts";
import { aggregatorObserver } from "./observe/observer.ts";
import type { VanishedEvents } from "./observe/vanished-events.ts";
import { type AggregatorFlags, aggregatorOptions, OWN_CLUSTER } from "./options.ts";
import { eventGaps, stateMetrics } from "./state-metrics.ts";
import { CaInjector } from "./webhook-configuration/ca-injector.ts";
import { ConfigurationKeeper, readDeclared } from "./webhook-configuration/configuration-keeper.ts";
import { ConfigurationRefresher } from "./webhook-configuration/configuration-refresher.ts";
import { type ConfigurationOptions, ConfigurationWatches } from "./webhook-configuration/configuration-watch.ts";
import type { ConfigurationResource } from "./webhook-configuration/desired-configuration.ts";
import { injectorMetrics, keeperMetrics, observeCaInjector, observeKeeper } from "./webhook-configuration/observe.ts";

const EXIT_CONFIGURATION = 2;
const LAST_EVENTS_MS = 2_000;

type Context = ControllerContext<AggregatorFlags>;

export const aggregatorController: Controller<AggregatorFlags> = {
  name: aggregatorOptions.name,
  flags: () => commandLine(aggregatorOptions),
  graceMs: 20_000,
  server: "cell",
  election: (flags) => ({ ...flags, lease: leaseName(flags) }),
  build,
};

/**
 * The Lease that the replicas of one cell contend for: upstream's name where the cell is a whole cluster, one for each
 * cell where a cluster has several. Always a valid object name.
 */
function leaseName({ cellId, namespace }: AggregatorFlags): string {
  if (namespace === "") return AGGREGATOR_LEASE;
  const plain = cellId
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 40);
  const suffix = plain === cellId ? plain : `${plain}-${hash("sha256", cellId, "hex").slice(0, 8)}`;
  return `${AGGREGATOR_LEASE}-${suffix.replace(/^-/, "")}`;
}

async function build(context: Context): Promise<ControllerParts> {
  const { flags, ports, log, metrics, transport } = context;
  const watches = observeListWatch({ metrics, log, clock: ports.clock });
  const parser = podParser(flags.syncTimeAlgorithm);
  const onPods = (event: ReflectorEvent): void => {
    aggregator.onPodWatch(event);
    backups.cellWatched(event);
  };
  const pods = await watchPods(context, parser.parse, watches, onPods, eventGaps(metrics, flags.cellId));
  const cores: Core[] = [];
  for (const core of flags.core) {
    const onEvent = (event: ReflectorEvent): void => {
      aggregator.onProtectorWatch(core.name, event);
      backups.watched(core.name, event);
    };
    cores.push(await connectCore(context, core, watches, onEvent));
  }
  const onOutcome = observeKubernetesEvents(metrics);
  // Loaded with the first Event: most cells never have one.
  let vanished: VanishedEvents | undefined;
  const told = { cellID: flags.cellId, cores, ports, component: aggregatorOptions.name, onOutcome };
  const selects = await selectorOf(flags);
  const lookups: Pick<AggregatorOptions, "isAsked" | "formerCells"> = {
    isAsked: (namespace) => isAsked(flags, keeper, namespace),
    // Backups contain the former ids.
    ...(flags.outlive ? { formerCells: () => backups.formerCells } : {}),
  };
  const onEvent: EventSink = (event) => {
    if (event.kind !== "vanished") return;
    void import("./observe/vanished-events.ts").then((loaded) => {
      vanished ??= new loaded.VanishedEvents(told);
      vanished.record(event);
    });
  };
  const aggregator: Aggregator = aggregatorOf(context, { pods, parser, cores, watches, onEvent, selects, ...lookups });
  const backups: BackupKeeper = backupKeeper(context, aggregator, cores);
  // Only the CA injector has to be in time: a certificate waits for it.
  const onConfigurationEvent = (resource: ConfigurationResource, event: ReflectorEvent): void => {
    if (flags.caCluster !== "") watches.observe(resource)(event);
  };
  const configuration = {
    watches: new ConfigurationWatches({ transport, ports, onEvent: onConfigurationEvent }),
    ...{ ports, mayWrite: context.mayWrite, api: new ApiClient(transport) },
    name: flags.registration,
    namespace: flags.systemNamespace,
    timeoutMs: flags.coreTimeout,
  };
  const injector = caInjector(context, configuration, cores);
  const events = new EventRecorder({ transport, ports, component: aggregatorOptions.name, onOutcome });
  const keeper: ConfigurationKeeper | undefined = await configurationKeeper(context, configuration, events);
  const refresher = injector === undefined && keeper === undefined ? undefined : refresherOf(context, configuration);
  let endRenewal = (): void => {};
  const startRenewal = async (): Promise<void> => {
    const { followCoreTokens } = await import("../../shared/observe/core-tokens.ts");
    endRenewal = followCoreTokens({ cores, cells: [{ name: flags.cellId, transport }], ports, metrics, log, mounted });
  };
  return {
    async lead(signal) {
      const keeping = flags.outlive ? backups.run(signal) : undefined;
      const counted = Promise.withResolvers<void>();
      const kept = [injector?.run(signal, counted.promise), keeper?.run(signal, counted.promise)];
      await Promise.all([aggregator.lead(signal, counted.resolve), keeping, ...kept, refresher?.run(signal)]);
    },
    parts: [
      watchPart("pods", pods),
      ...cores.map(({ name, protectors }) => watchPart(`protectors of ${name}`, protectors)),
      { name: "numbers", start: () => showNumbers(context, aggregator) },
      { name: "core tokens", start: startRenewal, stop: () => endRenewal() },
      { name: "releases", stop: () => backups.stop() },
      { name: "registration", stop: () => events.stop(LAST_EVENTS_MS) },
      { name: "events", stop: () => vanished?.stop(LAST_EVENTS_MS) },
    ],
  };
}

/**
 * True where the apiserver reads its webhooks from files, which this process can't see. The webhook ignores Podseidon's
 * own pods.
 */
function isAsked(
  { keepRegistration, markNamespaces, systemNamespace }: AggregatorFlags,
  keeper: ConfigurationKeeper | undefined,
  namespace: string,
): boolean {
  if (namespace === systemNamespace) return false;
  if (!keepRegistration) return true;
  const marks = markNamespaces ? { [ENFORCED_NAMESPACE_LABEL]: "true" } : {};
  return keeper?.isAsked({ "kubernetes.io/metadata.name": namespace, ...marks }) === true;
}

interface AggregatorParts extends Pick<AggregatorOptions, "isAsked" | "formerCells" | "selects"> {
  readonly pods: Pods;
  readonly parser: PodParser;
  readonly cores: readonly Core[];
  readonly watches: WatchObserver;
  readonly onEvent: EventSink;
}

function aggregatorOf(context: Context, parts: AggregatorParts): Aggregator {
  const { pods, parser, cores, watches, isAsked, formerCells, selects } = parts;
  const { flags, ports, log, metrics, transport, mayWrite, cluster } = context;
  const { clock } = ports;
  const names = cores.map(({ name }) => name);
  const queues = observeReconciles(metrics, log);
  const observe = aggregatorObserver({ metrics, log: log.child({ cell: flags.cellId }), clock, cores: names });
  const onEvent: EventSink = (event) => {
    observe(event);
    parts.onEvent(event);
  };
  const queueEvents = new Map(names.map((name) => [name, queues.observe(name)]));
  const aggregator: Aggregator = new Aggregator({
    ...{ ports, pods, parser, cores, mayWrite, ...(isAsked === undefined ? {} : { isAsked }) },
    cellID: flags.cellId,
    cellClient: new ApiClient(transport),
    triggerNamespace: triggerNamespace(flags, cluster),
    settleMs: flags.settlePeriod,
    heartbeatMs: flags.heartbeatInterval,
    algorithm: flags.syncTimeAlgorithm,
    voidAfterMs: flags.voidAfter,
    rateMs: flags.aggregationRate,
    coalesceMs: flags.coalescePeriod,
    writeConcurrency: flags.coreWriteConcurrency,
    timeoutMs: flags.coreTimeout,
    gateBoundMs: flags.countedGateBound,
    async expectedPods(onChanged) {
      const { ExpectedPods } = await import("./counting/expected-pods.ts");
      const onWatch = (resource: string, event: ReflectorEvent): void => watches.observe(resource)(event);
      const { scalable, namespace } = flags;
      return new ExpectedPods({ transport, ports, scalable, namespace, onWatch, onChanged });
    },
    ...{ selects, formerCells },
    namespaceMarker: flags.markNamespaces ? () => namespaceMarker(context, watches, aggregator, onEvent) : undefined,
    onEvent,
    onQueueEvent: (core, event) => queueEvents.get(core)?.(event),
  });
  // Each term of leadership has its own queue.
  for (const name of names) queues.track(name, () => aggregator.coreReconcilers.get(name)?.queue);
  stateMetrics(metrics, aggregator, clock, flags.cellId);
  return aggregator;
}

/** Selects the protectors that are counted, if configured. An invalid selector ends the process. */
async function selectorOf({ protectorSelector }: AggregatorFlags): Promise<AggregatorOptions["selects"]> {
  if (protectorSelector.trim() === "") return undefined;
  const { selects } = await import("../../shared/decide/availability/selector-text.ts");
  const found = selects(protectorSelector);
  return found ?? exitWith(`--protector-selector: not a label selector: ${protectorSelector}`);
}

/** Loaded when the process starts to watch. */
async function showNumbers({ flags, metrics, ports }: Context, aggregator: Aggregator): Promise<void> {
  const { protectorMetrics } = await import("./counting/protector-metrics.ts");
  const { protectorNumbers } = await import("./observe/protector-numbers.ts");
  const { stuckReservations } = await import("./observe/stuck-reservations.ts");
  const { protectorMetrics: isByProtector, metricLabels: labels } = flags;
  const cores = aggregator.cores.map(({ name }) => name);
  const protectorsIn = (core: string): Iterable<PodProtector> => protectorsOf(aggregator, core);
  protectorMetrics(metrics, cores, protectorsIn, ports.clock);
  stuckReservations(metrics, aggregator, ports.clock);
  protectorNumbers(metrics, { cores, protectorsOf: protectorsIn, isByProtector, labels });
}

async function namespaceMarker(
  { flags, ports, transport, mayWrite }: Context,
  watches: WatchObserver,
  { membership }: Aggregator,
  onEvent: EventSink,
): Promise<NamespaceMarker> {
  const { NamespaceMarker } = await import("./counting/namespace-marker.ts");
  const { namespace, coreTimeout: timeoutMs } = flags;
  const onWatch = watches.observe("namespaces");
  const api = new ApiClient(transport);
  const hasProtectors = (name: string): boolean => membership.hasProtectors(name);
  const sinks = { onWatch, onEvent };
  return new NamespaceMarker({ transport, api, ports, namespace, timeoutMs, hasProtectors, mayWrite, ...sinks });
}

/** Determined like in the update trigger, so that the defaults of both agree. */
function triggerNamespace({ updateTriggerNamespace, namespace }: AggregatorFlags, cluster: ClusterAccess): string {
  if (updateTriggerNamespace !== "") return updateTriggerNamespace;
  return namespace === "" ? (cluster.namespace ?? "default") : namespace;
}

function* protectorsOf({ membership }: Aggregator, core: string): Iterable<PodProtector> {
  for (const { protector } of membership.protectors(core)) yield protector;
}

function backupKeeper(context: Context, aggregator: Aggregator, cores: readonly Core[]): BackupKeeper {
  const { flags, ports, log, metrics, transport, mayWrite } = context;
  const keeper = new BackupKeeper({
    ...{ ports, cores, mayWrite, membership: aggregator.membership },
    cellID: flags.cellId,
    cellApi: new ApiClient(transport),
    namespace: flags.systemNamespace,
    adopts: flags.namespace === "",
    settleMs: flags.settlePeriod,
    headStartMs: flags.restoreAfter,
    everyMs: flags.copyInterval,
    timeoutMs: flags.coreTimeout,
    coreRestored: (core) => aggregator.coreRestored(core),
    onEvent: observeRecovery(metrics, log.child({ cell: flags.cellId }), ports.clock),
  });
  recoveryMetrics(metrics, keeper, flags.cellId);
  return keeper;
}

/** The CA injector, where `--ca-cluster` asks for it. */
function caInjector(
  { flags, metrics, log }: Context,
  options: ConfigurationOptions,
  cores: readonly Core[],
): CaInjector | undefined {
  const { caCluster } = flags;
  if (caCluster === "") return undefined;
  const publisher = caCluster === OWN_CLUSTER ? options.api : cores.find(({ name }) => name === caCluster)?.api;
  if (publisher === undefined) throw new Error(`there is no core ${caCluster}`);
  const injector = new CaInjector({
    ...{ ...options, publisher },
    cellID: flags.cellId,
    intervalMs: flags.caInterval,
    secretPath: flags.secretPath,
    onEvent: observeCaInjector(metrics, log),
  });
  injectorMetrics(metrics, injector);
  return injector;
}

/** The webhook configuration keeper, unless `--keep-registration=false`. */
async function configurationKeeper(
  { flags, metrics, log }: Context,
  options: ConfigurationOptions,
  events: EventRecorder,
): Promise<ConfigurationKeeper | undefined> {
  if (!flags.keepRegistration) return undefined;
  const keeper = new ConfigurationKeeper({
    ...options,
    declared: await readDeclared(flags.registrationFile, flags.cellId).catch((error: unknown) =>
      exitWith(`--registration-file: ${messageOf(error)}`),
    ),
    onEvent: observeKeeper({ metrics, log, events, name: options.name }),
    onRecordFailed: (error) => log.warn({ error }, "The record of the webhook configuration failed"),
  });
  keeperMetrics(metrics, keeper);
  return keeper;
}

function refresherOf({ log }: Context, options: ConfigurationOptions): ConfigurationRefresher {
  const onFailed = (configuration: string, error: string): void =>
    log.warn({ configuration, error }, "A webhook configuration could not be written again; this is repeated");
  return new ConfigurationRefresher({ ...options, onFailed });
}

/** A flag that can't be used ends the process. */
function exitWith(problem: string): never {
  process.stderr.write(`${aggregatorOptions.name}: ${problem}\n`);
  process.exit(EXIT_CONFIGURATION);
}

function watchPart(name: string, watch: Pick<Pods, "start" | "stop" | "synced">): Part {
  return {
    name,
    start: () => watch.start(),
    stop: () => watch.stop(),
    ready: () => (watch.synced ? undefined : "not listed yet"),
  };
}
