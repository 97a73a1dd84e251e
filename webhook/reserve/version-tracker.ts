import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { isOlderVersion } from "../../shared/schema/resource-version.ts";

/** How a version compares with the known ones. */
export type VersionFinding =
  | "newer"
  /** Nothing new: equal to the newest version, or older for a reason of normal operation, such as a late watch. */
  | "known"
  /** The object's versions went back: its history may be lost (docs/design.md#lost-history). */
  | "wentBack"
  /** Another object has the same name. */
  | "replaced";

/** True when both versions can be compared and `a` is the older one. */
export function isOlder(a: ProtectorVersion, b: ProtectorVersion): boolean {
  return isOlderVersion(a.version, b.version);
}

/** A cell's aggregation, and the time since which this process knows it. */
interface CellCount {
  readonly aggregation: string;
  readonly sinceMs: number;
}

/**
 * The newest version of one protector, from the watch and from own reads and writes, and whether versions went back.
 */
export class VersionTracker {
  #newest: ProtectorVersion | undefined;
  /** A version of an earlier object or history. The watch may still deliver it. */
  #discarded: ProtectorVersion | undefined;
  /** Versions that the watch received until this monotonic time belong to a history that the server has rolled back. */
  #rolledBackUntilMs = Number.NEGATIVE_INFINITY;
  #cells = new Map<string, CellCount>();

  get newest(): ProtectorVersion | undefined {
    return this.#newest;
  }

  /** Takes a version from the watch. */
  offer(version: ProtectorVersion): VersionFinding {
    if (version === this.#newest || version === this.#discarded) return "known";
    if (version.receivedMs <= this.#rolledBackUntilMs) return "known";
    const before = this.#newest;
    if (before === undefined) return this.#take(version, "newer");
    if (before.uid !== version.uid) {
      // A late watch may still show the object that was replaced before an own read saw its successor.
      if (before.sentMs !== undefined && isOlder(version, before)) return "known";
      return this.#take(version, "replaced");
    }
    if (version.version === before.version) return "known";
    // The watch lags behind own reads and writes, so an older version is normal.
    return isOlder(version, before) ? "known" : this.#take(version, "newer");
  }

  /** Takes the version that a quorum read or an own write returned. Even a lower number replaces the newest version. */
  answered(version: ProtectorVersion): VersionFinding {
    const before = this.#newest;
    if (before === undefined) return this.#take(version, "newer");
    const isBehind = isOlder(version, before);
    // Older than a version that arrived during the read: the response is merely late.
    if (isBehind && before.receivedMs >= (version.sentMs ?? version.receivedMs)) return "known";
    if (before.uid !== version.uid) {
      this.#discarded = before;
      return this.#take(version, "replaced");
    }
    if (version.version === before.version) {
      this.#newest = version;
      return "known";
    }
    if (!isBehind) return this.#take(version, "newer");
    this.#rolledBackUntilMs = version.receivedMs;
    return this.#take(version, "wentBack");
  }

  /** Takes the version that the watch has shown after lost history, and ignores all earlier ones. */
  restart(version: ProtectorVersion): void {
    this.#discarded = this.#newest;
    this.#rolledBackUntilMs = Number.NEGATIVE_INFINITY;
    this.#take(version, "newer");
  }

  forget(): void {
    this.#discarded = this.#newest;
    this.#newest = undefined;
    this.#cells.clear();
  }

  /**
   * Monotonic time since which the cell's aggregation is known. A live read that was sent later is newer than its
   * counts.
   */
  cellSinceMs(cell: string): number {
    return this.#cells.get(cell)?.sinceMs ?? Number.NEGATIVE_INFINITY;
  }

  #take(version: ProtectorVersion, finding: VersionFinding): VersionFinding {
    this.#newest = version;
    const cells = new Map<string, CellCount>();
    for (const cell of version.object.status?.cells ?? []) {
      const aggregation = JSON.stringify(cell.aggregation ?? null);
      const old = this.#cells.get(cell.cellID);
      cells.set(cell.cellID, old?.aggregation === aggregation ? old : { aggregation, sinceMs: version.receivedMs });
    }
    this.#cells = cells;
    return finding;
  }
}

/** True when only the admission history differs: a webhook wrote `after`, not an aggregator. */
export function isWrittenByWebhook(before: ProtectorVersion | undefined, after: ProtectorVersion): boolean {
  if (before === undefined || before.uid !== after.uid || before.version === after.version) return false;
  if (before.object.metadata.generation !== after.object.metadata.generation) return false;
  return positionsOf(before) === positionsOf(after);
}

function positionsOf({ object }: ProtectorVersion): string {
  const cells = object.status?.cells ?? [];
  return cells
    .map(
      ({ cellID, aggregation }) =>
        `${cellID}=${aggregation?.resourceVersion ?? ""}@${aggregation?.lastEventTime ?? ""}`,
    )
    .join(",");
}
