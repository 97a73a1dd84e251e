/**
 * Watches the objects of one plugin's kind. Discovery looks for an optional kind until it is installed. When a kind is
 * uninstalled, its sources vanish without a release, so their protectors stay in force.
 */
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import { Backoff } from "../../../shared/runtime/backoff.ts";
import { aborted, type Ports, sleep } from "../../../shared/runtime/clock.ts";
import { discover } from "./discovery.ts";
import { collectionPath, type ProtectionSource, type SourceKind, type SourcePlugin } from "./protection-source.ts";

/** Frequent after a start, when CRDs are likely to be installed; later four times a minute. */
const DISCOVERY_BACKOFF = { initialMs: 1_000, maxMs: 15_000, factor: 1.5, jitter: 0.3 };
/** A single 404 or 403 may come from an apiserver that is starting. */
const MEANT_AFTER = 3;

export interface KindWatchOptions {
  readonly plugin: SourcePlugin;
  readonly transport: Transport;
  readonly ports: Ports;
  readonly api: ApiClient;
  /** For each call of discovery. */
  readonly timeoutMs: number;
  readonly onWatch: (event: ReflectorEvent) => void;
  readonly onChanged: (before: ProtectionSource | undefined, after: ProtectionSource | undefined) => void;
  /** {@link KindWatch.ready} or {@link KindWatch.isDenied} has become true. */
  readonly onReady: () => void;
  readonly onServed: (served: boolean, kind: SourceKind) => void;
}

export class KindWatch {
  readonly plugin: SourcePlugin;
  readonly #options: KindWatchOptions;
  #servedKind: SourceKind | undefined;
  #watch: Reflector<ProtectionSource> | undefined;
  #isNotServed = false;
  #denials = 0;
  /** UIDs of sources whose deletion leaves their pods. The finalizer that says so may be gone in a millisecond. */
  readonly #leaving = new Set<string>();

  constructor(options: KindWatchOptions) {
    this.#options = options;
    this.plugin = options.plugin;
  }

  /** The kind in the served version; before one is served, in the plugin's version. */
  get kind(): SourceKind {
    return this.#servedKind ?? this.plugin.kind;
  }

  /** All objects are listed, or the cluster does not serve the kind. */
  get ready(): boolean {
    return this.#isNotServed || this.#watch?.synced === true;
  }

  /** This process may not list the kind. */
  get isDenied(): boolean {
    return this.#denials >= MEANT_AFTER;
  }

  /** `--scalable` names this resource, and the cluster does not serve it, or without what the generator needs. */
  get isMissing(): boolean {
    return this.#isNotServed && this.#isNamed;
  }

  /** Only discovery knows the kind of a resource of `--scalable`. */
  get #isNamed(): boolean {
    return this.plugin.kind.kind === "";
  }

  get(key: string): ProtectionSource | undefined {
    const source = this.#watch?.get(key);
    return source !== undefined && this.#leaving.has(source.uid) ? { ...source, leavesPods: true } : source;
  }

  values(): Iterable<ProtectionSource> {
    return this.#watch?.values() ?? [];
  }

  /** Runs until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const kind = this.plugin.optional === true ? await this.#whenServed(signal) : this.plugin.kind;
      if (kind === undefined) return;
      this.#servedKind = kind;
      await this.#watchWhileServed(kind, signal);
    }
  }

  /** Resolves with the version to read when the kind is served; undefined when `signal` aborts. */
  async #whenServed(signal: AbortSignal): Promise<SourceKind | undefined> {
    const { ports, onReady, onServed } = this.#options;
    const backoff = new Backoff(DISCOVERY_BACKOFF, ports.random);
    while (!signal.aborted) {
      const found = await this.#discover(signal);
      if (typeof found === "object") return found;
      if (found === "notServed" && !this.#isNotServed) {
        this.#isNotServed = true;
        if (this.#isNamed) onServed(false, this.plugin.kind);
        onReady();
      }
      await sleep(ports, backoff.nextMs(), signal);
    }
    return undefined;
  }

  async #discover(signal: AbortSignal): Promise<SourceKind | "notServed" | "unknown"> {
    const { kind, olderVersions = [], needsScale = false } = this.plugin;
    const { api, timeoutMs } = this.#options;
    for (const version of [kind.version, ...olderVersions]) {
      const served = await discover(api, kind.group, version, { timeoutMs, signal });
      if (served.kind === "failed") return "unknown";
      const found = served.resources.find(({ resource }) => resource === kind.resource);
      const isUsable = found?.isNamespaced === true && (!needsScale || found.hasScale);
      if (isUsable) return { ...kind, version, kind: found.kind };
    }
    return "notServed";
  }

  async #watchWhileServed(kind: SourceKind, signal: AbortSignal): Promise<void> {
    const { transport, ports, onWatch, onChanged, onReady, onServed } = this.#options;
    const isOptional = this.plugin.optional === true;
    // Of its own, so that nothing of a kind that comes and goes stays at `signal`.
    const ended = new AbortController();
    const end = (): void => ended.abort();
    let notServed = 0;
    const watch = new Reflector<ProtectionSource>({
      name: kind.resource,
      transport,
      ports,
      path: collectionPath(kind),
      // A CRD may name its lists as it likes.
      ...(isOptional ? {} : { kind: kind.kind }),
      parse: this.plugin.interpret,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      // An unreadable workload must neither lose its protector nor count as vanished.
      stub: (raw) => this.plugin.unreadable?.(raw, (key) => this.get(key)),
      unparsable: "keepLast",
      onEvent: (event) => {
        onWatch(event);
        if (event.kind === "listed" || event.kind === "watching") notServed = this.#denials = 0;
        if (event.kind !== "failed") return;
        if (event.tag === "forbidden" && ++this.#denials === MEANT_AFTER) onReady();
        if (event.tag !== "not-served" || !isOptional) return;
        notServed += 1;
        if (notServed >= MEANT_AFTER) end();
      },
    });
    watch.subscribe({
      changed: (before, after) => {
        if (after?.deleting === true && after.finalizers.includes("orphan")) this.#leaving.add(after.uid);
        if (before !== undefined && before.uid !== after?.uid) this.#leaving.delete(before.uid);
        onChanged(before, after);
      },
    });
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    this.#watch = watch;
    watch.start();
    if (isOptional) onServed(true, kind);
    await watch.whenSynced(ended.signal);
    this.#isNotServed = false;
    if (watch.synced) onReady();
    await aborted(ended.signal);
    signal.removeEventListener("abort", end);
    await watch.stop();
    if (signal.aborted) return;
    this.#watch = undefined;
    this.#isNotServed = true;
    for (const source of watch.values()) onChanged(source, undefined);
    onServed(false, kind);
    if (!watch.synced) onReady();
  }
}
