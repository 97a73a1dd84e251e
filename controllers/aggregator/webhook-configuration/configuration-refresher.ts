/**
 * Changes an annotation of each webhook configuration some seconds after its webhooks have changed, so that every
 * kube-apiserver reads them once more (docs/decisions/0017-a-second-write.md). kube-apiserver keeps the webhooks of
 * each configuration by its name, and forgets them at a change. A request that has listed the configurations before the
 * change, and looks there after it, stores the older webhooks again: until the next change of any field, this
 * apiserver calls the webhook with an old CA or by old rules. The second write changes no webhook, so what is stored
 * again is equal.
 */
import { describeFailure } from "../../../shared/kube/client/api-result.ts";
import type { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { sleep } from "../../../shared/runtime/clock.ts";
import { REFRESHED_GENERATION_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type ConfigurationOptions, configurationPath } from "./configuration-watch.ts";
import { CONFIGURATIONS, type LiveConfiguration, parseLiveConfiguration } from "./desired-configuration.ts";
import { FIELD_MANAGER } from "./field-ownership.ts";

/** A request that listed the configurations before the change is long done then. */
const REFRESH_AFTER_MS = 5_000;
/** Longest pause, also after a failure. */
const PAUSE_MS = 60_000;

export interface ConfigurationRefresherOptions extends ConfigurationOptions {
  readonly onFailed: (configuration: string, message: string) => void;
}

export class ConfigurationRefresher {
  readonly #options: ConfigurationRefresherOptions;
  /** When this process first saw the present webhooks of a configuration. */
  readonly #seen = new Map<string, { readonly uid: string; readonly generation: string; readonly atMs: number }>();
  #changed = new AbortController();

  constructor(options: ConfigurationRefresherOptions) {
    this.#options = options;
  }

  /** One term of leadership: works until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { watches, ports, name } = this.#options;
    this.#seen.clear();
    const open = CONFIGURATIONS.map(({ resource, suffix }) => ({
      ...watches.open(resource, `${name}${suffix}`, () => this.#changed.abort()),
      path: configurationPath(resource, `${name}${suffix}`),
    }));
    while (!signal.aborted) {
      this.#changed = new AbortController();
      let pauseMs = PAUSE_MS;
      for (const { watch, path } of open) pauseMs = Math.min(pauseMs, await this.#refresh(path, watch, signal));
      await sleep(ports, pauseMs, AbortSignal.any([signal, this.#changed.signal]));
    }
    await Promise.all(open.map(({ close }) => close()));
  }

  /** Returns the milliseconds until the configuration is due. */
  async #refresh(path: string, watch: Reflector<LiveConfiguration>, signal: AbortSignal): Promise<number> {
    const { api, ports, timeoutMs, mayWrite, onFailed } = this.#options;
    const [live] = watch.values();
    if (live === undefined) return PAUSE_MS;
    const { uid, generation, annotations } = live.metadata;
    if (generation === undefined || annotations?.[REFRESHED_GENERATION_ANNOTATION] === `${generation}`) return PAUSE_MS;
    const nowMs = ports.clock.monotonicMs();
    const last = this.#seen.get(path);
    // Another object of this name begins again with generation 1.
    const isSeen = last?.uid === uid && last.generation === `${generation}`;
    const seen = isSeen ? last : { uid, generation: `${generation}`, atMs: nowMs };
    this.#seen.set(path, seen);
    const inMs = seen.atMs + REFRESH_AFTER_MS - nowMs;
    if (inMs > 0) return inMs;
    if (!mayWrite()) return PAUSE_MS;
    const patch = { metadata: { uid, annotations: { [REFRESHED_GENERATION_ANNOTATION]: seen.generation } } };
    const call = { timeoutMs, signal, fieldManager: FIELD_MANAGER };
    const written = await api.patch(path, "application/merge-patch+json", patch, parseLiveConfiguration, call);
    if ((written.kind === "rejected" || written.kind === "unavailable") && !signal.aborted)
      onFailed(path, describeFailure(written));
    return PAUSE_MS;
  }
}
