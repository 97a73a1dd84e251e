import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";

interface CoreVersionsOptions {
  readonly settleMs: number;
  readonly onRestored: (core: string, from: string, to: string) => void;
}

/**
 * The highest resourceVersion that this cell has seen of each core. A core that is older was restored. Its higher
 * version is kept for a settle period, so that every process that starts meanwhile learns of the restore.
 */
export class CoreVersions {
  readonly #options: CoreVersionsOptions;
  #highest: Readonly<Record<string, string>> = {};
  /** Since when (monotonic) each restored core has been older. */
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

  /** `position` is the version of the core that its watch has reached. */
  observe(core: string, position: string | undefined, nowMs: number): void {
    if (!isComparableVersion(position)) return;
    const highest = this.#highest[core];
    if (isComparableVersion(highest) && compareVersions(position, highest) < 0) {
      const sinceMs = this.#restoredSinceMs.get(core);
      if (sinceMs === undefined) {
        this.#restoredSinceMs.set(core, nowMs);
        this.#options.onRestored(core, highest, position);
      }
      if (nowMs - (sinceMs ?? nowMs) < this.#options.settleMs) return;
    }
    this.#restoredSinceMs.delete(core);
    this.#highest = { ...this.#highest, [core]: position };
  }
}
