/**
 * Evictions that may rest on an older read of their pod (docs/limits.md): the pod is ready again, and the eviction goes
 * through all the same. Two rules bound that, and this file knows both. The pin of the eviction is written before the
 * pod is counted as ready, and the last read is at most 250 ms older than the response, or a slow one of a second at
 * most.
 */

import type { CellStatus } from "../../../shared/schema/podprotector.ts";
import { RECENT_READ_MS } from "../../../webhook/reserve/pipeline.ts";
import { MAX_REREAD_MS } from "../../../webhook/reserve/protector-writer.ts";
import type { InFlightRequest } from "../actors/admission-requests.ts";
import type { PodTruth, WantedPods } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { ledgerOf } from "../truth/stored-protectors.ts";
import type { CellTruth } from "./count-checks.ts";

interface Undecided {
  readonly eviction: InFlightRequest;
  /** When the pod was first seen ready again; undefined until then. */
  readyMs?: number;
  /** Whether the pin was written before the pod was counted as ready again; undefined until there is a pin. */
  isPinnedFirst?: boolean;
}

/** The evictions of one protector's pods. */
export class UndecidedEvictions {
  readonly #cells: ReadonlyMap<string, CellTruth>;
  readonly #wanted: WantedPods;
  readonly #nowMs: () => number;
  readonly #byUid = new Map<string, Undecided>();

  constructor(cells: ReadonlyMap<string, CellTruth>, labels: WantedPods["labels"], nowMs: () => number) {
    this.#cells = cells;
    this.#wanted = { labels, minReadySeconds: 0 };
    this.#nowMs = nowMs;
  }

  /** The protector was written; `losses` are those of the cell, oldest first. */
  written(cell: CellStatus, losses: Iterable<{ readonly uid: string; readonly revision: number }>): void {
    const truth = this.#cells.get(cell.cellID);
    for (const [uid, revision] of new Map([...losses].map((loss) => [loss.uid, loss.revision]))) {
      const undecided = this.#of(truth, uid);
      if (undecided === undefined || undecided.isPinnedFirst !== undefined) continue;
      if (ledgerOf(cell).get(uid)?.records.has("EVICT") !== true) continue;
      undecided.isPinnedFirst = truth !== undefined && !this.#isCountedAgain(truth.pods, cell, uid, revision);
    }
  }

  /** True while the pod's eviction may rest on an older read. */
  has(cell: string, uid: string): boolean {
    return this.#of(this.#cells.get(cell), uid) !== undefined && !this.mustKnow(cell, uid);
  }

  /** True when the pod's eviction has to know that the pod is ready again. */
  mustKnow(cell: string, uid: string): boolean {
    const truth = this.#cells.get(cell);
    const undecided = this.#of(truth, uid);
    if (undecided === undefined || truth === undefined) return false;
    if (truth.pods.isAvailableNow(uid, this.#wanted, Number.POSITIVE_INFINITY)) undecided.readyMs ??= this.#nowMs();
    const { eviction, readyMs = Number.POSITIVE_INFINITY, isPinnedFirst } = undecided;
    if (!(isPinnedFirst ?? eviction.state === "asked")) return true;
    const { answeredMs = 0, key } = eviction;
    // A read that was the last thing before the response, and that was answered too early, may have been slow.
    const read = truth.podReads.get(key);
    const isByLateRead =
      read !== undefined && read.answeredMs <= readyMs && answeredMs - read.arrivedMs < RECENT_READ_MS;
    return answeredMs - readyMs > (isByLateRead ? MAX_REREAD_MS : RECENT_READ_MS);
  }

  #of(truth: CellTruth | undefined, uid: string): Undecided | undefined {
    const eviction = truth?.admission.evictionOf(uid);
    const known = this.#byUid.get(uid);
    if (known !== undefined && known.eviction === eviction) return known;
    if (eviction === undefined) this.#byUid.delete(uid);
    else this.#byUid.set(uid, { eviction });
    return this.#byUid.get(uid);
  }

  #isCountedAgain(pods: PodTruth, { aggregation }: CellStatus, uid: string, lostAt: number): boolean {
    const position = new Position(aggregation?.resourceVersion ?? "0");
    return position.of(uid) >= lostAt && pods.availableAt(position, this.#wanted, Number.POSITIVE_INFINITY).has(uid);
  }
}
