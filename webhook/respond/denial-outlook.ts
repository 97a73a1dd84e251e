/** What the state of a protector says of how long a denial lasts: for ever, or until somebody acts. */
import { parseMs } from "../../shared/schema/time.ts";
import type { Denial } from "../reserve/verdict.ts";

export interface DenialContext {
  /** Named in commands that the text recommends. */
  readonly ownNamespace: string;
  readonly hasSeveralCores: boolean;
  /** Wall clock, Unix milliseconds. */
  readonly nowMs: number;
}

/** An aggregator writes to each protector every two minutes (`--heartbeat-interval`), and at once when pods change. */
const SILENT_AFTER_MS = 150_000;

/** Names each aggregator of the protector that has written nothing for longer than it ever should. */
export function silenceIn(decision: Denial["decision"], { nowMs }: DenialContext): readonly string[] {
  if (decision.kind !== "denied" || decision.decision.cause === "PreActivity") return [];
  return [...(decision.version?.state.cells.values() ?? [])].flatMap(({ cellID, aggregation }) => {
    const heardMs = parseMs(aggregation?.heartbeatTime);
    if (heardMs === 0 || nowMs - heardMs < SILENT_AFTER_MS) return [];
    const seconds = Math.floor((nowMs - heardMs) / 1000);
    const silentFor = `${Math.floor(seconds / 60)}m${seconds % 60}s`;
    return [`the aggregator of ${cellID} has been silent for ${silentFor} (see PodseidonAggregatorDown)`];
  });
}

/** True where no more pods match than must be available. */
export function isImpossible(decision: Denial["decision"]): boolean {
  if (decision.kind !== "denied" || decision.decision.cause !== "AtMinimum" || decision.version === undefined)
    return false;
  const { spec, cells } = decision.version.state;
  let total = 0;
  for (const { aggregation } of cells.values()) total += aggregation?.totalReplicas ?? 0;
  return total > 0 && total <= spec.minAvailable;
}
