/**
 * Puts the restored entries of cells on hold after a restore of the core (docs/design.md#lost-history). The components
 * of a cell notice the restore by themselves, and hold their cell. No component does so for a cell that was removed or
 * renamed meanwhile, or that is cut off: the pods in its restored entry would count as spare. So the generator holds
 * it.
 */
import { encodeStatus } from "../../../shared/decide/state/encode-status.ts";
import { holdOf } from "../../../shared/decide/state/hold.ts";
import { parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { describeFailure } from "../../../shared/kube/client/api-result.ts";
import type { Informer } from "../../../shared/kube/informer/informer.ts";
import { DONE, failed, type Reconcile, runWorkers, type Workers } from "../../../shared/runtime/reconcile.ts";
import { WorkQueue } from "../../../shared/runtime/work-queue.ts";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import type { StepOptions } from "./steps.ts";

interface RestoredCellsOptions extends Pick<StepOptions, "ports" | "timeoutMs" | "onEvent"> {
  readonly api: Pick<ApiClient, "putPodProtectorStatus">;
  readonly protectors: Pick<Informer<PodProtector>, "get" | "values">;
  readonly workers: number;
  readonly mayWrite: () => boolean;
}

export class RestoredCells {
  readonly #options: RestoredCellsOptions;
  readonly #queue: WorkQueue;
  /** The counts of each cell as the core was restored to, by protector and cell. */
  readonly #restored = new Map<string, ReadonlyMap<string, string>>();

  constructor(options: RestoredCellsOptions) {
    this.#options = options;
    this.#queue = new WorkQueue({ name: "restored cells", ports: options.ports });
  }

  start(): Workers {
    const { workers, ports } = this.#options;
    return runWorkers(this.#queue, this.#hold, { workers, ports });
  }

  /** Some entries are not on hold yet. */
  get isUnfinished(): boolean {
    return this.#restored.size > 0;
  }

  /** The first list of a restored core has arrived. */
  restored(): void {
    for (const protector of this.#options.protectors.values()) {
      const key = namespacedName(protector.metadata);
      const cells = protector.status?.cells ?? [];
      this.#restored.set(key, new Map(cells.map(({ cellID, aggregation }) => [cellID, JSON.stringify(aggregation)])));
      this.#queue.add(key);
    }
  }

  readonly #hold: Reconcile<string> = async (key, { signal }) => {
    const { api, protectors, ports, timeoutMs, mayWrite, onEvent } = this.#options;
    const protector = protectors.get(key);
    const restored = this.#restored.get(key);
    if (restored === undefined || !mayWrite()) return DONE;
    if (protector === undefined) {
      this.#restored.delete(key);
      return DONE;
    }
    const state = parseProtector(protector);
    const held: string[] = [];
    for (const cell of state.cells.values()) {
      const { cellID, aggregation, isCounted, isOnHold } = cell;
      // An entry that has changed was written after the cell noticed the restore.
      if (!isCounted || isOnHold || aggregation === undefined) continue;
      if (restored.get(cellID) !== JSON.stringify(aggregation)) continue;
      const hold = holdOf("CoreRestored", ports.random.token(), ports.clock.nowMs());
      state.cells.set(cellID, { ...cell, aggregation: { ...aggregation, hold }, isOnHold: true });
      held.push(cellID);
    }
    if (held.length > 0) {
      const status = encodeStatus(state, protector.status);
      const result = await api.putPodProtectorStatus(protector.metadata, status, { timeoutMs, signal });
      if (result.kind !== "ok" && result.kind !== "gone") {
        const error = new Error(`hold the cells of a restored core: ${describeFailure(result)}`);
        onEvent({ kind: "failed", source: key, tag: result.kind, error });
        return failed(error, true);
      }
      onEvent({ kind: "cellsHeld", protector: key, cells: held });
    }
    this.#restored.delete(key);
    return DONE;
  };
}
