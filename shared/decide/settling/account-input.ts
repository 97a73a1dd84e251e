/** What the aggregator's update of one entry is made from (design 5.2): plain data. */
import type { Pod } from "../../schema/pod.ts";
import type { CellStatus } from "../../schema/podprotector.ts";
import type { SpecFacts } from "../availability/spec-facts.ts";
import type { SeenTimes } from "./first-seen.ts";
import type { HistoryVerdict } from "./lost-history.ts";
import type { CellSnapshot, Evidence } from "./settle.ts";

export const SYNC_TIME_ALGORITHMS = ["exact", "clock", "status"] as const;
/** `--sync-time-algorithm` (design 5.6). */
export type SyncTimeAlgorithm = (typeof SYNC_TIME_ALGORITHMS)[number];

export interface AccountInput {
  readonly spec: SpecFacts;
  readonly cellID: string;
  readonly stored: CellStatus | undefined;
  readonly snapshot: CellSnapshot;
  /** The pods of the snapshot that match the aggregation selector. */
  readonly pods: Iterable<Pod>;
  /** From `judgeHistory`, on the same stored entry. */
  readonly history: HistoryVerdict;
  /** The highest epoch that the snapshot is newer than: a quorum list was taken after it had been seen (design 5.4). */
  readonly adoptedEpoch: number;
  /** Wall clock, Unix milliseconds, for maturity and for times that people read. */
  readonly nowMs: number;
  /** Monotonic milliseconds of this process. */
  readonly monotonicMs: number;
  readonly settleMs: number;
  /** Of this protector and cell; remembers the admissions that are met here. */
  readonly seen: SeenTimes;
  readonly evidence: Evidence;
  readonly algorithm: SyncTimeAlgorithm;
  /** Wall clock of the last event, Unix milliseconds: by its receipt (`exact`, `clock`) or by the pod's own times (`status`). */
  readonly lastEventMs: number;
  readonly isHeartbeatDue: boolean;
}
