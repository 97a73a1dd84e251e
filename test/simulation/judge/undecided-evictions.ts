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
  readonly #known = new WeakMap<InFlightRequest, Undecided>();

  constructor(cells: ReadonlyMap<string, CellTruth>, labels: WantedPods["labels"], nowMs: () => number) {
    this.#cells = cells;
    this.#wanted = { labels, minReadySeconds: 0 };
    this.#nowMs = nowMs;
  }

  /** The protector was written; `losses` are those of the cell, oldest first. */
  written(cell: CellStatus, losses: Iterable<{ readonly uid: string; readonly revision: number }>): void {
    const truth = this.#cells.get(cell.cellID);
    for (const [uid, revision] of new Map([...losses].map((loss) => [loss.uid, loss.revision]))) {
      if (truth === undefined || ledgerOf(cell).get(uid)?.records.has("EVICT") !== true) continue;
      for (const undecided of this.#of(truth, uid))
        undecided.isPinnedFirst ??= !this.#isCountedAgain(truth.pods, cell, uid, revision);
    }
  }

  /** True while an eviction of the pod may rest on an older read. */
  has(cell: string, uid: string): boolean {
    const truth = this.#cells.get(cell);
    return truth !== undefined && this.#of(truth, uid).length > 0 && !this.mustKnow(cell, uid);
  }

  /** True when each eviction of the pod has to know that the pod is ready again; false without one. */
  mustKnow(cell: string, uid: string): boolean {
    const truth = this.#cells.get(cell);
    if (truth === undefined) return false;
    const all = this.#of(truth, uid);
    if (truth.pods.isAvailableNow(uid, this.#wanted, Number.POSITIVE_INFINITY))
      for (const undecided of all) undecided.readyMs ??= this.#nowMs();
    return all.length > 0 && all.every((undecided) => this.#knows(truth, undecided));
  }

  #knows(truth: CellTruth, undecided: Undecided): boolean {
    const { eviction, readyMs = Number.POSITIVE_INFINITY, isPinnedFirst } = undecided;
    if (!(isPinnedFirst ?? eviction.state === "asked")) return true;
    const { answeredMs = 0, key } = eviction;
    // A read that was the last thing before the response, and that was answered too early, may have been slow.
    const read = truth.podReads.get(key);
    const isByLateRead =
      read !== undefined && read.answeredMs <= readyMs && answeredMs - read.arrivedMs < RECENT_READ_MS;
    return answeredMs - readyMs > (isByLateRead ? MAX_REREAD_MS : RECENT_READ_MS);
  }

  /** Several may be under way: whoever drains a node asks again while an allowed one is not committed yet. */
  #of(truth: CellTruth, uid: string): Undecided[] {
    return truth.admission.evictionsOf(uid).map((eviction) => {
      const known = this.#known.get(eviction) ?? { eviction };
      this.#known.set(eviction, known);
      return known;
    });
  }

  #isCountedAgain(pods: PodTruth, { aggregation }: CellStatus, uid: string, lostAt: number): boolean {
    const position = new Position(aggregation?.resourceVersion ?? "0");
    return position.of(uid) >= lostAt && pods.availableAt(position, this.#wanted, Number.POSITIVE_INFINITY).has(uid);
  }
}
