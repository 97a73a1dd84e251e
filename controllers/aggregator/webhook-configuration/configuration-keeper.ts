/**
 * Keeps a cell's registration (design 7): without it nothing is asked before a pod goes. One that is missing is created at once, one that was
 * altered otherwise than by its operator's `kubectl apply` is put back. What is to be there is on record in the cell, so that it is
 * known after a restart, too. How the apiserver completes a declaration is asked of it (a dry run), not guessed.
 */
import { isDeepStrictEqual } from "node:util";
import type { ApiClient, WriteOptions } from "../../../shared/kube/client/api-client.ts";
import type { ApiFailure, ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import type { ConfigurationRecord } from "./configuration-record.ts";
import {
  bundlesOf,
  type DeclaredConfiguration,
  declarationOf,
  declarationText,
  type LiveConfiguration,
  lastApplied,
  parseDeclaredConfiguration,
  parseLiveConfiguration,
  withBundles,
} from "./desired-configuration.ts";

export const KINDS = {
  validatingwebhookconfigurations: "ValidatingWebhookConfiguration",
  mutatingwebhookconfigurations: "MutatingWebhookConfiguration",
} as const;
export type ConfigurationResource = keyof typeof KINDS;
export const RESOURCES = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] as const;

export type ConfigurationEvent =
  | {
      readonly kind: "restored";
      readonly resource: ConfigurationResource;
      readonly why: "missing" | "altered";
      readonly uid: string;
    }
  /** Its operator has declared another form, or it is seen for the first time. */
  | { readonly kind: "adopted"; readonly resource: ConfigurationResource }
  /** There is none, and nobody has ever said what should be there. */
  | { readonly kind: "unknown"; readonly resource: ConfigurationResource }
  | {
      readonly kind: "failed";
      readonly resource: ConfigurationResource;
      readonly what: string;
      readonly message: string;
    };

export interface ConfigurationKeeperOptions {
  readonly transport: Transport;
  readonly api: Pick<ApiClient, "create" | "update">;
  readonly ports: Ports;
  /** `metadata.name` of both registrations. */
  readonly name: string;
  /** By kind, where a file says what is to be there; it wins over what an operator has applied. */
  readonly declared: ReadonlyMap<string, DeclaredConfiguration>;
  readonly record: ConfigurationRecord;
  readonly timeoutMs: number;
  /** Asked before each write. */
  readonly mayWrite: () => boolean;
  readonly onEvent: (event: ConfigurationEvent) => void;
}

const GROUP_PATH = "/apis/admissionregistration.k8s.io/v1";
const STREAM_SECONDS = [30, 60] as const;
/** What the watch has not told is looked at this often. */
const LOOK_EVERY_MS = 30_000;
/** After a failure, and between two restores: two keepers of different minds must not make a storm. */
const PAUSE_MS = 1_000;

export class ConfigurationKeeper {
  readonly #options: ConfigurationKeeperOptions;
  readonly #watches = new Map<ConfigurationResource, Reflector<LiveConfiguration>>();
  readonly #bundles = new Map<ConfigurationResource, Record<string, string>>();
  /** Versions that were found to be as they should be. */
  readonly #good = new Map<ConfigurationResource, string>();
  #wake = new AbortController();

  constructor(options: ConfigurationKeeperOptions) {
    this.#options = options;
    for (const resource of RESOURCES) this.#watches.set(resource, this.#watch(resource));
  }

  /** True when each registration that is known to be wanted was found to be as it should; undefined before the first look. */
  get isKept(): boolean | undefined {
    const states = RESOURCES.map((resource) => {
      const watch = this.#watches.get(resource);
      if (watch?.synced !== true) return undefined;
      const live = watch.get(this.#options.name);
      return live !== undefined && this.#good.get(resource) === live.metadata.resourceVersion;
    });
    return states.includes(undefined) ? undefined : states.every((state) => state === true);
  }

  /** Works until `signal` aborts; to be called once. */
  async run(signal: AbortSignal): Promise<void> {
    const { ports, record } = this.#options;
    const watches = [...this.#watches.values()];
    for (const watch of watches) watch.start();
    await Promise.all(watches.map((watch) => watch.whenSynced(signal)));
    while (!signal.aborted && !(await record.read(signal))) await sleep(ports, PAUSE_MS, signal);
    const abort = (): void => this.#wake.abort();
    signal.addEventListener("abort", abort, { once: true });
    while (!signal.aborted) {
      this.#wake = new AbortController();
      let isCalm = true;
      for (const resource of RESOURCES) isCalm = (await this.#look(resource, signal)) && isCalm;
      if (signal.aborted) break;
      if (isCalm) await sleep(ports, LOOK_EVERY_MS, this.#wake.signal);
      else await sleep(ports, PAUSE_MS, signal);
    }
    signal.removeEventListener("abort", abort);
    await Promise.all(watches.map((watch) => watch.stop()));
  }

  /** True when nothing had to be done, or nothing can be. */
  async #look(resource: ConfigurationResource, signal: AbortSignal): Promise<boolean> {
    const { name, mayWrite, record, onEvent, declared } = this.#options;
    const live = this.#watches.get(resource)?.get(name);
    if (live !== undefined && this.#good.get(resource) === live.metadata.resourceVersion) return true;
    if (!mayWrite()) return true;
    const kind = KINDS[resource];
    if (live !== undefined) this.#bundles.set(resource, { ...this.#bundles.get(resource), ...bundlesOf(live) });
    const applied = live === undefined ? undefined : lastApplied(live);
    const recorded = record.get(kind);
    const wanted = declared.get(kind) ?? applied ?? recorded?.declared ?? this.#firstSight(kind, live);
    if (wanted === undefined) {
      onEvent({ kind: "unknown", resource });
      return true;
    }
    const bundles = { ...recorded?.bundles, ...this.#bundles.get(resource) };
    if (recorded === undefined || declarationText(recorded.declared) !== declarationText(wanted)) {
      const failure = await record.put(kind, { declared: wanted, bundles }, signal);
      if (failure !== undefined) return this.#failed(resource, "record", failure);
      onEvent({ kind: "adopted", resource });
    } else if (!isDeepStrictEqual(recorded.bundles, bundles))
      await record.put(kind, { declared: wanted, bundles }, signal);
    return live === undefined
      ? await this.#create(resource, wanted, bundles, signal)
      : await this.#compare(resource, wanted, bundles, live, signal);
  }

  #firstSight(kind: string, live: LiveConfiguration | undefined): DeclaredConfiguration | undefined {
    return live === undefined ? undefined : declarationOf(kind, live);
  }

  async #create(
    resource: ConfigurationResource,
    wanted: DeclaredConfiguration,
    bundles: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { api } = this.#options;
    const declared: DeclaredConfiguration = parseDeclaredConfiguration(JSON.parse(declarationText(wanted)));
    const annotations = { ...declared.metadata.annotations, ...restoredNote(declared) };
    const metadata = { ...declared.metadata, annotations };
    const body = { ...declared, metadata, webhooks: withBundles(declared.webhooks, bundles) };
    const result = await api.create(`${GROUP_PATH}/${resource}`, body, parseLiveConfiguration, this.#call(signal));
    return this.#restored(resource, "missing", result);
  }

  async #compare(
    resource: ConfigurationResource,
    wanted: DeclaredConfiguration,
    bundles: Readonly<Record<string, string>>,
    live: LiveConfiguration,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { api, name } = this.#options;
    const path = `${GROUP_PATH}/${resource}/${encodeURIComponent(name)}`;
    // The authorities are somebody else's to keep: those that are there count.
    const body = { ...live, webhooks: withBundles(wanted.webhooks, { ...bundles, ...bundlesOf(live) }) };
    const call = this.#call(signal);
    const asked = await api.update(path, body, parseLiveConfiguration, { ...call, dryRun: true });
    if (asked.kind === "conflict" || asked.kind === "gone") return false;
    if (asked.kind !== "ok") return this.#failed(resource, "compare", asked);
    if (isDeepStrictEqual(byName(asked.object), byName(live))) {
      this.#good.set(resource, live.metadata.resourceVersion);
      return true;
    }
    return this.#restored(resource, "altered", await api.update(path, body, parseLiveConfiguration, call));
  }

  #restored(
    resource: ConfigurationResource,
    why: "missing" | "altered",
    result: ApiResult<LiveConfiguration>,
  ): boolean {
    if (result.kind === "ok") {
      const { uid } = result.object.metadata;
      this.#options.onEvent({ kind: "restored", resource, why, uid });
    } else if (result.kind !== "conflict" && result.kind !== "gone") this.#failed(resource, `restore (${why})`, result);
    // It is looked at again as the watch has it.
    return false;
  }

  #failed(resource: ConfigurationResource, what: string, failure: ApiFailure): boolean {
    const message = failure.kind === "unavailable" ? failure.error.message : JSON.stringify(failure);
    this.#options.onEvent({ kind: "failed", resource, what, message });
    return false;
  }

  #call(signal: AbortSignal): WriteOptions {
    return { timeoutMs: this.#options.timeoutMs, signal, fieldManager: "podseidon-aggregator" };
  }

  #watch(resource: ConfigurationResource): Reflector<LiveConfiguration> {
    const { transport, ports, name } = this.#options;
    const watch = new Reflector<LiveConfiguration>({
      name: resource,
      transport,
      ports,
      path: `${GROUP_PATH}/${resource}`,
      query: { fieldSelector: `metadata.name=${name}` },
      parse: parseLiveConfiguration,
      keyOf: ({ metadata }) => metadata.name,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      serverTimeoutSeconds: STREAM_SECONDS,
      unparsable: "keepLast",
    });
    watch.subscribe({ changed: () => this.#wake.abort() });
    return watch;
  }
}

/** So that the next `kubectl apply` knows what it has to compare with, as if the object had never been gone. */
function restoredNote(declared: DeclaredConfiguration): Record<string, string> {
  return { "kubectl.kubernetes.io/last-applied-configuration": `${declarationText(declared)}\n` };
}

function byName({ webhooks }: LiveConfiguration): unknown {
  return [...(webhooks ?? [])].sort((a, b) => (a.name < b.name ? -1 : 1));
}
