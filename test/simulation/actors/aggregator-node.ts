/** One aggregator process of a cell: the shipping code on simulated links. It leads from its start to its death. */

import { Aggregator } from "../../../controllers/aggregator/aggregator.ts";
import { NamespaceMarker } from "../../../controllers/aggregator/counting/namespace-marker.ts";
import { parseTrimmedProtector, podParser } from "../../../controllers/aggregator/counting/parsers.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { PODPROTECTORS_PATH } from "../../../shared/kube/client/api-path.ts";
import type { ApiResponse, Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import { ShardedReflector } from "../../../shared/kube/informer/sharded-reflector.ts";
import { BackupKeeper } from "../../../shared/recovery/backup/backup-keeper.ts";
import { ReleaseRegister } from "../../../shared/recovery/register/release-register.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { type Pod, stubOfPod } from "../../../shared/schema/pod.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { ProcessPorts } from "../../support/runtime/virtual-ports.ts";
import type { SimulatedLink } from "../apiserver/link.ts";
import type { Coverage } from "../judge/coverage.ts";
import { OWN_NAMESPACE } from "../scenario/scenario.ts";
import type { ShardLinks } from "./shard-links.ts";

interface AggregatorNodeOptions {
  readonly cell: string;
  readonly ports: ProcessPorts;
  readonly cellLinks: ShardLinks;
  readonly cores: readonly { readonly name: string; readonly transport: Transport }[];
  readonly settleMs: number;
  /** Shortest time between two writes of one protector. */
  readonly rateMs: number;
  readonly coverage: Coverage;
  /** How long the counted gate may keep a pod from being Ready. */
  readonly gateBoundMs?: number;
  /** Called when the aggregator notices that its cell was restored. */
  readonly noticedRestore: () => void;
  /** Whether the aggregator keeps backups of protectors in its cell. */
  readonly keepsBackups: boolean;
  /** As `--mark-namespaces`. */
  readonly marksNamespaces?: boolean | undefined;
}

/** As `--restore-after` and `--copy-interval`. Shorter than the defaults, so that more happens in one run. */
const HEAD_START_MS = 8_000;
const EVERY_MS = 2_000;
const TIMEOUT_MS = 10_000;
const HEARTBEAT_MS = 60_000;
const SERVER_TIMEOUT_SECONDS = [20, 40] as const;

export class AggregatorNode {
  readonly #options: AggregatorNodeOptions;
  readonly #stopping = new AbortController();
  readonly #backups: BackupKeeper | undefined;

  constructor(options: AggregatorNodeOptions) {
    this.#options = options;
    const { cell, ports, cellLinks, settleMs, coverage } = options;
    const parser = podParser("exact");
    const pods = watchPods(options, parser.parse, (event) => {
      aggregator.onPodWatch(event);
      this.#backups?.cellWatched(event);
    });
    const cores = options.cores.map(({ name, transport }) => ({
      ...{ name, transport },
      api: new ApiClient(transport),
      protectors: new Reflector<PodProtector>({
        ...{
          name: `protectors of ${name}`,
          transport,
          ports,
          path: PODPROTECTORS_PATH,
          parse: parseTrimmedProtector,
          serverTimeoutSeconds: SERVER_TIMEOUT_SECONDS,
        },
        keyOf: ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`,
        uidOf: ({ metadata }) => metadata.uid,
        versionOf: ({ metadata }) => metadata.resourceVersion,
        unparsable: "keepLast",
        onEvent: (event) => {
          aggregator.onProtectorWatch(name, event);
          this.#backups?.watched(name, event);
        },
      }),
    }));
    const aggregator: Aggregator = new Aggregator({
      ...{
        cellID: cell,
        ports,
        pods,
        parser,
        triggerNamespace: undefined,
        settleMs,
        heartbeatMs: HEARTBEAT_MS,
        algorithm: "exact",
        voidAfterMs: 0,
      },
      ...{ rateMs: options.rateMs, coalesceMs: 5, writeConcurrency: 8, timeoutMs: 10_000 },
      cellClient: new ApiClient(cellLinks),
      cores,
      namespaceMarker: options.marksNamespaces === true ? async () => markerOf(options, aggregator) : undefined,
      mayWrite: () => true,
      gateBoundMs: options.gateBoundMs ?? 30_000,
      onEvent: (event) => {
        if (event.kind === "dropped") coverage.rule(event.rule);
        else if (event.kind === "refused") coverage.rule(event.refusal);
        else if (event.kind === "cellRestored") options.noticedRestore();
        else if (event.kind === "held") coverage.rule(`hold ${event.reason}`);
        else if (event.kind === "gateOpened" && event.reason !== "Unprotected")
          coverage.rule(`gate opened: ${event.reason}`);
        else if (event.kind === "evidence") coverage.rule(`evidence ${event.method}`);
      },
    });
    if (options.keepsBackups)
      this.#backups = backupKeeperOf({ cell, ports, cellTransport: cellLinks, cores, settleMs, coverage }, aggregator);
    pods.start();
    for (const { protectors } of cores) protectors.start();
    void aggregator.lead(this.#stopping.signal);
    void this.#backups?.run(this.#stopping.signal);
  }

  /** The connection of each shard; empty where one stream watches the pods. */
  get shardLinks(): readonly SimulatedLink[] {
    return this.#options.cellLinks.shards;
  }

  /** The process stops until it is resumed, or until faults end. It keeps its memory. */
  pause(): void {
    this.#options.ports.pause();
  }

  resume(): void {
    this.#options.ports.resume();
  }

  kill(): void {
    this.#options.ports.kill();
    this.#options.cellLinks.close();
    for (const { transport } of this.#options.cores) transport.close();
    this.#stopping.abort();
    void this.#backups?.stop();
  }
}

/** The part of the aggregator that marks namespaces with protectors (docs/design.md#marked-namespaces). */
function markerOf({ cellLinks: transport, ports }: AggregatorNodeOptions, { membership }: Aggregator): NamespaceMarker {
  const ignore = (): void => undefined;
  const api = new ApiClient(transport);
  const hasProtectors = (namespace: string): boolean => membership.hasProtectors(namespace);
  const sinks = { mayWrite: () => true, onWatch: ignore, onEvent: ignore };
  return new NamespaceMarker({ transport, api, ports, namespace: "", timeoutMs: TIMEOUT_MS, hasProtectors, ...sinks });
}

/** Watches pods as the aggregator's `run.ts` does, in one stream or in shards. */
function watchPods(
  { cell, ports, cellLinks, coverage }: AggregatorNodeOptions,
  parse: (raw: unknown) => Pod,
  onEvent: (event: ReflectorEvent) => void,
): Reflector<Pod> | ShardedReflector<Pod> {
  const watch = {
    name: `pods of ${cell}`,
    transport: cellLinks,
    ports,
    path: "/api/v1/pods",
    parse,
    serverTimeoutSeconds: SERVER_TIMEOUT_SECONDS,
    keyOf: (pod: Pod) => `${pod.namespace}/${pod.name}`,
    uidOf: (pod: Pod) => pod.uid,
    versionOf: (pod: Pod) => pod.resourceVersion,
    stub: stubOfPod,
    unparsable: "keepLast",
  } as const;
  const shards = cellLinks.shards.length;
  if (shards === 0) return new Reflector<Pod>({ ...watch, onEvent });
  const watched = (event: ReflectorEvent): void => {
    if (event.kind === "listed" && event.reason !== "first") coverage.rule("shards: one is relisted");
    else if (event.kind === "versionWentBack") coverage.rule("shards: one shows a restore");
    onEvent(event);
  };
  return new ShardedReflector<Pod>({ ...watch, shards, onEvent: watched });
}

interface BackupOptions {
  readonly cell: string;
  readonly ports: Ports;
  readonly cellTransport: Transport;
  readonly cores: readonly {
    readonly name: string;
    readonly transport: Transport;
    readonly protectors: Reflector<PodProtector>;
  }[];
  readonly settleMs: number;
  readonly coverage: Coverage;
}

/** The part of the aggregator that keeps backups of protectors in its cell (docs/design.md#lost-protectors). */
function backupKeeperOf(options: BackupOptions, aggregator: Aggregator): BackupKeeper {
  const { membership } = aggregator;
  const { cell, ports, cellTransport, settleMs, coverage } = options;
  const cores = options.cores.map(({ name, transport, protectors }) => ({
    name,
    api: new ApiClient(transport),
    protectors,
    releases: new ReleaseRegister({ core: name, transport, ports, namespace: OWN_NAMESPACE }),
  }));
  return new BackupKeeper({
    ...{ cellID: cell, ports, namespace: OWN_NAMESPACE, membership, cores, settleMs },
    ...{ headStartMs: HEAD_START_MS, everyMs: EVERY_MS, timeoutMs: TIMEOUT_MS },
    cellApi: new ApiClient(noticingConflicts(cellTransport, coverage)),
    mayWrite: () => true,
    coreRestored: (core) => aggregator.coreRestored(core),
    onEvent: ({ kind }) => coverage.rule(`backups: ${kind}`),
  });
}

/** Counts the creations that came second. */
function noticingConflicts(transport: Transport, coverage: Coverage): Transport {
  return {
    request(request) {
      const response = transport.request(request);
      const note = ({ status }: ApiResponse): void => {
        if (request.method === "POST" && status === 409) coverage.rule("backups: two leaders create the same chunk");
      };
      // Who awaits the response is not later than without this.
      void response.then(note, () => {});
      return response;
    },
    stream: (request) => transport.stream(request),
    close: () => transport.close(),
  };
}
