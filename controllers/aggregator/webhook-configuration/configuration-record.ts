/**
 * The desired webhook configuration in a ConfigMap of the cell: known after a restart although the webhook
 * configuration is gone.
 */

import * as v from "valibot";
import type { CallOptions } from "../../../shared/kube/client/api-client.ts";
import { configMapPath } from "../../../shared/kube/client/api-path.ts";
import { type ApiFailure, describeFailure } from "../../../shared/kube/client/api-result.ts";
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

  constructor(options: ConfigurationRecordOptions) {
    this.#options = options;
  }

  get(kind: string): DesiredConfiguration | undefined {
    return this.#known.get(kind);
  }

  /** False when it could not be read and should be tried again. A record that can't be understood counts as absent. */
  async read(signal: AbortSignal): Promise<boolean> {
    const { api, namespace, onFailed } = this.#options;
    const result = await api.get(configMapPath(namespace, RECORD_CONFIG_MAP), parseConfigMap, this.#call(signal));
    if (result.kind === "gone") return true;
    if (result.kind !== "ok") {
      onFailed(describeFailure(result));
      // Without the permission there is no record, and the keeper works without it.
      return result.kind === "rejected";
    }
    for (const [kind, text] of Object.entries(result.object.data ?? {})) {
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

  /** Stores it. Undefined when it is stored, and when it can't be: without permission or without the namespace. */
  async put(kind: string, desired: DesiredConfiguration, signal: AbortSignal): Promise<ApiFailure | undefined> {
    const { api, namespace } = this.#options;
    const declared: unknown = JSON.parse(declarationText(desired.declared));
    const data = { [kind]: JSON.stringify({ ...desired, declared }) };
    const call = { ...this.#call(signal), fieldManager: FIELD_MANAGER };
    const path = configMapPath(namespace, RECORD_CONFIG_MAP);
    let result = await api.patch(path, "application/merge-patch+json", { data }, parseConfigMap, call);
    if (result.kind === "gone") {
      const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: RECORD_CONFIG_MAP, namespace }, data };
      result = await api.create(configMapPath(namespace), body, parseConfigMap, call);
    }
    // Whether or not it was stored, this process knows it.
    this.#known.set(kind, desired);
    return result.kind === "ok" || result.kind === "rejected" || result.kind === "gone" ? undefined : result;
  }

  #call(signal: AbortSignal): CallOptions {
    return { timeoutMs: this.#options.timeoutMs, signal };
  }
}
