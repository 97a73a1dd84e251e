/**
 * One term of leadership: list-watches of protectors and of each plugin's kind, and the workers that keep the one as the other
 * requires. It begins with complete lists by quorum reads, so that what the leader before wrote is seen before anything is decided.
 */
import { ApiClient, PODPROTECTORS_PATH } from "../../shared/kube/api.ts";
import { ListWatch } from "../../shared/kube/list-watch.ts";
import { WorkQueue } from "../../shared/runtime/queue.ts";
import { runWorkers } from "../../shared/runtime/reconcile.ts";
import { parsePodProtector } from "../../shared/schema/parse-podprotector.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { GeneratorSetup } from "./generator.ts";
import { ProtectorIndex } from "./protector-index.ts";
import { reconciler } from "./reconcile.ts";
import { collectionPath, type Source, type SourcePlugin, sourceKey } from "./source.ts";

const CALL_TIMEOUT_MS = 10_000;

export class Term {
  readonly #setup: GeneratorSetup;
  readonly #mayWrite: () => boolean;
  readonly #protectors: ListWatch<PodProtector>;
  readonly #sources = new Map<string, ListWatch<Source>>();
  readonly #index: ProtectorIndex;
  readonly #queue: WorkQueue;
  /** Keys are queued only when everything is known: a decision on half of it could release a protector. */
  #complete = false;

  constructor(setup: GeneratorSetup, mayWrite: () => boolean) {
    this.#setup = setup;
    this.#mayWrite = mayWrite;
    this.#queue = new WorkQueue({ name: "generator", ports: setup.ports, onEvent: setup.observer.queue });
    this.#protectors = this.#watchProtectors();
    this.#index = new ProtectorIndex(this.#protectors, setup.plugins, (key) => this.#add(key));
    for (const plugin of setup.plugins) this.#sources.set(plugin.name, this.#watchSources(plugin));
  }

  /** Works until `signal` aborts; resolves when nothing of it runs any more. */
  async run(signal: AbortSignal): Promise<void> {
    const watches = [this.#protectors, ...this.#sources.values()];
    for (const watch of watches) watch.start();
    await Promise.all(watches.map((watch) => watch.whenSynced(signal)));
    if (!signal.aborted) await this.#work(signal);
    await Promise.all(watches.map((watch) => watch.stop()));
  }

  problem(): string | undefined {
    if (!this.#protectors.synced) return "the protectors were not listed yet";
    for (const [name, source] of this.#sources) if (!source.synced) return `the sources of ${name} were not listed yet`;
    return undefined;
  }

  orphans(): string[] {
    if (!this.#complete) return [];
    return [...this.#index.sources()].filter((key) => {
      const slash = key.indexOf("/");
      return this.#sources.get(key.slice(0, slash))?.get(key.slice(slash + 1)) === undefined;
    });
  }

  async #work(signal: AbortSignal): Promise<void> {
    const { ports, concurrency } = this.#setup;
    const workers = runWorkers(this.#queue, this.#reconciler(), { workers: concurrency, ports });
    this.#complete = true;
    for (const plugin of this.#setup.plugins) {
      for (const source of this.#sources.get(plugin.name)?.values() ?? []) this.#add(keyOf(plugin, source));
    }
    for (const key of this.#index.sources()) this.#add(key);
    await aborted(signal);
    await workers.stop({ abort: true });
  }

  #add(key: string): void {
    if (this.#complete) this.#queue.add(key);
  }

  #reconciler(): ReturnType<typeof reconciler> {
    const { transport, ports, plugins, observer } = this.#setup;
    return reconciler({
      api: new ApiClient(transport),
      ports,
      plugins,
      sources: this.#sources,
      protectors: this.#index,
      mayWrite: this.#mayWrite,
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
        if (source !== undefined) this.#add(keyOf(plugin, source));
      },
    });
    return watch;
  }
}

function keyOf(plugin: SourcePlugin, { namespace, name }: Source): string {
  return sourceKey({ plugin: plugin.name, namespace, name });
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
