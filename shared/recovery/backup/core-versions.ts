import { isComparableVersion, isOlderVersion } from "../../schema/resource-version.ts";

/**
 * A restored etcd should continue a billion versions higher (`etcdutl snapshot restore --bump-revision`). Aggregators
 * note the versions that they see every half minute; as many writes take days.
 */
const LEAST_BUMP = 900_000_000;
/** How far above its present version a restored core is noted: more than it can write until it is noted again. */
const ABOVE = 100_000n;

/** True when a core at `version` is older than one of those that were noted. */
export function isBehindAny(version: string | undefined, noted: readonly (string | undefined)[]): boolean {
  return noted.some((one) => isOlderVersion(version, one));
}

/** True when a core's versions were raised since any aggregator noted them, and not by writes: it was restored. */
export function isBumped(position: string | undefined, versions: readonly (string | undefined)[]): boolean {
  const known = versions.filter(isComparableVersion).map(Number);
  return isComparableVersion(position) && known.length > 0 && Number(position) - Math.max(...known) >= LEAST_BUMP;
}

interface CoreVersionsOptions {
  readonly settleMs: number;
  /** When a list or a read last showed (monotonic) that a core was restored. */
  readonly wentBackMs: ReadonlyMap<string, number>;
  readonly onRestored: (core: string, from: string, to: string) => void;
}

/**
 * The highest resourceVersion that this cell has seen of each core. A core with a lower version was restored. So was a
 * core whose versions were raised (`--bump-revision`); then the versions do not show what was lost. The core may soon
 * pass the version from before the restore. So for a settle period, a version above the core's own is noted, from which
 * every process that starts meanwhile learns of the restore. The version of a core that was raised stays as noted.
 */
export class CoreVersions {
  readonly #options: CoreVersionsOptions;
  #highest: Readonly<Record<string, string>> = {};
  /** Since when (monotonic) this process knows that a core was restored. */
  readonly #restoredSinceMs = new Map<string, number>();

  constructor(options: CoreVersionsOptions) {
    this.#options = options;
  }

  /** By core. */
  get highest(): Readonly<Record<string, string>> {
    return this.#highest;
  }

  isRestored(core: string): boolean {
    return this.#restoredSinceMs.has(core);
  }

  load(versions: readonly { readonly core: string; readonly version: string }[]): void {
    this.#highest = Object.fromEntries(versions.map(({ core, version }) => [core, version]));
  }

  /** `position` is the newest version that the core has shown. */
  observe(core: string, position: string | undefined, nowMs: number): void {
    if (!isComparableVersion(position)) return;
    const { settleMs, wentBackMs, onRestored } = this.#options;
    const highest = this.#highest[core] ?? "";
    const isOlder = isOlderVersion(position, highest);
    const isRaised = isBumped(position, [highest]);
    let sinceMs = this.#restoredSinceMs.get(core);
    if (sinceMs === undefined) {
      if (isOlder) onRestored(core, highest, position);
      sinceMs = isOlder || isRaised ? nowMs : wentBackMs.get(core);
    }
    let next = position;
    if (sinceMs === undefined || nowMs - sinceMs >= settleMs) this.#restoredSinceMs.delete(core);
    else {
      this.#restoredSinceMs.set(core, sinceMs);
      next = String(BigInt(position) + ABOVE);
      if (isRaised || isOlderVersion(next, highest)) return;
    }
    this.#highest = { ...this.#highest, [core]: next };
  }
}
