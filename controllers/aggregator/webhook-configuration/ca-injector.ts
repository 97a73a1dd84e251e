/**
 * The CA injector keeps `caBundle` of a cell's webhook configuration as the webhook's cluster publishes it, and
 * acknowledges it there (docs/decisions/0004-certificates.md): a new authority signs a certificate only when every cell
 * has acknowledged it.
 */
import {
  cellKey,
  fingerprintOf,
  PUBLISHED_CONFIG_MAP,
  PUBLISHED_KEY,
  parseConfigMapData,
  splitCertificates,
  TRUSTED_CONFIG_MAP,
} from "../../../shared/certificates/ca-bundle.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import type { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { WatchEvent } from "../../../shared/kube/stream/watch-event.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import { configMapPath } from "../../../shared/schema/config-map.ts";
import { configurationPath, watchConfiguration } from "./configuration-watch.ts";
import {
  type ConfigurationResource,
  caBundlePatch,
  encodeCaBundle,
  type LiveConfiguration,
  parseLiveConfiguration,
  RESOURCES,
  trusts,
} from "./desired-configuration.ts";

/** The counted gate has a webhook configuration of its own, which is optional and can be deleted at any time. */
const GATE = { resource: "mutatingwebhookconfigurations", suffix: "-gate" } as const;
/** A webhook configuration seldom changes: long streams, one list in a few minutes. */
const STREAM_SECONDS = [240, 300] as const;
/** An acknowledgement is repeated now and then, for a ConfigMap that was lost. */
const ACKNOWLEDGE_EVERY_MS = 600_000;
const FIELD_MANAGER = "podseidon-aggregator";

export type CaInjectorEvent =
  | { readonly kind: "trusted"; readonly registration: ConfigurationResource; readonly fingerprint: string }
  | { readonly kind: "told"; readonly fingerprint: string }
  | { readonly kind: "failed"; readonly what: string; readonly tag: ApiFailure["kind"]; readonly message: string };

export interface CaInjectorOptions {
  readonly cellID: string;
  /** To the cell. */
  readonly transport: Transport;
  readonly api: Pick<ApiClient, "patch">;
  /** The cluster where the webhook's certificates are made. */
  readonly publisher: Pick<ApiClient, "get" | "patch">;
  /** Of the ConfigMaps in that cluster. */
  readonly namespace: string;
  /** `metadata.name` of both webhook configurations; that of the counted gate has `-gate` after it. */
  readonly name: string;
  readonly ports: Ports;
  /** Pause between two reads of what is published; the webhook configuration is watched. */
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** Asked before each write. */
  readonly mayWrite: () => boolean;
  readonly onEvent: (event: CaInjectorEvent) => void;
  readonly onWatchEvent: (resource: ConfigurationResource, event: WatchEvent) => void;
}

/** What is published: as `caBundle`, and as the fingerprint of an acknowledgement. */
interface Published {
  readonly caBundle: string;
  readonly fingerprint: string;
}

interface Watched {
  readonly resource: ConfigurationResource;
  readonly watch: Reflector<LiveConfiguration>;
}

export class CaInjector {
  readonly #options: CaInjectorOptions;
  /** The webhook configurations that every cell has. */
  readonly #required: readonly Watched[];
  readonly #all: readonly Watched[];
  #published: Published | undefined;
  #acknowledged: { readonly fingerprint: string; readonly atMs: number } | undefined;
  #changed = new AbortController();

  constructor(options: CaInjectorOptions) {
    this.#options = options;
    const { name, transport, ports, onWatchEvent } = options;
    const watch = (resource: ConfigurationResource, watched: string): Watched => ({
      resource,
      watch: watchConfiguration(resource, watched, {
        ...{ transport, ports, serverTimeoutSeconds: STREAM_SECONDS },
        onEvent: (event) => onWatchEvent(resource, event),
        changed: () => this.#changed.abort(),
      }),
    });
    this.#required = RESOURCES.map((resource) => watch(resource, name));
    this.#all = [...this.#required, watch(GATE.resource, `${name}${GATE.suffix}`)];
  }

  /** Whether every webhook configuration of the cell trusts what is published; undefined before both are known. */
  get isTrusting(): boolean | undefined {
    const published = this.#published;
    const first = this.#required[0]?.watch;
    if (published === undefined || first?.synced !== true) return undefined;
    const found = this.#all.flatMap(({ watch }) => [...watch.values()]);
    return first.size > 0 && found.every((configuration) => trusts(configuration, published.caBundle));
  }

  /** Works until `signal` aborts; to be called once. */
  async run(signal: AbortSignal): Promise<void> {
    const { ports, intervalMs } = this.#options;
    for (const { watch } of this.#all) watch.start();
    await Promise.all(this.#required.map(({ watch }) => watch.whenSynced(signal)));
    signal.addEventListener("abort", () => this.#changed.abort(), { once: true });
    while (!signal.aborted) {
      this.#changed = new AbortController();
      await this.#reconcile();
      if (!signal.aborted) await sleep(ports, intervalMs, this.#changed.signal);
    }
    await Promise.all(this.#all.map(({ watch }) => watch.stop()));
  }

  async #reconcile(): Promise<void> {
    const { publisher, namespace, timeoutMs } = this.#options;
    const path = configMapPath(namespace, PUBLISHED_CONFIG_MAP);
    const result = await publisher.get(path, parseConfigMapData, { timeoutMs });
    if (result.kind === "ok") {
      const certificates = splitCertificates(result.object[PUBLISHED_KEY] ?? "");
      // Nothing is published before the first certificate is made.
      if (certificates.length === 0) return;
      this.#published = { caBundle: encodeCaBundle(certificates.join("")), fingerprint: fingerprintOf(certificates) };
    } else this.#failed(PUBLISHED_CONFIG_MAP, result);
    // What was read last stays in force while the publisher can't be reached.
    const published = this.#published;
    if (published === undefined) return;
    for (const { resource, watch } of this.#all) {
      for (const configuration of watch.values()) {
        if (!trusts(configuration, published.caBundle)) await this.#inject(resource, configuration, published);
      }
    }
    if (this.isTrusting) await this.#acknowledge(published.fingerprint);
  }

  async #inject(
    resource: ConfigurationResource,
    configuration: LiveConfiguration,
    { caBundle, fingerprint }: Published,
  ): Promise<void> {
    const { api, timeoutMs, mayWrite, onEvent } = this.#options;
    if (!mayWrite()) return;
    const path = configurationPath(resource, configuration.metadata.name);
    const patch = caBundlePatch(configuration, caBundle);
    const call = { timeoutMs, fieldManager: FIELD_MANAGER };
    const result = await api.patch(path, "application/json-patch+json", patch, parseLiveConfiguration, call);
    if (result.kind === "ok") onEvent({ kind: "trusted", registration: resource, fingerprint });
    // After a conflict the watch brings the new version.
    else if (result.kind !== "conflict") this.#failed(resource, result);
  }

  async #acknowledge(fingerprint: string): Promise<void> {
    const { publisher, cellID, namespace, ports, timeoutMs, mayWrite, onEvent } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    const last = this.#acknowledged;
    if (last?.fingerprint === fingerprint && nowMs - last.atMs < ACKNOWLEDGE_EVERY_MS) return;
    if (!mayWrite()) return;
    const path = configMapPath(namespace, TRUSTED_CONFIG_MAP);
    const patch = { data: { [cellKey(cellID)]: fingerprint } };
    const call = { timeoutMs, fieldManager: FIELD_MANAGER };
    const result = await publisher.patch(path, "application/merge-patch+json", patch, parseConfigMapData, call);
    if (result.kind !== "ok") return this.#failed(TRUSTED_CONFIG_MAP, result);
    this.#acknowledged = { fingerprint, atMs: nowMs };
    if (last?.fingerprint !== fingerprint) onEvent({ kind: "told", fingerprint });
  }

  #failed(what: string, failure: ApiFailure): void {
    const { kind: tag } = failure;
    const message =
      failure.kind === "gone" ? "is not there" : "message" in failure ? failure.message : failure.error.message;
    this.#options.onEvent({ kind: "failed", what, tag, message });
  }
}
