/**
 * The objects of one plugin's kind, kept current. A kind that need not be installed is looked for by discovery until it is there,
 * and dropped when it goes: its sources have vanished then, and their protectors stay in force.
 */

import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import { Backoff } from "../../../shared/runtime/backoff.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import type { Discovery } from "./discovery.ts";
import { collectionPath, type ProtectionSource, type SourceKind, type SourcePlugin } from "./protection-source.ts";

/** A kind is asked for soon after a start, when it is likely to be on its way, and four times a minute later. */
const LOOK_AGAIN = { initialMs: 1_000, maxMs: 15_000, factor: 1.5, jitter: 0.3 };
/** So many answers in a row that the kind is not served: one alone may come from an apiserver that is starting. */
const GONE_AFTER_ANSWERS = 3;

export interface KindWatchOptions {
  readonly plugin: SourcePlugin;
  readonly transport: Transport;
  readonly ports: Ports;
  readonly discovery: Discovery;
  readonly onWatch: (event: ReflectorEvent) => void;
  readonly onChanged: (before: ProtectionSource | undefined, after: ProtectionSource | undefined) => void;
  /** Its objects are known from now on, or known not to be there. */
  readonly onReady: () => void;
  readonly onServed: (served: boolean, kind: SourceKind) => void;
}

export class KindWatch {
  readonly plugin: SourcePlugin;
  readonly #options: KindWatchOptions;
  #served: SourceKind | undefined;
  #watch: Reflector<ProtectionSource> | undefined;
  #isAbsent = false;

  constructor(options: KindWatchOptions) {
    this.#options = options;
    this.plugin = options.plugin;
  }

  /** As it is served; as it was configured while it is not. */
  get kind(): SourceKind {
    return this.#served ?? this.plugin.kind;
  }

  /** All its objects are known, or it is known that the cluster doesn't serve it. */
  get ready(): boolean {
    return this.#isAbsent || this.#watch?.synced === true;
  }

  get(key: string): ProtectionSource | undefined {
    return this.#watch?.get(key);
  }

  values(): Iterable<ProtectionSource> {
    return this.#watch?.values() ?? [];
  }

  /** Works until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const kind = this.plugin.optional === true ? await this.#whenServed(signal) : this.plugin.kind;
      if (kind === undefined) return;
      this.#served = kind;
      await this.#watchWhileServed(kind, signal);
    }
  }

  /** Resolves when the kind is served, with the version to read; undefined when `signal` aborts. */
  async #whenServed(signal: AbortSignal): Promise<SourceKind | undefined> {
    const { ports } = this.#options;
    const backoff = new Backoff(LOOK_AGAIN, ports.random);
    while (!signal.aborted) {
      const found = await this.#look(signal);
      if (found !== "unknown" && found !== "absent") return found;
      if (found === "absent" && !this.#isAbsent) {
        this.#isAbsent = true;
        this.#options.onReady();
      }
      await sleep(ports, backoff.nextMs(), signal);
    }
    return undefined;
  }

  async #look(signal: AbortSignal): Promise<SourceKind | "absent" | "unknown"> {
    const { kind, olderVersions = [] } = this.plugin;
    for (const version of [kind.version, ...olderVersions]) {
      const served = await this.#options.discovery.read(kind.group, version, signal);
      if (served.kind === "failed") return "unknown";
      const found = served.resources.find(({ resource }) => resource === kind.resource);
      // A kind whose name only discovery knows is one that is read by its scale.
      if (found !== undefined && (kind.kind !== "" || found.hasScale)) return { ...kind, version, kind: found.kind };
    }
    return "absent";
  }

  async #watchWhileServed(kind: SourceKind, signal: AbortSignal): Promise<void> {
    const { transport, ports, onWatch, onReady, onServed } = this.#options;
    const ended = Promise.withResolvers<void>();
    let answers = 0;
    const watch = new Reflector<ProtectionSource>({
      name: kind.resource,
      transport,
      ports,
      path: collectionPath(kind),
      parse: this.plugin.interpret,
      keyOf: ({ namespace, name }) => `${namespace}/${name}`,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      // A workload that can't be read any more is no reason to let its pods go.
      unparsable: "keepLast",
      onEvent: (event) => {
        onWatch(event);
        if (event.kind === "listed" || event.kind === "watching") answers = 0;
        if (event.kind !== "failed" || event.tag !== "not-served" || this.plugin.optional !== true) return;
        answers += 1;
        if (answers >= GONE_AFTER_ANSWERS) ended.resolve();
      },
    });
    watch.subscribe({ changed: (before, after) => this.#options.onChanged(before, after) });
    signal.addEventListener("abort", () => ended.resolve(), { once: true });
    if (signal.aborted) ended.resolve();
    this.#watch = watch;
    watch.start();
    if (this.plugin.optional === true) onServed(true, kind);
    await Promise.race([watch.whenSynced(signal), ended.promise]);
    this.#isAbsent = false;
    if (watch.synced) onReady();
    await ended.promise;
    await watch.stop();
    if (signal.aborted) return;
    this.#watch = undefined;
    this.#isAbsent = true;
    for (const source of watch.values()) this.#options.onChanged(source, undefined);
    onServed(false, kind);
  }
}
