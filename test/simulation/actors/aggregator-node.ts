/** One aggregator process of a cell: the shipping assembly on simulated links, leading from its start to its death. */
import { Aggregator } from "../../../controllers/aggregator/aggregator.ts";
import { parseTrimmedProtector, podParser } from "../../../controllers/aggregator/counting/parsers.ts";
import { ApiClient, PODPROTECTORS_PATH } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { ShardedReflector } from "../../../shared/kube/informer/sharded-reflector.ts";
import type { WatchEvent } from "../../../shared/kube/stream/watch-event.ts";
import type { BackupKeeper } from "../../../shared/recovery/backup/backup-keeper.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { ProcessPorts } from "../../support/runtime/virtual-ports.ts";
import type { SimulatedLink } from "../apiserver/link.ts";
import { outliveOf } from "../backups/backup-node.ts";
import type { Coverage } from "../judge/coverage.ts";
import type { ShardLinks } from "./shard-links.ts";

export interface AggregatorNodeOptions {
  readonly cell: string;
  readonly ports: ProcessPorts;
  readonly cellLinks: ShardLinks;
  readonly cores: readonly { readonly name: string; readonly transport: Transport }[];
  readonly settleMs: number;
  /** Least time between two writes of one protector. */
  readonly rateMs: number;
  readonly coverage: Coverage;
  /** The longest that the counted gate keeps a pod from being Ready. */
  readonly gateBoundMs?: number;
  /** It has noticed that its cell was restored. */
  readonly noticedRestore: () => void;
  /** It keeps copies of protectors in its cell. */
  readonly outlive: boolean;
}

const HEARTBEAT_MS = 60_000;
const SERVER_TIMEOUT_SECONDS = [20, 40] as const;

export class AggregatorNode {
  readonly #options: AggregatorNodeOptions;
  readonly #stopping = new AbortController();
  readonly #outlive: BackupKeeper | undefined;

  constructor(options: AggregatorNodeOptions) {
    this.#options = options;
    const { cell, ports, cellLinks, settleMs, coverage } = options;
    const parser = podParser("exact");
    const pods = watchPods(options, parser.parse, (event) => {
      aggregator.onPodWatch(event);
      this.#outlive?.cellWatched(event);
    });
    const cores = options.cores.map(({ name, transport }) => ({
      ...{ name, transport },
      client: new ApiClient(transport),
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
          this.#outlive?.watched(name, event);
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
    if (options.outlive)
      this.#outlive = outliveOf({ cell, ports, cellTransport: cellLinks, cores, settleMs, coverage }, aggregator);
    pods.start();
    for (const { protectors } of cores) protectors.start();
    void aggregator.lead(this.#stopping.signal);
    void this.#outlive?.run(this.#stopping.signal);
  }

  /** Its connections for one shard each; none where the pods are in one stream. */
  get shardLinks(): readonly SimulatedLink[] {
    return this.#options.cellLinks.shards;
  }

  /** Stopped until it is resumed, or faults stop: it does nothing, and holds what it knows. */
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
    void this.#outlive?.stop();
  }
}

/** As the aggregator's `run.ts` does, in one stream or in shards. */
function watchPods(
  { cell, ports, cellLinks, coverage }: AggregatorNodeOptions,
  parse: (raw: unknown) => Pod,
  onEvent: (event: WatchEvent) => void,
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
    unparsable: "keepLast",
  } as const;
  const shards = cellLinks.shards.length;
  if (shards === 0) return new Reflector<Pod>({ ...watch, onEvent });
  const watched = (event: WatchEvent): void => {
    if (event.kind === "listed" && event.reason !== "first") coverage.rule("shards: one is listed anew");
    else if (event.kind === "versionWentBack") coverage.rule("shards: one shows a restore");
    onEvent(event);
  };
  return new ShardedReflector<Pod>({ ...watch, shards, onEvent: watched });
}
