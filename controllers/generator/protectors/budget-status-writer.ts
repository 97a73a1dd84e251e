/**
 * Writes the status of budgets (docs/decisions/0013-who-writes-the-status-of-a-budget.md): only where no other manager
 * owns fields of the status, by compare-and-swap, and at most every {@link PAUSE_MS} for one budget.
 */
import { isDeepStrictEqual } from "node:util";
import * as v from "valibot";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import { DONE, later, type ReconcileOutcome } from "../../../shared/runtime/reconcile.ts";
import { checker } from "../../../shared/schema/check.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { type BudgetStatus, budgetStatus, storedStatus } from "../budgets/budget-status.ts";
import { collectionPath, type ProtectionSource } from "../sources/protection-source.ts";
import { failedCall, type StepContext } from "./steps.ts";

/** Changes of the counts within this time are written together. */
const PAUSE_MS = 2_000;
/** Time until the next read of a status that another manager owns, or that is not served. */
const OTHERS_MS = 60_000;
const FIELD_MANAGER = "podseidon-generator";

const parseManaged = checker(
  v.looseObject({
    metadata: v.looseObject({
      uid: v.string(),
      managedFields: v.optional(
        v.array(
          v.looseObject({
            manager: v.optional(v.string()),
            fieldsV1: v.optional(v.looseObject({ "f:status": v.optional(v.unknown()) })),
          }),
        ),
      ),
    }),
    status: v.optional(v.unknown()),
  }),
);
type ManagedBudget = ReturnType<typeof parseManaged>;

interface Pause {
  /** Monotonic. */
  readonly untilMs: number;
  /** Another manager owns the status. */
  readonly isOthers: boolean;
}

export class BudgetStatusWriter {
  readonly #clock: Pick<Clock, "monotonicMs">;
  /**
   * By the budget's key: when its status may be written again. One entry for each budget whose status was once out of
   * date.
   */
  readonly #pauses = new Map<string, Pause>();

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  /** The source is gone. */
  forget(key: string): void {
    this.#pauses.delete(key);
  }

  /** Removes the status that this generator has written: an unprotected budget must not show old numbers. */
  async clear(context: StepContext, source: ProtectionSource): Promise<void> {
    if (source.budgetStatus?.stored === undefined) return;
    // After a failure, it is tried each time: once the budget has lost its finalizer, nobody comes back to it.
    if (this.#pauses.get(context.key)?.isOthers === true && this.#waitMs(context.key, source) > 0) return;
    await this.#swap(context, source, undefined);
  }

  /**
   * Writes the counts of the protector to the status of its source. Returns `later` where the write has to wait. A
   * failure is reported; nothing else depends on the write.
   */
  async show(context: StepContext, source: ProtectionSource, protector: PodProtector): Promise<ReconcileOutcome> {
    const { generation, stored } = source.budgetStatus ?? {};
    if (generation === undefined) return DONE;
    const wanted = budgetStatus(generation, protector, source.protectors[0]?.expectedPods);
    if (wanted === undefined || isDeepStrictEqual(storedStatus(stored), wanted)) return DONE;
    const waitMs = this.#waitMs(context.key, source);
    if (waitMs > 0) return later(waitMs);
    return await this.#swap(context, source, wanted);
  }

  #waitMs(key: string, { budgetStatus: status }: ProtectionSource): number {
    const pause = this.#pauses.get(key);
    // An empty status has no manager: an operator has removed another manager's status.
    if (pause === undefined || (pause.isOthers && status?.stored === undefined)) return 0;
    return pause.untilMs - this.#clock.monotonicMs();
  }

  async #swap(context: StepContext, source: ProtectionSource, wanted: BudgetStatus | undefined) {
    const { calls, key, kind, options } = context;
    const path = `${collectionPath(kind, source.namespace)}/${source.name}`;
    const read = await calls.api.get(path, parseManaged, { ...calls, managedFields: true });
    if (read.kind === "gone") return DONE;
    if (read.kind !== "ok") return this.#failed(context, read, "read the status of the budget");
    const { object } = read;
    if (object.metadata.uid !== source.uid) return DONE;
    const manager = otherManagerOf(object);
    if (manager !== undefined) {
      if (this.#pauses.get(key)?.isOthers !== true) options.onEvent({ kind: "statusLeft", source: key, manager });
      this.#pause(key, OTHERS_MS, true);
      return DONE;
    }
    this.#pause(key, PAUSE_MS);
    if (wanted === undefined && object.status === undefined) return DONE;
    const body = { ...object, status: wanted };
    const write = { ...calls, fieldManager: FIELD_MANAGER };
    const written = await calls.api.update(`${path}/status`, body, () => undefined, write);
    if (written.kind === "ok") options.onEvent({ kind: "statusWritten", source: key });
    if (written.kind === "ok" || written.kind === "gone") return DONE;
    if (written.kind === "conflict") return later(PAUSE_MS);
    // The kind has no status subresource.
    if (written.kind === "unavailable" && written.status === 404) {
      this.#pause(key, OTHERS_MS);
      return DONE;
    }
    return this.#failed(context, written, "write the status of the budget");
  }

  /**
   * The role of an older version lacks the permission. The write is repeated at the same interval as for a foreign
   * status.
   */
  #failed(context: StepContext, failure: ApiFailure, what: string): ReconcileOutcome {
    failedCall(context, failure, what);
    this.#pause(context.key, OTHERS_MS);
    return later(OTHERS_MS);
  }

  #pause(key: string, forMs: number, isOthers = false): void {
    this.#pauses.set(key, { untilMs: this.#clock.monotonicMs() + forMs, isOthers });
  }
}

/** The manager that has written fields of the status, such as OpenKruise's while it runs. */
function otherManagerOf({ metadata: { managedFields = [] } }: ManagedBudget): string | undefined {
  const others = managedFields.find(
    ({ manager, fieldsV1 }) => manager !== FIELD_MANAGER && fieldsV1?.["f:status"] !== undefined,
  );
  return others && (others.manager ?? "unknown");
}
