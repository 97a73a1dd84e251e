/**
 * The CA injector copies the authorities that the webhook's cluster publishes to `caBundle` of a cell's webhook
 * configuration, and acknowledges them there (docs/decisions/0004-certificates.md): a new authority signs a certificate
 * only when every cell has acknowledged it.
 */
import {
  fingerprintOf,
  PUBLISHED_CONFIG_MAP,
  PUBLISHED_KEY,
  parseConfigMapData,
  pathSegment,
  splitCertificates,
  TRUSTED_CONFIG_MAP,
} from "../../../shared/certificates/ca-bundle.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { configMapPath } from "../../../shared/kube/client/api-path.ts";
import { type ApiFailure, describeFailure } from "../../../shared/kube/client/api-result.ts";
import { isCertificate } from "../../../shared/kube/credentials/authorities.ts";
import { acknowledgementKey } from "../../../shared/recovery/register/register-format.ts";
import { sleep } from "../../../shared/runtime/clock.ts";
import { type ConfigurationOptions, configurationPath, type OpenWatch, whenCounted } from "./configuration-watch.ts";
import {
  type ConfigurationResource,
  encodeCaBundle,
  GATE,
  type Injected,
  injectingPatch,
  type LiveConfiguration,
  parseLiveConfiguration,
  RESOURCES,
  trusts,
  waitsForCounts,
} from "./desired-configuration.ts";
import { FIELD_MANAGER } from "./field-ownership.ts";

/** An acknowledgement is repeated at this interval, in case the ConfigMap was lost. */
const ACKNOWLEDGE_EVERY_MS = 600_000;
/** Pause after writes: two injectors that disagree must not write without a pause. */
const PAUSE_MS = 1_000;

export type CaInjectorEvent =
  | { readonly kind: "injected"; readonly resource: ConfigurationResource; readonly fingerprint: string }
  | { readonly kind: "acknowledged"; readonly fingerprint: string }
  | { readonly kind: "failed"; readonly what: string; readonly tag: ApiFailure["kind"]; readonly message: string };

export interface CaInjectorOptions extends ConfigurationOptions {
  readonly cellID: string;
  /** The cluster where the webhook's certificates are made; `namespace` is one of its namespaces. */
  readonly publisher: Pick<ApiClient, "get" | "patch">;
  /** Also keeps the secret segment of the webhook's path. */
  readonly secretPath?: boolean;
  /** Pause between two reads of the published authorities; the webhook configuration is watched. */
  readonly intervalMs: number;
  readonly onEvent: (event: CaInjectorEvent) => void;
}

/** The published authorities, in the form of webhook configurations, and as the fingerprint of an acknowledgement. */
interface Published extends Injected {
  readonly fingerprint: string;
}

interface Watched extends OpenWatch {
  readonly resource: ConfigurationResource;
}

/**
 * The certificates that the ConfigMap publishes; empty before the first one is made. Throws for an empty ConfigMap
 * where there must be certificates, and for an unreadable certificate: kube-apiserver accepts any text, and then calls
 * no webhook.
 */
function publishedIn(raw: unknown, mustBeSome: boolean): string[] {
  const text = parseConfigMapData(raw)[PUBLISHED_KEY] ?? "";
  const certificates = splitCertificates(text);
  if (certificates.length === 0 && (mustBeSome || text !== "")) throw new Error(`${PUBLISHED_KEY} has no certificate`);
  if (!certificates.every(isCertificate)) throw new Error(`${PUBLISHED_KEY} has a certificate that can't be read`);
  return certificates;
}

export class CaInjector {
  readonly #options: CaInjectorOptions;
  /** Empty while this process does not lead. */
  #watches: readonly Watched[] = [];
  #published: Published | undefined;
  #acknowledged: { readonly fingerprint: string; readonly atMs: number } | undefined;
  #changed = new AbortController();
  #isCounted = false;

  constructor(options: CaInjectorOptions) {
    this.#options = options;
  }

  /** Whether every webhook configuration of the cell trusts the published authorities; undefined while unknown. */
  get isTrusting(): boolean | undefined {
    const published = this.#published;
    const first = this.#watches[0]?.watch;
    if (published === undefined || first?.synced !== true) return undefined;
    const found = this.#watches.flatMap(({ watch }) => [...watch.values()]);
    return first.size > 0 && found.every((configuration) => trusts(configuration, published));
  }

  /** One term of leadership: works until `signal` aborts. `counted` resolves once this term has counted the pods. */
  async run(signal: AbortSignal, counted: Promise<void> = Promise.resolve()): Promise<void> {
    const { ports, intervalMs, name } = this.#options;
    this.#isCounted = false;
    void whenCounted(counted, ports, signal, () => {
      this.#isCounted = true;
      this.#changed.abort();
    });
    this.#published = undefined;
    this.#acknowledged = undefined;
    const required = RESOURCES.map((resource) => this.#watch(resource, name));
    this.#watches = [...required, this.#watch(GATE.resource, `${name}${GATE.suffix}`)];
    await Promise.all(required.map(({ watch }) => watch.whenSynced(signal)));
    while (!signal.aborted) {
      this.#changed = new AbortController();
      if (await this.#reconcile()) await sleep(ports, PAUSE_MS, signal);
      await sleep(ports, intervalMs, AbortSignal.any([signal, this.#changed.signal]));
    }
    await Promise.all(this.#watches.map(({ close }) => close()));
    this.#watches = [];
  }

  /** True where a webhook configuration was written. */
  async #reconcile(): Promise<boolean> {
    const { publisher, namespace, timeoutMs, secretPath } = this.#options;
    const path = configMapPath(namespace, PUBLISHED_CONFIG_MAP);
    const parse = (raw: unknown): string[] => publishedIn(raw, this.#published !== undefined);
    const result = await publisher.get(path, parse, { timeoutMs });
    if (result.kind === "ok") {
      const certificates = result.object;
      const [oldest] = certificates;
      if (oldest === undefined) return false;
      // From the oldest authority, which all replicas of the webhook know. It stays published beside its successor.
      const segment = secretPath ? `/~${pathSegment(oldest)}` : "";
      const caBundle = encodeCaBundle(certificates.join(""));
      this.#published = { caBundle, segment, fingerprint: fingerprintOf(certificates) };
    } else this.#failed(PUBLISHED_CONFIG_MAP, result);
    // The last usable authorities stay in use while the publisher can't be reached, or publishes unusable ones.
    const published = this.#published;
    if (published === undefined) return false;
    let isWritten = false;
    for (const { resource, watch } of this.#watches) {
      for (const configuration of watch.values()) {
        if (trusts(configuration, published)) continue;
        if (!this.#isCounted && waitsForCounts(configuration)) continue;
        isWritten = true;
        await this.#inject(resource, configuration, published);
      }
    }
    if (this.isTrusting) await this.#acknowledge(published.fingerprint);
    return isWritten;
  }

  async #inject(
    resource: ConfigurationResource,
    configuration: LiveConfiguration,
    published: Published,
  ): Promise<void> {
    const { api, timeoutMs, mayWrite, onEvent } = this.#options;
    if (!mayWrite()) return;
    const path = configurationPath(resource, configuration.metadata.name);
    const patch = injectingPatch(configuration, published);
    const call = { timeoutMs, fieldManager: FIELD_MANAGER };
    const result = await api.patch(path, "application/json-patch+json", patch, parseLiveConfiguration, call);
    if (result.kind === "ok") onEvent({ kind: "injected", resource, fingerprint: published.fingerprint });
    // After a conflict, the watch delivers the new version.
    else if (result.kind !== "conflict") this.#failed(resource, result);
  }

  async #acknowledge(fingerprint: string): Promise<void> {
    const { publisher, cellID, namespace, ports, timeoutMs, mayWrite, onEvent } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    const last = this.#acknowledged;
    if (last?.fingerprint === fingerprint && nowMs - last.atMs < ACKNOWLEDGE_EVERY_MS) return;
    if (!mayWrite()) return;
    const path = configMapPath(namespace, TRUSTED_CONFIG_MAP);
    // The key of earlier versions, which two cells could share. It is no cell's key now, unless it looks like an
    // escape.
    const former = cellID.replaceAll("~", "_");
    const data: Record<string, string | null> = /_[_.]/.test(former) ? {} : { [former]: null };
    data[acknowledgementKey(cellID)] = fingerprint;
    const call = { timeoutMs, fieldManager: FIELD_MANAGER };
    const result = await publisher.patch(path, "application/merge-patch+json", { data }, parseConfigMapData, call);
    if (result.kind !== "ok") return this.#failed(TRUSTED_CONFIG_MAP, result);
    this.#acknowledged = { fingerprint, atMs: nowMs };
    if (last?.fingerprint !== fingerprint) onEvent({ kind: "acknowledged", fingerprint });
  }

  #watch(resource: ConfigurationResource, name: string): Watched {
    return { resource, ...this.#options.watches.open(resource, name, () => this.#changed.abort()) };
  }

  #failed(what: string, failure: ApiFailure): void {
    const message = describeFailure(failure, "is not there");
    this.#options.onEvent({ kind: "failed", what, tag: failure.kind, message });
  }
}
