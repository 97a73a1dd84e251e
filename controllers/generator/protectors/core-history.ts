/**
 * What a generator's process remembers of its core, to notice that the core was restored (docs/design.md#lost-history).
 * A term of leadership rarely survives a restore, and a standby watches nothing, but each candidate reads the Lease.
 */
import { isBehindAny, isBumped } from "../../../shared/recovery/backup/core-versions.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";

/** For so long a restore is news: the next leader answers it. Later, another leader has. */
const NEWS_MS = 300_000;

export class CoreHistory {
  readonly #clock: Pick<Clock, "monotonicMs">;
  /**
   * The last versions of the Lease and of a list of protectors. They are not compared with each other: the Lease is
   * renewed while a list is on its way, and may be in another etcd.
   */
  #lease: string | undefined;
  #listed: string | undefined;
  #restoredMs: number | undefined;

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  leaseSeen(version: string): void {
    if (isAnotherHistory(version, this.#lease)) this.wentBack();
    this.#lease = version;
  }

  /** The core is older than it was. */
  wentBack(): void {
    this.#restoredMs = this.#clock.monotonicMs();
    this.#listed = undefined;
    this.#lease = undefined;
  }

  /** A list of protectors has this version. True for the first one after a restore. */
  isFirstOfHistory(position: string): boolean {
    if (isAnotherHistory(position, this.#listed)) this.wentBack();
    const isNews = this.#restoredMs !== undefined && this.#clock.monotonicMs() - this.#restoredMs < NEWS_MS;
    this.#restoredMs = undefined;
    this.#listed = position;
    return isNews;
  }
}

function isAnotherHistory(version: string, known: string | undefined): boolean {
  return isBehindAny(version, [known]) || isBumped(version, [known]);
}
