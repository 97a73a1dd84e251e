/**
 * One term of leadership: list-watches of protectors and of each plugin's kind, and the workers that keep the one as the other
 * requires. It begins with complete lists by quorum reads, so that what the leader before wrote is seen before anything is decided.
 */
import { ApiClient, PODPROTECTORS_PATH } from "../../shared/kube/client/api-client.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { runWorkers } from "../../shared/runtime/reconcile.ts";
import { WorkQueue } from "../../shared/runtime/work-queue.ts";
import { parsePodProtector } from "../../shared/schema/parse-podprotector.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { BudgetPods } from "./budgets/budget-pods.ts";
import { Resolver } from "./budgets/resolve.ts";
import { Workloads } from "./budgets/workloads.ts";
import { ProtectorIndex } from "./protectors/protector-index.ts";
import { reconciler } from "./protectors/reconcile.ts";
import { GeneratorRecovery } from "./recovery.ts";
import type { GeneratorSetup } from "./setup.ts";
import { Discovery } from "./sources/discovery.ts";
import { KindWatch } from "./sources/kind-watch.ts";
import { type ProtectionSource, parseSourceKey, type SourcePlugin, sourceKey } from "./sources/protection-source.ts";

const CALL_TIMEOUT_MS = 10_000;

export class GeneratorTerm {
  readonly #setup: GeneratorSetup;
  readonly #mayWrite: () => boolean;
  readonly #api: ApiClient;
  readonly #protectors: Reflector<PodProtector>;
  readonly #kinds = new Map<string, KindWatch>();
  readonly #pods: BudgetPods;
  readonly #workloads: Workloads;
  readonly #index: ProtectorIndex;
  readonly #outlive: GeneratorRecovery;
  readonly #queue: WorkQueue;
  /** Keys are queued only when the protectors are known, and all objects of their kind: half of that could release a protector. */
  #working = false;

  constructor(setup: GeneratorSetup, mayWrite: () => boolean) {
    const { transport, ports, plugins, observer } = setup;
    this.#setup = setup;
    this.#mayWrite = mayWrite;
    this.#api = new ApiClient(transport);
    this.#queue = new WorkQueue({ name: "generator", ports, onEvent: observer.queue });
    this.#protectors = this.#watchProtectors();
    this.#outlive = new GeneratorRecovery(setup, this.#protectors, mayWrite);
    const { lost } = this.#outlive;
    this.#index = new ProtectorIndex(this.#protectors, plugins, {
      changed: (key) => this.#add(key),
      vanished: (protector) => lost.vanished(protector),
    });
    const discovery = new Discovery(this.#api, CALL_TIMEOUT_MS);
    for (const plugin of plugins) this.#kinds.set(plugin.name, this.#watchKind(plugin, discovery));
    this.#workloads = new Workloads({ api: this.#api, discovery, kinds: this.#kinds, timeoutMs: CALL_TIMEOUT_MS });
    this.#pods = new BudgetPods({
      transport,
      ports,
      onWatch: (event) => observer.watch("pods", event),
      onChanged: (key) => this.#add(key),
    });
  }

  /** Works until `signal` aborts; resolves when nothing of it runs any more. */
  async run(signal: AbortSignal): Promise<void> {
    this.#protectors.start();
    const kinds = [...this.#kinds.values()].map((kind) => kind.run(signal));
    await Promise.all([this.#protectors.whenSynced(signal), this.#outlive.start(signal)]);
    if (!signal.aborted) await this.#work(signal);
    await Promise.all([...kinds, this.#protectors.stop(), this.#pods.stop(), this.#outlive.stop()]);
  }

  problem(): string | undefined {
    if (!this.#protectors.synced) return "the protectors were not listed yet";
    for (const [name, kind] of this.#kinds) if (!kind.ready) return `the sources of ${name} were not listed yet`;
    return undefined;
  }

  orphans(): string[] {
    if (!this.#working) return [];
    return [...this.#index.sources()].filter((key) => {
      const { plugin, namespace, name } = parseSourceKey(key);
      return this.#isMine(key) && this.#kinds.get(plugin)?.get(`${namespace}/${name}`) === undefined;
    });
  }

  async #work(signal: AbortSignal): Promise<void> {
    const { ports, concurrency } = this.#setup;
    const workers = runWorkers(this.#queue, this.#reconciler(), { workers: concurrency, ports });
    this.#working = true;
    this.#outlive.register.start(signal);
    for (const kind of this.#kinds.values()) if (kind.ready) this.#addAll(kind);
    await aborted(signal);
    await workers.stop({ abort: true });
  }

  #add(key: string): void {
    if (this.#working && this.#isMine(key)) this.#queue.add(key);
  }

  /** All objects of its kind are known, and it is in a namespace that this generator looks after. */
  #isMine(key: string): boolean {
    const { plugin, namespace } = parseSourceKey(key);
    const kind = this.#kinds.get(plugin);
    return kind?.ready === true && (kind.plugin.covers?.(namespace) ?? true);
  }

  /** All sources of a kind that is known now, those whose protectors alone are left, and what waited for it. */
  #addAll(kind: KindWatch): void {
    if (!this.#working) return;
    const { name } = kind.plugin;
    for (const source of kind.values()) this.#add(keyOf(kind.plugin, source));
    for (const key of this.#index.sources()) if (key.startsWith(`${name}/`)) this.#add(key);
    // Budgets that were to be resolved over objects of this kind, whether or not these are there.
    for (const budget of this.#workloads.dependentsOfKind(name)) this.#add(budget);
  }

  #reconciler(): ReturnType<typeof reconciler> {
    const { ports, plugins, observer } = this.#setup;
    return reconciler({
      api: this.#api,
      ports,
      plugins,
      kinds: this.#kinds,
      resolver: new Resolver({ workloads: this.#workloads, pods: this.#pods }),
      protectors: this.#index,
      lost: this.#outlive.lost,
      register: this.#outlive.register,
      mayWrite: this.#mayWrite,
      timeoutMs: CALL_TIMEOUT_MS,
      onEvent: observer.generator,
    });
  }

  #watchProtectors(): Reflector<PodProtector> {
    const { transport, ports, observer } = this.#setup;
    return new Reflector<PodProtector>({
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

  #watchKind(plugin: SourcePlugin, discovery: Discovery): KindWatch {
    const { transport, ports, observer } = this.#setup;
    const watch: KindWatch = new KindWatch({
      plugin,
      transport,
      ports,
      discovery,
      onWatch: (event) => observer.watch(plugin.kind.resource, event),
      onChanged: (before, after) => this.#changed(plugin, before, after),
      onReady: () => this.#addAll(watch),
      onServed: (served, kind) => observer.generator({ kind: served ? "kindServed" : "kindGone", served: kind }),
    });
    return watch;
  }

  #changed(plugin: SourcePlugin, before: ProtectionSource | undefined, after: ProtectionSource | undefined): void {
    const source = after ?? before;
    if (source === undefined) return;
    const key = keyOf(plugin, source);
    this.#add(key);
    for (const budget of this.#workloads.changed(key, before, after)) this.#add(budget);
  }
}

function keyOf(plugin: SourcePlugin, { namespace, name }: ProtectionSource): string {
  return sourceKey({ plugin: plugin.name, namespace, name });
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
