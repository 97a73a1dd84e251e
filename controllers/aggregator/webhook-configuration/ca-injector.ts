/**
 * Keeps `caBundle` of a cell's registration as the webhook's cluster publishes it, and tells it so there
 * (docs/decisions/0004-certificates.md): a new authority is used only when every cell has said that it trusts it.
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
import type { ApiFailure, ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { WatchEvent } from "../../../shared/kube/stream/watch-event.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import {
  type ConfigurationBundles,
  caBundlePatch,
  encodeCaBundle,
  parseRegistration,
  trusts,
} from "./ca-bundle-patch.ts";

export const WEBHOOK_CONFIGURATION_KINDS = [
  "validatingwebhookconfigurations",
  "mutatingwebhookconfigurations",
] as const;
export type WebhookConfigurationKind = (typeof WEBHOOK_CONFIGURATION_KINDS)[number];

/** The counted gate has a registration of its own, which may be there or not, and can be taken away at any time. */
const GATE = { kind: "mutatingwebhookconfigurations", suffix: "-gate" } as const;
const GROUP_PATH = "/apis/admissionregistration.k8s.io/v1";
/** A registration seldom changes: long streams, one list a few minutes. */
const STREAM_SECONDS = [240, 300] as const;
/** It is told again now and then, for a list of cells that was lost. */
const TELL_EVERY_MS = 600_000;

export type CaInjectorEvent =
  | { readonly kind: "trusted"; readonly registration: WebhookConfigurationKind; readonly fingerprint: string }
  | { readonly kind: "told"; readonly fingerprint: string }
  | { readonly kind: "failed"; readonly what: string; readonly tag: ApiFailure["kind"]; readonly message: string };

export interface CaInjectorOptions {
  readonly cell: string;
  /** To the cell, for its registration. */
  readonly cellTransport: Transport;
  readonly cellApi: ApiClient;
  /** Where the webhook's certificates are made. */
  readonly publisher: ApiClient;
  /** Of the ConfigMaps there. */
  readonly namespace: string;
  /** `metadata.name` of both registrations; that of the counted gate has `-gate` after it. */
  readonly registration: string;
  readonly ports: Ports;
  /** Pause between two looks at what is published; what happens to the registration is seen at once. */
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** Asked before each write. */
  readonly mayWrite: () => boolean;
  readonly onEvent: (event: CaInjectorEvent) => void;
  readonly onWatchEvent: (kind: WebhookConfigurationKind, event: WatchEvent) => void;
}

/** What is published, and how a registration and an acknowledgement say it. */
interface Published {
  readonly caBundle: string;
  readonly fingerprint: string;
}

interface Watched {
  readonly kind: WebhookConfigurationKind;
  readonly watch: Reflector<ConfigurationBundles>;
}

export class CaInjector {
  readonly #options: CaInjectorOptions;
  /** Those without which nothing is kept. */
  readonly #own: readonly Watched[];
  readonly #gate: Watched;
  #published: Published | undefined;
  #told: { readonly fingerprint: string; readonly atMs: number } | undefined;
  #changed = new AbortController();

  constructor(options: CaInjectorOptions) {
    this.#options = options;
    const { registration } = options;
    this.#own = WEBHOOK_CONFIGURATION_KINDS.map((kind) => ({ kind, watch: this.#watch(kind, registration) }));
    this.#gate = { kind: GATE.kind, watch: this.#watch(GATE.kind, `${registration}${GATE.suffix}`) };
  }

  /** Whether every registration that is there trusts what was last seen published; undefined when that is not known. */
  get isTrusting(): boolean | undefined {
    const published = this.#published;
    const first = this.#own[0]?.watch;
    if (published === undefined || first?.synced !== true) return undefined;
    const found = [...this.#own, this.#gate].flatMap(({ watch }) => [...watch.values()]);
    return first.size > 0 && found.every((registration) => trusts(registration, published.caBundle));
  }

  /** Works until `signal` aborts; to be called once. */
  async run(signal: AbortSignal): Promise<void> {
    const { ports, intervalMs } = this.#options;
    const watches = [...this.#own, this.#gate].map(({ watch }) => watch);
    for (const watch of watches) watch.start();
    await Promise.all(this.#own.map(({ watch }) => watch.whenSynced(signal)));
    signal.addEventListener("abort", () => this.#changed.abort(), { once: true });
    while (!signal.aborted) {
      this.#changed = new AbortController();
      await this.#look();
      if (!signal.aborted) await sleep(ports, intervalMs, this.#changed.signal);
    }
    await Promise.all(watches.map((watch) => watch.stop()));
  }

  async #look(): Promise<void> {
    const { publisher, timeoutMs } = this.#options;
    const result = await publisher.get(this.#configMap(PUBLISHED_CONFIG_MAP), parseConfigMapData, { timeoutMs });
    if (result.kind !== "ok") {
      this.#failed(PUBLISHED_CONFIG_MAP, result);
    } else {
      const certificates = splitCertificates(result.object[PUBLISHED_KEY] ?? "");
      // Nothing at all is published only before the first certificate is made.
      if (certificates.length === 0) return;
      this.#published = {
        caBundle: encodeCaBundle(certificates.join("")),
        fingerprint: fingerprintOf(certificates),
      };
    }
    // What was published before is kept up while the publisher can't be reached.
    if (this.#published !== undefined) await this.#follow(this.#published);
  }

  async #follow(published: Published): Promise<void> {
    for (const { kind, watch } of [...this.#own, this.#gate]) {
      for (const registration of watch.values()) {
        if (!trusts(registration, published.caBundle)) await this.#write(kind, registration, published);
      }
    }
    if (this.isTrusting) await this.#tell(published.fingerprint);
  }

  async #write(
    kind: WebhookConfigurationKind,
    registration: ConfigurationBundles,
    published: Published,
  ): Promise<void> {
    const { cellApi, timeoutMs, mayWrite, onEvent } = this.#options;
    if (!mayWrite()) return;
    const path = `${GROUP_PATH}/${kind}/${encodeURIComponent(registration.metadata.name)}`;
    const patch = caBundlePatch(registration, published.caBundle);
    const call = { timeoutMs, fieldManager: "podseidon-aggregator" };
    const result = await cellApi.patch(path, "application/json-patch+json", patch, parseRegistration, call);
    if (result.kind === "ok") onEvent({ kind: "trusted", registration: kind, fingerprint: published.fingerprint });
    // The watch brings what it is now.
    else if (result.kind !== "conflict") this.#failed(kind, result);
  }

  async #tell(fingerprint: string): Promise<void> {
    const { publisher, cell, ports, timeoutMs, mayWrite, onEvent } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    const told = this.#told;
    if (told?.fingerprint === fingerprint && nowMs - told.atMs < TELL_EVERY_MS) return;
    if (!mayWrite()) return;
    const patch = { data: { [cellKey(cell)]: fingerprint } };
    const path = this.#configMap(TRUSTED_CONFIG_MAP);
    const call = { timeoutMs, fieldManager: "podseidon-aggregator" };
    const result: ApiResult<unknown> = await publisher.patch(
      path,
      "application/merge-patch+json",
      patch,
      parseConfigMapData,
      call,
    );
    if (result.kind !== "ok") return this.#failed(TRUSTED_CONFIG_MAP, result);
    this.#told = { fingerprint, atMs: nowMs };
    if (told?.fingerprint !== fingerprint) onEvent({ kind: "told", fingerprint });
  }

  #failed(what: string, failure: ApiFailure): void {
    const { kind: tag } = failure;
    const message =
      failure.kind === "gone" ? "is not there" : "message" in failure ? failure.message : failure.error.message;
    this.#options.onEvent({ kind: "failed", what, tag, message });
  }

  #configMap(name: string): string {
    return `/api/v1/namespaces/${encodeURIComponent(this.#options.namespace)}/configmaps/${name}`;
  }

  #watch(kind: WebhookConfigurationKind, registration: string): Reflector<ConfigurationBundles> {
    const { cellTransport, ports, onWatchEvent } = this.#options;
    const watch = new Reflector<ConfigurationBundles>({
      name: kind,
      transport: cellTransport,
      ports,
      path: `${GROUP_PATH}/${kind}`,
      query: { fieldSelector: `metadata.name=${registration}` },
      parse: parseRegistration,
      keyOf: ({ metadata }) => metadata.name,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      serverTimeoutSeconds: STREAM_SECONDS,
      onEvent: (event) => onWatchEvent(kind, event),
    });
    watch.subscribe({ changed: () => this.#changed.abort() });
    return watch;
  }
}
