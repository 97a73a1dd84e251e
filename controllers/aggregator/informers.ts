/**
 * What the aggregator watches for as long as its process lives: the pods of the cell, and the protectors of every core.
 */

import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { PODPROTECTORS_PATH, podPath } from "../../shared/kube/client/api-path.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent, ReflectorOptions } from "../../shared/kube/informer/reflector-options.ts";
import type { ShardedReflector } from "../../shared/kube/informer/sharded-reflector.ts";
import { offersShards } from "../../shared/kube/informer/shards.ts";
import type { Log } from "../../shared/observe/log.ts";
import type { WatchObserver } from "../../shared/observe/watch-observer.ts";
import { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import type { NamedPath } from "../../shared/runtime/options/option-types.ts";
import { KIND } from "../../shared/schema/annotations.ts";
import { type Pod, stubOfPod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { ControllerContext } from "../run-controller.ts";
import { parseTrimmedProtector } from "./counting/parsers.ts";
import type { AggregatorFlags } from "./options.ts";

/** Protectors change all the time in a busy fleet. A quiet stream is short only to detect a dead one. */
const PROTECTOR_STREAM_SECONDS = [8, 12] as const;
/** Small pages: the garbage of a page is collected while it is young, and 100,000 pods need a third of the memory. */
const POD_PAGE_SIZE = 100;

type Context = ControllerContext<AggregatorFlags>;
/** The parts of a context that the watch of pods needs. */
type PodsContext = Pick<Context, "transport" | "ports"> & {
  readonly flags: Pick<AggregatorFlags, "namespace" | "podSelector" | "cellId" | "podShards" | "coreTimeout">;
  readonly log: Pick<Log, "warn">;
};
export type Pods = Reflector<Pod> | ShardedReflector<Pod>;

/** The pods of the cell, in `--pod-shards` shards if the apiserver offers sharded watches. */
export async function watchPods(
  context: PodsContext,
  parse: (raw: unknown) => Pod,
  watches: Pick<WatchObserver, "observe" | "track">,
  onEvent: (event: ReflectorEvent) => void,
  onHeard?: (gapMs: number) => void,
): Promise<Pods> {
  const { transport, ports } = context;
  const { namespace, cellId } = context.flags;
  const observe = watches.observe("pods");
  const watch = {
    ...{ transport, ports, parse },
    name: `pods of ${cellId}`,
    path: podPath(namespace),
    kind: "Pod",
    keyOf: (pod: Pod) => `${pod.namespace}/${pod.name}`,
    uidOf: (pod: Pod) => pod.uid,
    versionOf: (pod: Pod) => pod.resourceVersion,
    pageSize: POD_PAGE_SIZE,
    // An unreadable pod still exists, but does not count.
    stub: stubOfPod,
    unparsable: "keepLast",
    onEvent(event: ReflectorEvent) {
      observe(event);
      onEvent(event);
    },
    ...(onHeard === undefined ? {} : { onHeard }),
  } as const;
  const shards = await shardsOf(context, watch.path);
  const pods = shards === 1 ? new Reflector<Pod>(watch) : await sharded(watch, shards);
  watches.track("pods", pods);
  return pods;
}

type PodWatch = ReflectorOptions<Pod> & Required<Pick<ReflectorOptions<Pod>, "keyOf">>;

async function sharded(watch: PodWatch, shards: number): Promise<ShardedReflector<Pod>> {
  const { ShardedReflector } = await import("../../shared/kube/informer/sharded-reflector.ts");
  return new ShardedReflector<Pod>({ ...watch, shards });
}

/**
 * 1 where the apiserver does not offer sharded watches: each stream would carry every pod. Without an answer of the
 * apiserver the flag decides, because the choice lasts as long as the process.
 */
async function shardsOf({ flags, transport, log }: PodsContext, path: string): Promise<number> {
  const { podShards, coreTimeout } = flags;
  if (podShards === 1) return 1;
  const offers = await offersShards(new ApiClient(transport), path, { timeoutMs: coreTimeout });
  if (offers === false) {
    log.warn({ podShards }, "The apiserver does not offer shardSelector; the pods are watched in one stream");
    return 1;
  }
  if (offers === undefined) {
    log.warn({ podShards }, "It is unknown whether the apiserver offers shardSelector; the pods are watched in shards");
  }
  return podShards;
}

/** A core cluster, as the aggregator and the backup keeper use it. */
export interface Core {
  readonly name: string;
  /** Path of the kubeconfig. */
  readonly path: string;
  readonly transport: Transport;
  readonly api: ApiClient;
  readonly protectors: Reflector<PodProtector>;
  readonly releases: ReleaseRegister;
}

export async function connectCore(
  { flags, ports, connect }: Context,
  { name, path = "" }: NamedPath,
  watches: WatchObserver,
  onEvent: (event: ReflectorEvent) => void,
): Promise<Core> {
  const transport = await connect(`core ${name}`, `--core ${name}`, path, flags.coreWriteConcurrency);
  const observe = watches.observe(name);
  const protectors = new Reflector<PodProtector>({
    ...{ transport, ports },
    name: `protectors of ${name}`,
    path: PODPROTECTORS_PATH,
    kind: KIND,
    parse: parseTrimmedProtector,
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
    serverTimeoutSeconds: PROTECTOR_STREAM_SECONDS,
    unparsable: "listAgain",
    onEvent(event) {
      observe(event);
      onEvent(event);
    },
  });
  watches.track(name, protectors);
  const releases = new ReleaseRegister({ core: name, transport, ports, namespace: flags.systemNamespace });
  return { name, path, transport, api: new ApiClient(transport), protectors, releases };
}
