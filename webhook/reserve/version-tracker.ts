import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { compareVersions, isComparableVersion } from "../../shared/schema/resource-version.ts";

/** What a newly learned version says about those before it. */
export type VersionFinding =
  | "newer"
  /** Nothing new: older than or equal to what is known, in a way that happens in normal operation. */
  | "known"
  /** The object's versions went back: its history may be lost (design 5.4). */
  | "wentBack"
  /** Another object of the same name (design 5.4). */
  | "replaced";

/** True when both versions can be compared and `a` is the older one. */
export function isOlder(a: ProtectorVersion, b: ProtectorVersion): boolean {
  return isComparableVersion(a.version) && isComparableVersion(b.version) && compareVersions(a.version, b.version) < 0;
}

/** Of one cell: what its aggregation said, and since when this process knows it. */
interface CellKnowledge {
  readonly fingerprint: string;
  readonly sinceMs: number;
}

/**
 * The newest version of one protector that is known, from the watch, from own reads and from the answers to own writes
 * (design 5.8), and what was noticed on the way.
 */
export class VersionTracker {
  #newest: ProtectorVersion | undefined;
  /** What a read has shown to be out of date although its version is higher (design 5.4: after a 409, what is read counts). */
  #discarded: ProtectorVersion | undefined;
  /** What the watch received before is of a history that is over: a read has shown that the versions went back (design 5.4). */
  #overUntilMs = Number.NEGATIVE_INFINITY;
  #cells = new Map<string, CellKnowledge>();

  get newest(): ProtectorVersion | undefined {
    return this.#newest;
  }

  /** A version that the watch holds. */
  offer(entry: ProtectorVersion): VersionFinding {
    if (entry === this.#newest || entry === this.#discarded) return "known";
    if (entry.receivedMs <= this.#overUntilMs) return "known";
    const before = this.#newest;
    if (before === undefined) return this.#take(entry, "newer");
    if (before.uid !== entry.uid) return this.#offerOther(before, entry);
    if (entry.version === before.version) return "known";
    // The watch lags behind own reads and writes: an older version is the normal case.
    return isOlder(entry, before) ? "known" : this.#take(entry, "newer");
  }

  /** A version that a quorum read, or the answer to an own write, returned. It counts whatever its version is. */
  answered(entry: ProtectorVersion): VersionFinding {
    const before = this.#newest;
    if (before === undefined) return this.#take(entry, "newer");
    if (before.uid !== entry.uid) {
      this.#discarded = before;
      return this.#take(entry, "replaced");
    }
    if (entry.version === before.version) {
      this.#newest = entry;
      return "known";
    }
    if (!isOlder(entry, before)) return this.#take(entry, "newer");
    // Older than what arrived while the read was under way: the read is merely late.
    if (before.receivedMs >= (entry.sentMs ?? entry.receivedMs)) return "known";
    this.#discarded = before;
    this.#overUntilMs = entry.receivedMs;
    return this.#take(entry, "wentBack");
  }

  /** The watch has shown that this is what there is now, whatever was known before (design 5.4). */
  restart(entry: ProtectorVersion): void {
    this.#discarded = this.#newest;
    this.#overUntilMs = Number.NEGATIVE_INFINITY;
    this.#take(entry, "newer");
  }

  /** The object is gone. */
  forget(): void {
    this.#discarded = this.#newest;
    this.#newest = undefined;
    this.#cells.clear();
  }

  /**
   * Monotonic time since which this process knows what the cell's aggregation says now. A live read of a pod that was sent later
   * is newer than the snapshot behind the counts (design 5.3, evictions of unavailable pods).
   */
  cellSinceMs(cell: string): number {
    return this.#cells.get(cell)?.sinceMs ?? Number.NEGATIVE_INFINITY;
  }

  #offerOther(before: ProtectorVersion, entry: ProtectorVersion): VersionFinding {
    // A watch that lags may still show the object that was replaced before an own read saw its successor.
    if (before.sentMs !== undefined && isOlder(entry, before)) return "known";
    return this.#take(entry, "replaced");
  }

  #take(entry: ProtectorVersion, finding: VersionFinding): VersionFinding {
    this.#newest = entry;
    const cells = new Map<string, CellKnowledge>();
    for (const { cellID, aggregation } of entry.object.status?.cells ?? []) {
      const fingerprint = aggregation === undefined || aggregation === null ? "" : JSON.stringify(aggregation);
      const old = this.#cells.get(cellID);
      cells.set(cellID, old?.fingerprint === fingerprint ? old : { fingerprint, sinceMs: entry.receivedMs });
    }
    this.#cells = cells;
    return finding;
  }
}

/** True when `after` differs from `before` by admission history alone: another webhook wrote it, no aggregator. */
export function isWrittenByWebhook(before: ProtectorVersion | undefined, after: ProtectorVersion): boolean {
  if (before === undefined || before.uid !== after.uid || before.version === after.version) return false;
  if (before.object.metadata.generation !== after.object.metadata.generation) return false;
  const positions = (entry: ProtectorVersion): string =>
    (entry.object.status?.cells ?? [])
      .map(
        ({ cellID, aggregation }) =>
          `${cellID}=${aggregation?.resourceVersion ?? ""}@${aggregation?.lastEventTime ?? ""}`,
      )
      .join(",");
  return positions(before) === positions(after);
}
