/**
 * Resource versions compared as integers (KEP-5504), without BigInt: they are digit strings of any length.
 */

const INTEGER = /^(0|[1-9][0-9]*)$/;

/** True when the version can be compared; a cell whose versions are no integers uses rule R3 only (design 5.4). */
export function isComparableVersion(version: string | undefined): version is string {
  return version !== undefined && INTEGER.test(version);
}

/** Negative, zero or positive as `a` is older than, equal to or newer than `b`. Both must be comparable. */
export function compareVersions(a: string, b: string): number {
  if (a.length !== b.length) return a.length - b.length;
  return a === b ? 0 : a < b ? -1 : 1;
}

/** True when both are comparable and `version` is older than the other. */
export function isOlderVersion(version: string | undefined, than: string | undefined): boolean {
  return isComparableVersion(version) && isComparableVersion(than) && compareVersions(version, than) < 0;
}

/** True when both are comparable and `position` is at or past `version`. */
export function hasReached(position: string | undefined, version: string | undefined): boolean {
  return isComparableVersion(position) && isComparableVersion(version) && compareVersions(position, version) >= 0;
}
