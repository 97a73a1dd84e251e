import type { Summary } from "../../schema/podprotector.ts";
import { parseMs } from "../time.ts";
import type { CellState, ProtectorState } from "./cell-state.ts";
import { estimate } from "./estimate.ts";

const INT32_MAX = 2_147_483_647;

/**
 * `status.summary` as webhook and aggregator both write it (design 4), for people and dashboards; decisions never read it.
 * Unknown fields of `previous` are kept.
 */
export function summarize(state: ProtectorState, previous: Summary | undefined, _nowMs: number): Summary {
  const { counted, estimated, reserved } = estimate(state);
  const { minAvailable, maxConcurrentLag } = state.spec;
  const lagLeft = maxConcurrentLag === undefined ? INT32_MAX : maxConcurrentLag - reserved;
  let total = 0;
  let maxLatencyMillis = 0;
  for (const cell of state.cells.values()) {
    total += cell.aggregation?.totalReplicas ?? 0;
    maxLatencyMillis = Math.max(maxLatencyMillis, latencyMs(cell));
  }
  return {
    ...previous,
    totalReplicas: int32(total),
    aggregatedAvailableReplicas: int32(counted),
    estimatedAvailableReplicas: int32(estimated),
    maxLatencyMillis,
    aggregatedReady: int32(estimate(state, "Ready").counted),
    aggregatedScheduled: int32(estimate(state, "Scheduled").counted),
    aggregatedRunning: int32(estimate(state, "Running").counted),
    disruptionsAllowed: int32(Math.min(estimated - minAvailable, lagLeft)),
  };
}

/** Milliseconds from the cell's last counted event to its newest reservation; 0 without one, or without an event. */
function latencyMs({ aggregation, ledger }: CellState): number {
  const lastEventMs = parseMs(aggregation?.lastEventTime);
  if (lastEventMs === 0) return 0;
  let newestMicros = 0;
  for (const { records } of ledger.reservations()) {
    for (const { startMicros } of records.values()) newestMicros = Math.max(newestMicros, startMicros);
  }
  for (const { endMicros } of ledger.ranges) newestMicros = Math.max(newestMicros, endMicros);
  return Math.max(0, Math.floor(newestMicros / 1000) - lastEventMs);
}

function int32(value: number): number {
  return Math.min(Math.max(0, value), INT32_MAX);
}
