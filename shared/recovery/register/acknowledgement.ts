/**
 * Acknowledges in the core which version of the release register this cell has processed, so that old segments can be
 * deleted.
 */
import type { ApiClient } from "../../kube/client/api-client.ts";
import { describeFailure } from "../../kube/client/api-result.ts";
import { mergeIntoConfigMap } from "../../kube/client/config-maps.ts";
import type { Ports } from "../../runtime/clock.ts";
import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";
import type { RecoveryEvent } from "../recovery-events.ts";
import { ACKNOWLEDGEMENTS, acknowledgementKey, segmentNumber } from "./register-format.ts";
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

/** Shortest time between two writes; nothing waits for them. */
const EVERY_MS = 30_000;
/** Somebody may have deleted what was written. Segments stay for 24 h at least. */
const AGAIN_MS = 3_600_000;

export class ReleaseAcknowledgement {
  readonly #options: ReleaseAcknowledgementOptions;
  #written: string | undefined;
  #againMs = Number.NEGATIVE_INFINITY;
  #dueMs = Number.NEGATIVE_INFINITY;

  constructor(options: ReleaseAcknowledgementOptions) {
    this.#options = options;
  }

  /**
   * The newest version of a segment, if it is not acknowledged yet, or was long ago. Undefined while the cell still has
   * a backup of a released protector: without the segment, the cell would restore the protector. The removal of a
   * backup may still have to be written.
   */
  due(hasBackup: (uid: string) => boolean): string | undefined {
    const { core, ports } = this.#options;
    const { segments } = core.releases;
    const nowMs = ports.clock.monotonicMs();
    if (nowMs < this.#dueMs || !segments.synced) return undefined;
    const version = newestVersion(segments);
    const isWritten = version === this.#written && nowMs < this.#againMs;
    return isWritten || isAnyKept(segments, hasBackup) ? undefined : version;
  }

  /** Writes a version that was due before the last write of backups. The first write registers the cell. */
  async write(version: string, signal: AbortSignal): Promise<void> {
    const { core, cellID, namespace, ports, timeoutMs, onEvent } = this.#options;
    this.#dueMs = ports.clock.monotonicMs() + EVERY_MS;
    const call = { timeoutMs, signal, fieldManager: "podseidon-aggregator" };
    const data = { [acknowledgementKey(cellID)]: version };
    const result = await mergeIntoConfigMap(core.api, { name: ACKNOWLEDGEMENTS, namespace }, data, call);
    if (result.kind === "ok") {
      this.#written = version;
      this.#againMs = ports.clock.monotonicMs() + AGAIN_MS;
      onEvent({ kind: "acknowledged", core: core.name, version });
    } else if (!signal.aborted)
      onEvent({ kind: "acknowledgeFailed", core: core.name, message: describeFailure(result) });
  }
}

/** Ignores releases by hand, whose segment is never deleted. */
function isAnyKept(segments: ReleaseRegister["segments"], hasBackup: (uid: string) => boolean): boolean {
  for (const { metadata, data } of segments.values())
    if (segmentNumber(metadata.name) !== undefined && Object.keys(data ?? {}).some(hasBackup)) return true;
  return false;
}

function newestVersion(segments: ReleaseRegister["segments"]): string {
  let newest = "0";
  for (const { metadata } of segments.values()) {
    const { resourceVersion } = metadata;
    if (isComparableVersion(resourceVersion) && compareVersions(resourceVersion, newest) > 0) newest = resourceVersion;
  }
  return newest;
}
