import type { Pending } from "../../../shared/decide/settling/account.ts";
import { SeenTimes } from "../../../shared/decide/settling/first-seen.ts";
import type { KnownEntry } from "../../../shared/decide/settling/lost-history.ts";
import { isCounted } from "../../../shared/decide/state/protector-state.ts";
import type { CellStatus, PodProtector } from "../../../shared/schema/podprotector.ts";
import { compareVersions, isComparableVersion } from "../../../shared/schema/resource-version.ts";

/**
 * What one term of leadership knows of one protector beside the objects themselves. A new leader starts without any of it, which
 * restarts the settle timers (design 5.4).
 */
export class ReconcileState {
  readonly seen = new SeenTimes();
  /** What was written or read last (design 5.4). */
  known: KnownEntry | undefined;
  /** The snapshot is newer than this epoch. */
  adoptedEpoch = 0;
  /** A stored epoch that is not adopted yet, and when it was first seen (monotonic). */
  foreignEpoch: { readonly epoch: number; readonly sinceMs: number } | undefined;
  /** Since when (monotonic) the stored position has been newer than the snapshot. */
  staleSinceMs: number | undefined;
  /** Monotonic time of the last write of this term. */
  lastWriteMs: number | undefined;
  /** Monotonic time at which a write is due even if nothing has changed. */
  heartbeatDueMs: number;
  /** Monotonic time of the oldest pod change that is not published yet. */
  changedSinceMs: number | undefined;
  /** The records that wait to be settled, as the last accounting left them. */
  pending: readonly Pending[] = [];
  /** UIDs of pods whose resize the kubelet has deferred while quota is reserved for it. */
  deferred: ReadonlySet<string> = new Set();
  /** The hold that is stored, and since when (monotonic) it is known. */
  hold: { readonly text: string; readonly sinceMs: number } | undefined;
  /** Packed or unreadable buckets that were reported. */
  reportedCorrupt = 0;
  /** Newer than what the watch has brought: the response to an own write, or a read after a conflict. */
  #own: PodProtector | undefined;

  constructor(heartbeatDueMs: number) {
    this.heartbeatDueMs = heartbeatDueMs;
  }

  /** The newest object known. `watched` is the watch's. */
  newest(watched: PodProtector): PodProtector {
    if (this.#own !== undefined && hasCaughtUp(watched, this.#own)) this.#own = undefined;
    return this.#own ?? watched;
  }

  /** What a write or a quorum read returned replaces what was known, whatever its version (design 5.4). */
  learned(object: PodProtector): void {
    this.#own = object;
  }

  /** True when the watch brought just what this process wrote. */
  isOwn(watched: PodProtector): boolean {
    return this.#own?.metadata.resourceVersion === watched.metadata.resourceVersion;
  }

  /** The server was restored: versions say nothing about which object is newer. */
  forgetOwn(): void {
    this.#own = undefined;
  }

  /** Remembers the entry as it is stored in `protector`. */
  remember(protector: PodProtector, stored: CellStatus | undefined, incidentID: string | undefined): void {
    const aggregation = stored?.aggregation ?? undefined;
    this.known = {
      protectorUID: protector.metadata.uid,
      protectorVersion: protector.metadata.resourceVersion,
      wasCounted: isCounted(aggregation),
      epoch: aggregation?.epoch ?? 0,
      position: aggregation?.resourceVersion,
      incidentID,
    };
  }
}

function hasCaughtUp(watched: PodProtector, own: PodProtector): boolean {
  const watchedVersion = watched.metadata.resourceVersion;
  const ownVersion = own.metadata.resourceVersion;
  if (watchedVersion === ownVersion) return true;
  if (!isComparableVersion(watchedVersion) || !isComparableVersion(ownVersion)) return false;
  return compareVersions(watchedVersion, ownVersion) > 0;
}
