/**
 * The protectors with a reservation that does not settle, or with a history that can't be read, by name, so that an
 * alert reaches the team that owns them.
 */
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import type { Aggregator } from "../aggregator.ts";
import type { CoreReconciler } from "../settling/core-reconciler.ts";

const CORE = { max: 100 };
/** Four settle periods: an older reservation needs somebody to act. */
const STUCK_AFTER_MS = 300_000;
/** Protectors with such a reservation that have their own series. */
const STUCK = { max: 200 };

export function stuckReservations(metrics: Metrics, aggregator: Aggregator, clock: Clock): void {
  metrics.gaugeFrom(
    {
      name: "aggregator_stuck_reservation_seconds",
      help:
        "Time since this leader first saw the oldest reservation of a protector, where that is more than five " +
        "minutes; up to 200 protectors.",
      labels: { core: CORE, namespace: STUCK, protector: STUCK },
    },
    (set) => {
      for (const [core, reconciler] of aggregator.coreReconcilers)
        for (const { namespace, name, ageMs } of stuckIn(reconciler, clock.monotonicMs()))
          set({ core, namespace, protector: name }, ageMs / 1000);
    },
  );
  metrics.gaugeFrom(
    {
      name: "aggregator_unreadable_history",
      help: "1 for each protector with packed admission history that can't be read; up to 200 protectors.",
      labels: { core: CORE, namespace: STUCK, protector: STUCK },
    },
    (set) => {
      for (const [core, reconciler] of aggregator.coreReconcilers)
        for (const [{ id }, { unreadableBuckets }] of reconciler.states())
          if (unreadableBuckets > 0) set({ core, namespace: id.namespace, protector: id.name }, 1);
    },
  );
}

function* stuckIn(reconciler: CoreReconciler, nowMs: number) {
  let shown = 0;
  for (const [{ id }, { pending }] of reconciler.states()) {
    const ageMs = pending.reduce((oldest, { firstSeenMs }) => Math.max(oldest, nowMs - firstSeenMs), 0);
    if (ageMs <= STUCK_AFTER_MS) continue;
    if (++shown > STUCK.max) return;
    yield { namespace: id.namespace, name: id.name, ageMs };
  }
}
