/**
 * A cluster whose cell got another id is in the protectors under the old one: counted again, each pod would be two. So
 * a first count waits until the old entry is removed (docs/design.md#renamed-cells).
 */
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { EventSink } from "../observe/events.ts";
import type { TrackedProtector } from "./membership.ts";

export interface FormerCellsOptions {
  /** The ids that the cell had before; undefined while they are not read. */
  readonly ids: () => ReadonlySet<string> | undefined;
  readonly ports: Ports;
  readonly settleMs: number;
  readonly onEvent: EventSink;
}

/** A first count asks again this often; a change of its protector asks at once. */
const ASK_AGAIN_MS = 500;

/** One leadership. */
export class FormerCells {
  readonly #options: FormerCellsOptions;
  readonly #told = new Set<string>();
  readonly #sinceMs: number;

  constructor(options: FormerCellsOptions) {
    this.#options = options;
    this.#sinceMs = options.ports.clock.monotonicMs();
  }

  /**
   * Milliseconds until the protector may be counted for the first time, or until that is to be asked again; 0 is now.
   * What was admitted under an old id is on no record any more: the first count is of a settle period later.
   */
  firstCountInMs({ protector }: Pick<TrackedProtector, "protector">): number {
    const { ids, ports, settleMs, onEvent } = this.#options;
    const former = ids();
    if (former === undefined) return ASK_AGAIN_MS;
    const entries = (protector.status?.cells ?? []).filter(({ cellID }) => former.has(cellID));
    if (entries.length === 0) return 0;
    const counting = entries.find(({ aggregation }) => (aggregation?.totalReplicas ?? 0) > 0)?.cellID;
    if (counting === undefined) return Math.max(0, this.#sinceMs + settleMs - ports.clock.monotonicMs());
    if (!this.#told.has(counting)) onEvent({ kind: "renamed", formerCell: counting });
    this.#told.add(counting);
    return ASK_AGAIN_MS;
  }
}
