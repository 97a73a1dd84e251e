/**
 * The generator of one core cluster: list-watches of protectors and of each plugin's kind, and the workers that make
 * the protectors what the sources require. Read `sources/` next (what asks for a protector), then `budgets/` and
 * `protectors/` (what a worker does).
 */

import { isDeepStrictEqual } from "node:util";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { PODPROTECTORS_PATH } from "../../shared/kube/client/api-path.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../shared/kube/informer/reflector-options.ts";
import { LostProtectorsBySource } from "../../shared/recovery/lost-protectors-by-source.ts";
import { OWN_NAMESPACE } from "../../shared/recovery/register/register-format.ts";
import { RegisterWriter } from "../../shared/recovery/register/register-writer.ts";
import { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import { aborted, type Ports } from "../../shared/runtime/clock.ts";
import { runWorkers } from "../../shared/runtime/reconcile.ts";
import { type QueueEvent, WorkQueue } from "../../shared/runtime/work-queue.ts";
import { KIND } from "../../shared/schema/annotations.ts";
import { type Enforcement, type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";
import { BudgetPods } from "./budgets/budget-pods.ts";
import { Resolver } from "./budgets/resolve.ts";
import { WorkloadScales } from "./budgets/workload-scales.ts";
import { CoreHistory } from "./protectors/core-history.ts";
import { type GeneratorEvent, type Problem, ProblemReports } from "./protectors/events.ts";
import { sourceOf } from "./protectors/protector.ts";
import { ProtectorIndex } from "./protectors/protector-index.ts";
import { reconciler } from "./protectors/reconcile.ts";
import { RestoredCells } from "./protectors/restored-cells.ts";
import { KindWatch } from "./sources/kind-watch.ts";
import { NamespaceEnforcement } from "./sources/namespace-enforcement.ts";
import { type ProtectionSource, parseSourceKey, type SourcePlugin, sourceKey } from "./sources/protection-source.ts";

export interface GeneratorObserver {
  readonly generator: (event: GeneratorEvent) => void;
  /** `resource` is the plural of the watched kind. */
  readonly watch: (resource: string, event: ReflectorEvent) => void;
  readonly queue: (event: QueueEvent) => void;
  /** Any client has changed a protector while this process leads. */
  readonly protector?: (before: PodProtector | undefined, after: PodProtector | undefined) => void;
}

export interface GeneratorOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly plugins: readonly SourcePlugin[];
  readonly concurrency: number;
  /**
   * The enforcement of sources that state none, in namespaces that state none. Absent: Enforce, whatever namespaces
   * state.
   */
  readonly enforcement?: Enforcement;
  /** Namespace of the release register; `podseidon-system` by default. */
  readonly registerNamespace?: string;
  /** Asked before each write. */
  readonly mayWrite: () => boolean;
  readonly observer: GeneratorObserver;
}

const CALL_TIMEOUT_MS = 10_000;

export class Generator {
  readonly #options: GeneratorOptions;
  readonly #history: CoreHistory;
  #term: GeneratorTerm | undefined;

  constructor(options: GeneratorOptions) {
    this.#options = options;
    this.#history = new CoreHistory(options.ports.clock);
  }

  /** The Lease has this version, held by any process. */
  leaseSeen(version: string): void {
    this.#history.leaseSeen(version);
  }

  /** Leads until `signal` aborts; resolves when its last call has ended. */
  async lead(signal: AbortSignal): Promise<void> {
    const mayWrite = (): boolean => !signal.aborted && this.#options.mayWrite();
    this.#term = new GeneratorTerm({ ...this.#options, mayWrite }, this.#history);
    await this.#term.run(signal);
    this.#term = undefined;
  }

  get isLeading(): boolean {
    return this.#term !== undefined;
  }

  /** Why this leader is not ready; undefined when it is. A standby is always ready. */
  problem(): string | undefined {
    return this.#term?.problem();
  }

  /** Keys of the sources that vanished without a release; their protectors stay in force. */
  lostSources(): string[] {
    return this.#term?.lostSources() ?? [];
  }

  /** The resources of `--scalable`, and whether the core lacks each; none while this process does not lead. */
  scalables(): ReadonlyMap<string, boolean> {
    return this.#term?.scalables() ?? new Map();
  }

  /** How many sources have the problem now. */
  problems(problem: Problem): number {
    return this.#term?.reports.count(problem) ?? 0;
  }
}

/**
 * One term of leadership. It begins with complete lists by quorum reads, so it sees all writes of the previous leader.
 */
class GeneratorTerm {
  readonly reports: ProblemReports;
  readonly #options: GeneratorOptions;
  readonly #history: CoreHistory;
  readonly #api: ApiClient;
  readonly #protectors: Reflector<PodProtector>;
  readonly #kinds = new Map<string, KindWatch>();
  readonly #pods: BudgetPods;
  readonly #workloads: WorkloadScales;
  readonly #index: ProtectorIndex;
  readonly #namespaces: NamespaceEnforcement | undefined;
  readonly #releases: ReleaseRegister;
  readonly #register: RegisterWriter;
  readonly #lost: LostProtectorsBySource;
  readonly #restored: RestoredCells;
  readonly #queue: WorkQueue;
  /**
   * All protectors are listed. With incomplete lists of protectors or sources, a plan could release a protector by
   * mistake.
   */
  #isWorking = false;

  constructor(options: GeneratorOptions, history: CoreHistory) {
    const { transport, ports, plugins, mayWrite, observer, registerNamespace: namespace = OWN_NAMESPACE } = options;
    this.#options = options;
    this.reports = new ProblemReports(ports.clock, observer.generator);
    this.#history = history;
    this.#api = new ApiClient(transport);
    this.#queue = new WorkQueue({ name: "generator", ports, onEvent: observer.queue });
    this.#protectors = this.#watchProtectors();
    this.#restored = new RestoredCells({
      ...{ api: this.#api, protectors: this.#protectors, ports, mayWrite, onEvent: observer.generator },
      ...{ workers: options.concurrency, timeoutMs: CALL_TIMEOUT_MS },
    });
    this.#namespaces = this.#watchNamespaces();
    const onEvent = (event: ReflectorEvent): void => observer.watch("releases", event);
    this.#releases = new ReleaseRegister({ core: "core", transport, ports, namespace, onEvent });
    this.#register = new RegisterWriter({
      ...{ ports, namespace, mayWrite },
      api: this.#api,
      stored: this.#releases,
      timeoutMs: CALL_TIMEOUT_MS,
      onDropped: (segments) => observer.generator({ kind: "registerDropped", segments }),
      onBlocked: (cells) => observer.generator({ kind: "registerBlocked", cells }),
    });
    this.#lost = new LostProtectorsBySource({
      watched: this.#protectors,
      // The watch of the register may show an own release last.
      isRecorded: (protector) => this.#index.isReleased(protector) || this.#releases.hasEnded(protector),
      sourceOf: (protector) => {
        const source = sourceOf(protector, plugins);
        return source === undefined ? undefined : sourceKey(source);
      },
    });
    this.#index = new ProtectorIndex(this.#protectors, plugins, {
      changed: (key) => this.#add(key),
      vanished: (protector) => this.#lost.lost(protector),
      released: (protector) => this.#lost.released(protector),
    });
    this.#protectors.subscribe({
      changed: (before, after) => {
        if (after !== undefined) this.#releases.inForce(after);
        if (this.#isWorking) observer.protector?.(before, after);
      },
    });
    for (const plugin of plugins) this.#kinds.set(plugin.name, this.#watchKind(plugin));
    const polled = { api: this.#api, clock: ports.clock, timeoutMs: CALL_TIMEOUT_MS };
    this.#workloads = new WorkloadScales({ ...polled, kinds: this.#kinds });
    this.#pods = new BudgetPods({
      transport,
      ports,
      onWatch: (event) => observer.watch("pods", event),
      onChanged: (key) => this.#add(key),
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#protectors.start();
    const restored = this.#restored.start();
    const kinds = [...this.#kinds.values()].map((kind) => kind.run(signal));
    this.#namespaces?.start();
    this.#releases.start();
    const known = [this.#protectors.whenSynced(signal), this.#namespaces?.whenSynced(signal)];
    await Promise.all([...known, this.#releases.whenKnown(signal)]);
    if (!signal.aborted) await this.#work(signal);
    const ended = [...kinds, restored.stop({ abort: true }), this.#protectors.stop(), this.#namespaces?.stop()];
    await Promise.all([...ended, this.#pods.stop(), this.#releases.stop()]);
    // The next term answers the restore, which may have given the Lease back to another holder in the middle.
    if (this.#restored.isUnfinished) this.#history.wentBack();
  }

  problem(): string | undefined {
    if (!this.#protectors.synced) return "the protectors were not listed yet";
    if (this.#namespaces?.synced === false) return "the labels of namespaces were not listed yet";
    for (const [name, kind] of this.#kinds) if (!kind.ready) return `the sources of ${name} were not listed yet`;
    return undefined;
  }

  lostSources(): string[] {
    if (!this.#isWorking) return [];
    return [...this.#index.sources()].filter((key) => {
      const { plugin, namespace, name } = parseSourceKey(key);
      return this.#isMine(key) && this.#kinds.get(plugin)?.get(`${namespace}/${name}`) === undefined;
    });
  }

  scalables(): ReadonlyMap<string, boolean> {
    const named = [...this.#kinds].filter(([, { plugin }]) => plugin.kind.kind === "");
    return new Map(named.map(([name, { isMissing }]) => [name, isMissing]));
  }

  async #work(signal: AbortSignal): Promise<void> {
    const { ports, plugins, concurrency, mayWrite, observer } = this.#options;
    const reconcile = reconciler({
      ...{ ports, plugins, mayWrite },
      api: this.#api,
      kinds: this.#kinds,
      resolver: new Resolver({ workloads: this.#workloads, pods: this.#pods, clock: ports.clock }),
      protectors: this.#index,
      lost: this.#lost,
      enforcementIn: this.#namespaces && ((namespace) => this.#namespaces?.of(namespace) ?? "Enforce"),
      invalidIn: (namespace) => this.#namespaces?.whyInvalid(namespace),
      register: this.#register,
      timeoutMs: CALL_TIMEOUT_MS,
      onEvent: observer.generator,
      reports: this.reports,
    });
    const workers = runWorkers(this.#queue, reconcile, { workers: concurrency, ports });
    this.#isWorking = true;
    this.#register.start(signal);
    for (const kind of this.#kinds.values()) if (kind.ready) this.#addAll(kind);
    await aborted(signal);
    await workers.stop({ abort: true });
  }

  #add(key: string): void {
    if (this.#isWorking && this.#isMine(key)) this.#queue.add(key);
  }

  /** All objects of the source's kind are listed, and this generator covers its namespace. */
  #isMine(key: string): boolean {
    const { plugin, namespace } = parseSourceKey(key);
    const kind = this.#kinds.get(plugin);
    return kind?.ready === true && (kind.plugin.covers?.(namespace) ?? true);
  }

  /** Queues the sources of a kind that was just listed, sources that only a protector names, and waiting budgets. */
  #addAll(kind: KindWatch): void {
    if (!this.#isWorking) return;
    const { name } = kind.plugin;
    for (const source of kind.values()) this.#add(keyOf(kind.plugin, source));
    for (const key of this.#index.sources()) if (key.startsWith(`${name}/`)) this.#add(key);
    for (const budget of this.#workloads.dependentsOfKind(name)) this.#add(budget);
  }

  #watchProtectors(): Reflector<PodProtector> {
    const { transport, ports, observer } = this.#options;
    return new Reflector<PodProtector>({
      name: "podprotectors",
      transport,
      ports,
      path: PODPROTECTORS_PATH,
      kind: KIND,
      parse: parsePodProtector,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      unparsable: "listAgain",
      onEvent: (event) => {
        observer.watch("podprotectors", event);
        if (event.kind === "versionWentBack") {
          this.#history.wentBack();
          this.#index.restored();
        }
        if (event.kind === "listed" && this.#history.isFirstOfHistory(event.position)) this.#restored.restored();
      },
    });
  }

  #watchNamespaces(): NamespaceEnforcement | undefined {
    const { transport, ports, enforcement: byDefault, observer } = this.#options;
    if (byDefault === undefined) return undefined;
    return new NamespaceEnforcement({
      ...{ transport, ports, byDefault },
      onWatch: (event) => observer.watch("namespaces", event),
      onChanged: (namespace) => this.#addNamespace(namespace),
    });
  }

  #addNamespace(namespace: string): void {
    for (const kind of this.#kinds.values()) {
      for (const source of kind.values()) if (source.namespace === namespace) this.#add(keyOf(kind.plugin, source));
    }
  }

  #watchKind(plugin: SourcePlugin): KindWatch {
    const { transport, ports, observer } = this.#options;
    const watch: KindWatch = new KindWatch({
      ...{ plugin, transport, ports, api: this.#api, timeoutMs: CALL_TIMEOUT_MS },
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
    // What it asks for now may not be refused, and its deletion must not wait.
    if (this.#isWorking && this.reports.has(key, "refused") && asksAnew(before, after)) this.#queue.addNow(key);
    else this.#add(key);
    for (const budget of this.#workloads.changed(key, before, after)) this.#add(budget);
  }
}

function asksAnew(before: ProtectionSource | undefined, after: ProtectionSource | undefined): boolean {
  const asked = (source: ProtectionSource | undefined): unknown =>
    source && [source.uid, source.deleting, source.decision, source.enforcement, source.protectors, source.need];
  return !isDeepStrictEqual(asked(before), asked(after));
}

function keyOf(plugin: SourcePlugin, { namespace, name }: ProtectionSource): string {
  return sourceKey({ plugin: plugin.name, namespace, name });
}
