/**
 * The webhook configuration keeper (docs/design.md#webhook-configuration): without its webhook configuration, a cell
 * deletes pods without asking. The keeper creates a missing one at once, and restores one that was altered by anything
 * other than its operator's `kubectl apply`. A dry run shows how the apiserver completes a declaration with defaults.
 */

import { readFile } from "node:fs/promises";
import type { Labels } from "../../../shared/decide/availability/selector.ts";
import type { WriteOptions } from "../../../shared/kube/client/api-client.ts";
import { type ApiFailure, type ApiResult, describeFailure } from "../../../shared/kube/client/api-result.ts";
import { sleep } from "../../../shared/runtime/clock.ts";
import { isAskedBy } from "./asked-namespaces.ts";
import { type ConfigurationChange, changesBetween } from "./configuration-changes.ts";
import { ConfigurationRecord } from "./configuration-record.ts";
import { type ConfigurationOptions, configurationPath, type OpenWatch, whenCounted } from "./configuration-watch.ts";
import {
  bundlesOf,
  type ConfigurationResource,
  type DeclaredConfiguration,
  type DesiredConfiguration,
  declaredForm,
  desiredConfiguration,
  forCell,
  hasSameWebhooks,
  KINDS,
  type LiveConfiguration,
  parseDeclaredConfiguration,
  parseLiveConfiguration,
  RESOURCES,
  recordChange,
  restoredConfiguration,
  updatedConfiguration,
  waitsForCounts,
} from "./desired-configuration.ts";
import { FIELD_MANAGER, lastWriter } from "./field-ownership.ts";

export type RestoreCause = "missing" | "altered";

/** The changes, and the field manager that wrote last, if known. */
interface Alteration {
  readonly changes: readonly ConfigurationChange[];
  readonly writer: string | undefined;
}

export type ConfigurationEvent =
  | {
      readonly kind: "restored";
      readonly resource: ConfigurationResource;
      readonly why: RestoreCause;
      readonly uid: string;
      /** The changes that were undone; empty for a missing object. */
      readonly alteration: Alteration;
    }
  /** The keeper sees the object for the first time. */
  | { readonly kind: "adopted"; readonly resource: ConfigurationResource }
  /** Its operator has declared another form. */
  | { readonly kind: "changed"; readonly resource: ConfigurationResource; readonly alteration: Alteration }
  /** There is no webhook configuration, and its form was never declared. */
  | { readonly kind: "unknown"; readonly resource: ConfigurationResource }
  | {
      readonly kind: "failed";
      readonly resource: ConfigurationResource;
      readonly what: string;
      readonly message: string;
    };

export interface ConfigurationKeeperOptions extends ConfigurationOptions {
  /** By kind, from a file, which has precedence over what an operator has applied. */
  readonly declared: ReadonlyMap<string, DeclaredConfiguration>;
  readonly onEvent: (event: ConfigurationEvent) => void;
  readonly onRecordFailed: (message: string) => void;
}

/** Longest time between reconciles, in case the watch missed a change. */
const RECONCILE_EVERY_MS = 30_000;
/** Pause after a failure and between two restores: two keepers that disagree must not write without a pause. */
const PAUSE_MS = 1_000;

export class ConfigurationKeeper {
  readonly #options: ConfigurationKeeperOptions;
  /** Empty while this process does not lead. */
  #watches: ReadonlyMap<ConfigurationResource, OpenWatch> = new Map();
  readonly #bundles = new Map<ConfigurationResource, Record<string, string>>();
  /** The resourceVersions whose content is as desired. */
  readonly #kept = new Map<ConfigurationResource, string>();
  /** Whether this term has counted the pods, or waits no longer for that. */
  #isCounted = false;
  /** UIDs of the objects that were created before the first count, until they are as desired. */
  readonly #early = new Set<string>();
  #wake = new AbortController();

  constructor(options: ConfigurationKeeperOptions) {
    this.#options = options;
  }

  /** True when both webhook configurations are as desired; undefined while unknown. */
  get isKept(): boolean | undefined {
    const states = RESOURCES.map((resource) => {
      const watch = this.#watches.get(resource)?.watch;
      return watch?.synced === true ? this.#isKept(resource, watch.get(this.#options.name)) : undefined;
    });
    return states.includes(undefined) ? undefined : states.every((state) => state === true);
  }

  /** Whether the cell asks about the pods of a namespace with these labels; false while unknown. */
  isAsked(labels: Labels): boolean {
    const watch = this.#watches.get("validatingwebhookconfigurations")?.watch;
    const live = watch?.synced === true ? watch.get(this.#options.name) : undefined;
    return live !== undefined && isAskedBy(live, labels);
  }

  #isKept(resource: ConfigurationResource, live: LiveConfiguration | undefined): boolean {
    return live !== undefined && this.#kept.get(resource) === live.metadata.resourceVersion;
  }

  /** One term of leadership: works until `signal` aborts. `counted` resolves once this term has counted the pods. */
  async run(signal: AbortSignal, counted: Promise<void> = Promise.resolve()): Promise<void> {
    const { ports, onRecordFailed, watches, name } = this.#options;
    this.#bundles.clear();
    this.#kept.clear();
    this.#isCounted = false;
    void whenCounted(counted, ports, signal, () => {
      this.#isCounted = true;
      this.#wake.abort();
    });
    const record = new ConfigurationRecord({ ...this.#options, onFailed: onRecordFailed });
    const changed = (): void => this.#wake.abort();
    this.#watches = new Map(RESOURCES.map((resource) => [resource, watches.open(resource, name, changed)]));
    const open = [...this.#watches.values()];
    await Promise.all(open.map(({ watch }) => watch.whenSynced(signal)));
    while (!signal.aborted && !(await record.read(signal))) await sleep(ports, PAUSE_MS, signal);
    while (!signal.aborted) {
      this.#wake = new AbortController();
      if (record.isDenied) await record.read(signal);
      let isDone = true;
      for (const resource of RESOURCES) isDone = (await this.#reconcile(resource, record, signal)) && isDone;
      if (isDone) await sleep(ports, RECONCILE_EVERY_MS, AbortSignal.any([signal, this.#wake.signal]));
      else await sleep(ports, PAUSE_MS, signal);
    }
    await Promise.all(open.map(({ close }) => close()));
    this.#watches = new Map();
  }

  /** False when the reconcile has to be repeated after a pause. */
  async #reconcile(
    resource: ConfigurationResource,
    record: ConfigurationRecord,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { name, mayWrite, onEvent, declared } = this.#options;
    const watched = this.#watches.get(resource)?.watch.get(name);
    const kind = KINDS[resource];
    const isStored = record.isStored(kind);
    if ((this.#isKept(resource, watched) && isStored) || !mayWrite()) return true;
    const found = watched === undefined ? undefined : await this.#read(resource, signal);
    if (found !== undefined && found.kind !== "ok" && found.kind !== "gone")
      return this.#failed(resource, "read", found);
    const live = found?.kind === "ok" ? found.object : undefined;
    if (live !== undefined) this.#bundles.set(resource, { ...this.#bundles.get(resource), ...bundlesOf(live) });
    const recorded = record.get(kind);
    const bundles = this.#bundles.get(resource) ?? {};
    const desired = desiredConfiguration({ kind, live, recorded, bundles, declared: declared.get(kind) });
    if (desired === undefined) {
      onEvent({ kind: "unknown", resource });
      return true;
    }
    const change = recordChange(recorded, desired);
    if (change === "form" && recorded === undefined) onEvent({ kind: "adopted", resource });
    else if (change === "form" && recorded !== undefined) {
      const changes = changesBetween(formOf(recorded.declared), formOf(desired.declared));
      const writer = lastWriter(live?.metadata.managedFields ?? [], "declared");
      onEvent({ kind: "changed", resource, alteration: { changes, writer } });
    }
    const failure = change === undefined && isStored ? undefined : await record.put(kind, desired, signal);
    if (failure !== undefined) this.#failed(resource, "record", failure);
    const isDone =
      live === undefined
        ? await this.#create(resource, desired, signal)
        : await this.#compare(resource, desired, live, signal);
    return isDone && failure === undefined;
  }

  /** The watch drops `managedFields`, so the object is read. */
  #read(resource: ConfigurationResource, signal: AbortSignal): Promise<ApiResult<LiveConfiguration>> {
    const { api, name } = this.#options;
    const options = { ...this.#call(signal), managedFields: true };
    return api.get(configurationPath(resource, name), parseLiveConfiguration, options);
  }

  async #create(resource: ConfigurationResource, desired: DesiredConfiguration, signal: AbortSignal): Promise<boolean> {
    const bare = restoredConfiguration({ ...desired, bundles: {} });
    const isEarly = !this.#isCounted && waitsForCounts(bare);
    const body = isEarly ? bare : restoredConfiguration(desired);
    const path = configurationPath(resource);
    const result = await this.#options.api.create(path, body, parseLiveConfiguration, this.#call(signal));
    if (isEarly && result.kind === "ok") this.#early.add(result.object.metadata.uid);
    return this.#restored(resource, "missing", { changes: [], writer: undefined }, result);
  }

  async #compare(
    resource: ConfigurationResource,
    desired: DesiredConfiguration,
    live: LiveConfiguration,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { api, name } = this.#options;
    if (!this.#isCounted && waitsForCounts(live)) return true;
    const path = configurationPath(resource, name);
    const body = updatedConfiguration(desired, live);
    const call = this.#call(signal);
    const completed = await api.update(path, body, parseLiveConfiguration, { ...call, dryRun: true });
    if (completed.kind === "conflict" || completed.kind === "gone") return false;
    if (completed.kind !== "ok") return this.#failed(resource, "compare", completed);
    if (hasSameWebhooks(completed.object, live, desired.declared)) {
      this.#kept.set(resource, live.metadata.resourceVersion);
      this.#early.delete(live.metadata.uid);
      return true;
    }
    const changes = changesBetween(completed.object.webhooks ?? [], live.webhooks ?? []);
    const writer = lastWriter(live.metadata.managedFields ?? [], "altered");
    const result = await api.update(path, body, parseLiveConfiguration, call);
    if (this.#early.has(live.metadata.uid))
      return this.#restored(resource, "missing", { changes: [], writer: undefined }, result);
    return this.#restored(resource, "altered", { changes, writer }, result);
  }

  /** Returns false, so that the next reconcile compares the version that the watch delivers. */
  #restored(
    resource: ConfigurationResource,
    why: RestoreCause,
    alteration: Alteration,
    result: ApiResult<LiveConfiguration>,
  ): false {
    if (result.kind === "ok") {
      const { uid } = result.object.metadata;
      this.#options.onEvent({ kind: "restored", resource, why, uid, alteration });
    } else if (result.kind !== "conflict" && result.kind !== "gone") this.#failed(resource, `restore (${why})`, result);
    return false;
  }

  #failed(resource: ConfigurationResource, what: string, failure: ApiFailure): false {
    const message = describeFailure(failure);
    this.#options.onEvent({ kind: "failed", resource, what, message });
    return false;
  }

  #call(signal: AbortSignal): WriteOptions {
    return { timeoutMs: this.#options.timeoutMs, signal, fieldManager: FIELD_MANAGER };
  }
}

/** The declared webhooks without the fields that others change. */
function formOf(declared: DeclaredConfiguration): NonNullable<DeclaredConfiguration["webhooks"]> {
  return declaredForm(declared).webhooks ?? [];
}

/** The webhook configurations in a YAML file, by kind; ignores other objects. Throws when the file can't be used. */
export async function readDeclared(file: string, cellID: string): Promise<ReadonlyMap<string, DeclaredConfiguration>> {
  const declared = new Map<string, DeclaredConfiguration>();
  if (file === "") return declared;
  const { loadAll } = await import("js-yaml");
  const kinds: readonly string[] = Object.values(KINDS);
  for (const document of loadAll(await readFile(file, "utf8"))) {
    const kind: unknown = typeof document === "object" && document !== null ? Reflect.get(document, "kind") : undefined;
    if (typeof kind !== "string" || !kinds.includes(kind)) continue;
    declared.set(kind, forCell(parseDeclaredConfiguration(document), cellID));
  }
  if (declared.size === 0) throw new Error(`${file} holds no webhook configuration`);
  return declared;
}
