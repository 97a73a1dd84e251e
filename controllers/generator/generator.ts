/**
 * The generator of one core cluster: list-watches of protectors and of each plugin's kind, which run from the start so that a
 * replica that stands by can take over at once, and workers that run while it leads. Takes its ports, so that a simulation can
 * run it.
 */
import { ApiClient, PODPROTECTORS_PATH } from "../../shared/kube/api.ts";
import { LeaderElector, type LeaderEvent } from "../../shared/kube/leader-election.ts";
import { ListWatch } from "../../shared/kube/list-watch.ts";
import type { ConfirmedSource } from "../../shared/kube/source.ts";
import type { Transport } from "../../shared/kube/transport.ts";
import type { WatchEvent } from "../../shared/kube/watch-event.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { type QueueEvent, WorkQueue } from "../../shared/runtime/queue.ts";
import { runWorkers } from "../../shared/runtime/reconcile.ts";
import { GENERATOR_LEASE } from "../../shared/schema/annotations.ts";
import { parsePodProtector } from "../../shared/schema/parse-podprotector.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { GeneratorEvent } from "./events.ts";
import { ProtectorIndex } from "./protector-index.ts";
import { reconciler } from "./reconcile.ts";
import { collectionPath, type Source, type SourcePlugin, sourceKey } from "./source.ts";

export interface Election {
  readonly namespace: string;
  /** Unique among the candidates. */
  readonly identity: string;
  readonly leaseDurationMs: number;
  readonly renewDeadlineMs: number;
  readonly retryPeriodMs: number;
}

export interface GeneratorObserver {
  readonly generator: (event: GeneratorEvent) => void;
  readonly watch: (source: string, event: WatchEvent) => void;
  readonly queue: (event: QueueEvent) => void;
  readonly leader: (event: LeaderEvent) => void;
}

export interface GeneratorSetup {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly plugins: readonly SourcePlugin[];
  /** Undefined: it leads from the start. */
  readonly election: Election | undefined;
  readonly concurrency: number;
  readonly observer: GeneratorObserver;
}

const CALL_TIMEOUT_MS = 10_000;

export class Generator {
  readonly #setup: GeneratorSetup;
  readonly #protectors: ListWatch<PodProtector>;
  readonly #sources = new Map<string, ListWatch<Source>>();
  readonly #index: ProtectorIndex;
  readonly #elector: LeaderElector | undefined;
  /** While it leads. */
  #queue: WorkQueue | undefined;
  #term: Promise<void> = Promise.resolve();
  readonly #stopping = new AbortController();

  constructor(setup: GeneratorSetup) {
    this.#setup = setup;
    this.#protectors = this.#watchProtectors();
    this.#index = new ProtectorIndex(this.#protectors, setup.plugins, (key) => this.#queue?.add(key));
    for (const plugin of setup.plugins) this.#sources.set(plugin.name, this.#watchSources(plugin));
    const { election, transport, ports } = setup;
    if (election === undefined) return;
    this.#elector = new LeaderElector({
      ...election,
      transport,
      ports,
      name: GENERATOR_LEASE,
      onStartedLeading: (signal) => this.#begin(signal),
      onStoppedLeading: () => {},
      onEvent: setup.observer.leader,
    });
  }

  start(): void {
    this.#protectors.start();
    for (const source of this.#sources.values()) source.start();
    if (this.#elector === undefined) this.#begin(this.#stopping.signal);
    else this.#elector.start();
  }

  /** Gives up the lease once the work under way has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#term;
    await this.#elector?.stop();
    await Promise.all([this.#protectors.stop(), ...[...this.#sources.values()].map((source) => source.stop())]);
  }

  /** What keeps it from being ready; undefined when nothing does. */
  problem(): string | undefined {
    if (!this.#protectors.synced) return "the protectors were not listed yet";
    for (const [name, source] of this.#sources) if (!source.synced) return `the sources of ${name} were not listed yet`;
    return undefined;
  }

  get leading(): boolean {
    return this.#queue !== undefined;
  }

  /** Keys of sources that are named by a protector and are not there: their protectors stay in force. */
  orphans(): string[] {
    if (this.problem() !== undefined) return [];
    return [...this.#index.sources()].filter((key) => {
      const slash = key.indexOf("/");
      return this.#sources.get(key.slice(0, slash))?.get(key.slice(slash + 1)) === undefined;
    });
  }

  #begin(leading: AbortSignal): void {
    const signal = AbortSignal.any([leading, this.#stopping.signal]);
    this.#term = this.#term.then(() => this.#lead(signal));
  }

  /** One term: everything is looked at once, and then what changes, until `signal` aborts. */
  async #lead(signal: AbortSignal): Promise<void> {
    const { ports, concurrency, observer } = this.#setup;
    // What the leader before wrote must be seen before anything is decided.
    const sinceMs = ports.clock.monotonicMs();
    const watches = [this.#protectors, ...this.#sources.values()];
    await Promise.all(watches.map((source) => confirmed(source, sinceMs, signal)));
    if (signal.aborted) return;
    const queue = new WorkQueue({ name: "generator", ports, onEvent: observer.queue });
    const workers = runWorkers(queue, this.#reconciler(signal), { workers: concurrency, ports });
    this.#queue = queue;
    for (const plugin of this.#setup.plugins) {
      for (const source of this.#sources.get(plugin.name)?.values() ?? []) queue.add(keyOf(plugin, source));
    }
    for (const key of this.#index.sources()) queue.add(key);
    await ended(signal);
    this.#queue = undefined;
    await workers.stop({ abort: true });
  }

  #reconciler(signal: AbortSignal): ReturnType<typeof reconciler> {
    const { transport, ports, plugins, observer } = this.#setup;
    return reconciler({
      api: new ApiClient(transport),
      ports,
      plugins,
      sources: this.#sources,
      protectors: this.#index,
      mayWrite: () => !signal.aborted && (this.#elector?.isLeader() ?? true),
      timeoutMs: CALL_TIMEOUT_MS,
      onEvent: observer.generator,
    });
  }

  #watchProtectors(): ListWatch<PodProtector> {
    const { transport, ports, observer } = this.#setup;
    return new ListWatch<PodProtector>({
      name: "podprotectors",
      transport,
      ports,
      path: PODPROTECTORS_PATH,
      parse: parsePodProtector,
      keyOf: ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      unparsable: "keepLast",
      onEvent: (event) => observer.watch("podprotectors", event),
    });
  }

  #watchSources(plugin: SourcePlugin): ListWatch<Source> {
    const { transport, ports, observer } = this.#setup;
    const watch = new ListWatch<Source>({
      name: plugin.kind.resource,
      transport,
      ports,
      path: collectionPath(plugin.kind),
      parse: plugin.interpret,
      keyOf: ({ namespace, name }) => `${namespace}/${name}`,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      // A workload that can't be read any more is no reason to let its pods go.
      unparsable: "keepLast",
      onEvent: (event) => observer.watch(plugin.kind.resource, event),
    });
    watch.subscribe({
      changed: (before, after) => {
        const source = after ?? before;
        if (source !== undefined) this.#queue?.add(keyOf(plugin, source));
      },
    });
    return watch;
  }
}

function keyOf(plugin: SourcePlugin, { namespace, name }: Source): string {
  return sourceKey({ plugin: plugin.name, namespace, name });
}

/** Resolves when everything that was committed before `sinceMs` is in the source, or when `signal` aborts. */
function confirmed(source: ConfirmedSource<unknown>, sinceMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = (): void => {
      unsubscribe();
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const unsubscribe = source.subscribe({
      confirmed: (sentMs) => {
        if (sentMs >= sinceMs) finish();
      },
    });
    if (signal.aborted || (source.confirmedSentMs ?? -1) >= sinceMs) return finish();
    signal.addEventListener("abort", finish, { once: true });
    source.requestEvidence();
  });
}

function ended(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
