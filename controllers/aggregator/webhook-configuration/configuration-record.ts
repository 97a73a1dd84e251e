/**
 * Stores the desired webhook configuration in a ConfigMap of the cell, so that the keeper knows it after a restart even
 * if the webhook configuration is gone.
 */

import * as v from "valibot";
import type { CallOptions } from "../../../shared/kube/client/api-client.ts";
import { configMapPath } from "../../../shared/kube/client/api-path.ts";
import { type ApiFailure, describeFailure } from "../../../shared/kube/client/api-result.ts";
import { mergeIntoConfigMap } from "../../../shared/kube/client/config-maps.ts";
import { checker } from "../../../shared/schema/check.ts";
import { parseConfigMap } from "../../../shared/schema/config-map.ts";
import type { ConfigurationOptions } from "./configuration-watch.ts";
import { type DesiredConfiguration, declarationText, parseDeclaredConfiguration } from "./desired-configuration.ts";
import { FIELD_MANAGER, FieldManager } from "./field-ownership.ts";

const RECORD_CONFIG_MAP = "podseidon-registration";

const parseEnvelope = checker(
  v.looseObject({
    declared: v.unknown(),
    bundles: v.record(v.string(), v.string()),
    applied: v.optional(v.string()),
    declarers: v.optional(v.array(FieldManager)),
  }),
);

export interface ConfigurationRecordOptions extends Pick<ConfigurationOptions, "api" | "namespace" | "timeoutMs"> {
  readonly onFailed: (message: string) => void;
}

export class ConfigurationRecord {
  readonly #options: ConfigurationRecordOptions;
  readonly #known = new Map<string, DesiredConfiguration>();
  /** Kinds whose last write failed. */
  readonly #unstored = new Set<string>();
  #isDenied = false;

  constructor(options: ConfigurationRecordOptions) {
    this.#options = options;
  }

  get(kind: string): DesiredConfiguration | undefined {
    return this.#known.get(kind);
  }

  /** False where the write of the known form has to be repeated. */
  isStored(kind: string): boolean {
    return !this.#unstored.has(kind);
  }

  /** True where the record could not be read for lack of the permission, which may come at any time. */
  get isDenied(): boolean {
    return this.#isDenied;
  }

  /** False when the read failed and has to be repeated. A record with unreadable content counts as absent. */
  async read(signal: AbortSignal): Promise<boolean> {
    const { api, namespace, onFailed } = this.#options;
    const result = await api.get(configMapPath(namespace, RECORD_CONFIG_MAP), parseConfigMap, this.#call(signal));
    const wasDenied = this.#isDenied;
    this.#isDenied = result.kind === "rejected";
    if (result.kind === "gone") return true;
    if (result.kind !== "ok") {
      if (!wasDenied) onFailed(describeFailure(result));
      // Without the permission, the keeper works without a record.
      return result.kind === "rejected";
    }
    for (const [kind, text] of Object.entries(result.object.data ?? {})) {
      // What this process has seen since is newer.
      if (this.#known.has(kind)) continue;
      try {
        const { declared, bundles, applied, declarers = [] } = parseEnvelope(JSON.parse(text));
        const seen = { declared: parseDeclaredConfiguration(declared), bundles, declarers };
        this.#known.set(kind, applied === undefined ? seen : { ...seen, applied });
      } catch (error) {
        onFailed(`the record of ${kind} cannot be read: ${String(error)}`);
      }
    }
    return true;
  }

  /**
   * Stores the desired form. Returns undefined on success, and without the permission or the namespace, which may come
   * later.
   */
  async put(kind: string, desired: DesiredConfiguration, signal: AbortSignal): Promise<ApiFailure | undefined> {
    const { api, namespace } = this.#options;
    const declared: unknown = JSON.parse(declarationText(desired.declared));
    const data = { [kind]: JSON.stringify({ ...desired, declared }) };
    const call = { ...this.#call(signal), fieldManager: FIELD_MANAGER };
    const result = await mergeIntoConfigMap(api, { name: RECORD_CONFIG_MAP, namespace }, data, call);
    // This process knows the form even if it was not stored.
    this.#known.set(kind, desired);
    if (result.kind === "ok") this.#unstored.delete(kind);
    else this.#unstored.add(kind);
    return result.kind === "ok" || result.kind === "rejected" || result.kind === "gone" ? undefined : result;
  }

  #call(signal: AbortSignal): CallOptions {
    return { timeoutMs: this.#options.timeoutMs, signal };
  }
}
