/** Says in the core up to which version this cell has worked in the register of releases, so that its entries can go (design 7). */
import type { Ports } from "../../runtime/clock.ts";
import { configMapPath, parseConfigMap } from "../../schema/config-map.ts";
import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";
import type { BackupCore } from "../backup/backup-core.ts";
import type { BackupEvent } from "../backup/backup-events.ts";
import { ACKNOWLEDGEMENTS, acknowledgementKey } from "./register-format.ts";

export interface AcknowledgementOptions {
  readonly core: Pick<BackupCore, "name" | "api" | "releases">;
  readonly cellID: string;
  readonly namespace: string;
  readonly ports: Ports;
  readonly timeoutMs: number;
  readonly onEvent: (event: BackupEvent) => void;
}

/** Nobody waits for it. */
const EVERY_MS = 30_000;

export class Acknowledgement {
  readonly #options: AcknowledgementOptions;
  #written: string | undefined;
  #dueMs = Number.NEGATIVE_INFINITY;

  constructor(options: AcknowledgementOptions) {
    this.#options = options;
  }

  /** Writes when there is more to acknowledge; to be called when the copies of what was released are gone. The first one registers the cell. */
  async write(signal: AbortSignal): Promise<void> {
    const { core, cellID, namespace, ports, timeoutMs, onEvent } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    if (nowMs < this.#dueMs || !core.releases.segments.synced) return;
    let version = "0";
    for (const { metadata } of core.releases.segments.values()) {
      const { resourceVersion } = metadata;
      if (isComparableVersion(resourceVersion) && compareVersions(resourceVersion, version) > 0)
        version = resourceVersion;
    }
    if (version === this.#written) return;
    this.#dueMs = nowMs + EVERY_MS;
    const data = { [acknowledgementKey(cellID)]: version };
    const call = { timeoutMs, signal, fieldManager: "podseidon-aggregator" };
    const path = configMapPath(namespace, ACKNOWLEDGEMENTS);
    let result = await core.api.patch(path, "application/merge-patch+json", { data }, parseConfigMap, call);
    if (result.kind === "gone") {
      const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: ACKNOWLEDGEMENTS, namespace }, data };
      result = await core.api.create(configMapPath(namespace), body, parseConfigMap, call);
    }
    if (result.kind === "ok") {
      this.#written = version;
      onEvent({ kind: "acknowledged", core: core.name, version });
    } else if (!signal.aborted) {
      const message = result.kind === "unavailable" ? result.error.message : JSON.stringify(result);
      onEvent({ kind: "acknowledgeFailed", core: core.name, message });
    }
  }
}
