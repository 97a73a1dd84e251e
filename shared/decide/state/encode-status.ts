/** The status to write, for both webhook and aggregator. */
import type { CellStatus, PodProtectorStatus, Summary } from "../../schema/podprotector.ts";
import { parseMs } from "../../schema/time.ts";
import { INT32_MAX, podCount } from "../minimum/workload-minimum.ts";
import { estimate } from "./estimate.ts";
import type { CellState, ProtectorState } from "./protector-state.ts";

/** Encodes cells whose history has changed; everything else stays unchanged, including unknown fields. */
export function encodeStatus(state: ProtectorState, previous: PodProtectorStatus | undefined): PodProtectorStatus {
  const cells = [...state.cells.values()].map((cell) => encodeCell(cell, state.spec.compactThreshold));
  return { ...previous, cells, summary: summarize(state, previous?.summary) };
}

function encodeCell(cell: CellState, compactThreshold: number): CellStatus {
  const { stored, ledger, aggregation } = cell;
  if (stored !== undefined && !ledger.changed && aggregation === (stored.aggregation ?? undefined)) return stored;
  const buckets = ledger.changed ? ledger.encode(compactThreshold) : (stored?.admissionHistory?.buckets ?? []);
  return {
    ...stored,
    cellID: cell.cellID,
    ...(aggregation === undefined ? {} : { aggregation }),
    admissionHistory: { ...stored?.admissionHistory, buckets },
  };
}

/** `status.summary`, for people and dashboards; no decision reads it. Unknown fields of `previous` are kept. */
export function summarize(state: ProtectorState, previous: Summary | undefined): Summary {
  const { available, estimated, reserved } = estimate(state);
  const { minAvailable, maxConcurrentLag } = state.spec;
  const lagLeft = maxConcurrentLag === undefined ? INT32_MAX : maxConcurrentLag - reserved;
  const sums = { total: 0, ready: 0, scheduled: 0, running: 0 };
  let maxLatencyMillis = 0;
  for (const cell of state.cells.values()) {
    const { aggregation } = cell;
    sums.total += aggregation?.totalReplicas ?? 0;
    sums.ready += Math.max(0, aggregation?.readyReplicas ?? 0);
    sums.scheduled += Math.max(0, aggregation?.scheduledReplicas ?? 0);
    sums.running += Math.max(0, aggregation?.runningReplicas ?? 0);
    maxLatencyMillis = Math.max(maxLatencyMillis, latencyMs(cell));
  }
  return {
    ...previous,
    totalReplicas: podCount(sums.total),
    aggregatedAvailableReplicas: podCount(available),
    estimatedAvailableReplicas: podCount(estimated),
    maxLatencyMillis,
    aggregatedReady: podCount(sums.ready),
    aggregatedScheduled: podCount(sums.scheduled),
    aggregatedRunning: podCount(sums.running),
    disruptionsAllowed: podCount(Math.min(estimated - minAvailable, lagLeft)),
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
