/**
 * Tells the core which version of the release register this cell has processed, so that old segments can be deleted.
 */
import type { ApiClient } from "../../kube/client/api-client.ts";
import { describeFailure } from "../../kube/client/api-result.ts";
import { mergeIntoConfigMap } from "../../kube/client/config-maps.ts";
import type { Ports } from "../../runtime/clock.ts";
import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";
import type { RecoveryEvent } from "../recovery-events.ts";
import { ACKNOWLEDGEMENTS, acknowledgementKey } from "./register-format.ts";
import type { ReleaseRegister } from "./release-register.ts";

interface ReleaseAcknowledgementOptions {
  readonly core: {
    readonly name: string;
    readonly api: Pick<ApiClient, "create" | "patch">;
    readonly releases: Pick<ReleaseRegister, "segments">;
  };
  readonly cellID: string;
  readonly namespace: string;
  readonly ports: Ports;
  readonly timeoutMs: number;
  readonly onEvent: (event: RecoveryEvent) => void;
}

/** Least time between two writes: nothing waits for them. */
const EVERY_MS = 30_000;

export class ReleaseAcknowledgement {
  readonly #options: ReleaseAcknowledgementOptions;
  #written: string | undefined;
  #dueMs = Number.NEGATIVE_INFINITY;

  constructor(options: ReleaseAcknowledgementOptions) {
    this.#options = options;
  }

  /**
   * Writes the newest version of a segment, if that is news. Call it once the backups of released protectors are gone.
   * The first write registers the cell.
   */
  async write(signal: AbortSignal): Promise<void> {
    const { core, cellID, namespace, ports, timeoutMs, onEvent } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    if (nowMs < this.#dueMs || !core.releases.segments.synced) return;
    const version = newestVersion(core.releases.segments);
    if (version === this.#written) return;
    this.#dueMs = nowMs + EVERY_MS;
    const call = { timeoutMs, signal, fieldManager: "podseidon-aggregator" };
    const data = { [acknowledgementKey(cellID)]: version };
    const result = await mergeIntoConfigMap(core.api, { name: ACKNOWLEDGEMENTS, namespace }, data, call);
    if (result.kind === "ok") {
      this.#written = version;
      onEvent({ kind: "acknowledged", core: core.name, version });
    } else if (!signal.aborted)
      onEvent({ kind: "acknowledgeFailed", core: core.name, message: describeFailure(result) });
  }
}

function newestVersion(segments: ReleaseRegister["segments"]): string {
  let newest = "0";
  for (const { metadata } of segments.values()) {
    const { resourceVersion } = metadata;
    if (isComparableVersion(resourceVersion) && compareVersions(resourceVersion, newest) > 0) newest = resourceVersion;
  }
  return newest;
}
