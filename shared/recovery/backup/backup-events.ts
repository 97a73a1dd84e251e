/** What happens around lost protectors, and how it shows. */

import { type EventRow, observeEvents } from "../../observe/event-table.ts";
import { gaugeOf } from "../../observe/gauge.ts";
import type { Log, LogLevel } from "../../observe/log.ts";
import type { Metrics } from "../../observe/metrics.ts";

interface Named {
  readonly core: string;
  /** `namespace/name`. */
  readonly protector: string;
  readonly uid: string;
}

export type BackupEvent =
  | ({ readonly kind: "vanished" | "recreated" } & Named)
  | ({ readonly kind: "recreateFailed"; readonly message: string } & Named)
  | { readonly kind: "copied"; readonly chunks: number; readonly protectors: number }
  | { readonly kind: "copyFailed"; readonly message: string }
  /** Not all protectors have a copy: there is no room for more. */
  | { readonly kind: "noRoom"; readonly uid: string }
  | { readonly kind: "acknowledged"; readonly core: string; readonly version: string }
  | { readonly kind: "acknowledgeFailed"; readonly core: string; readonly message: string }
  /** The core is older than this cell saw it before. */
  | { readonly kind: "coreWentBack"; readonly core: string; readonly from: string; readonly to: string };

const KINDS = [
  "vanished",
  "recreated",
  "recreateFailed",
  "copied",
  "copyFailed",
  "noRoom",
  "acknowledged",
  "acknowledgeFailed",
  "coreWentBack",
] as const satisfies readonly BackupEvent["kind"][];

/** The `onEvent` of a {@link BackupKeeper}. */
export function observeBackup(metrics: Metrics, log: Log): (event: BackupEvent) => void {
  const events = metrics.counter({
    name: "aggregator_outlive_events_total",
    help: "What happened around protectors that vanished, and their copies in this cell.",
    labels: { event: KINDS },
  });
  const row = (level: LogLevel, message: string): EventRow<BackupEvent> => {
    return { level, message, count: ({ kind }) => events.inc({ event: kind }) };
  };
  return observeEvents<BackupEvent>(
    { log },
    {
      vanished: row("error", "A protector vanished from its core without a release"),
      recreated: row("warn", "A protector that had vanished was created again from this cell's copy"),
      recreateFailed: row("error", "A protector that has vanished cannot be created again yet"),
      copied: row("debug", "Copies of protectors were written"),
      copyFailed: row("error", "The copies of protectors cannot be read or written in this cell"),
      noRoom: row("error", "There is no room for the copy of a protector"),
      acknowledged: row("debug", "Releases were acknowledged"),
      acknowledgeFailed: row("warn", "Releases cannot be acknowledged in a core"),
      coreWentBack: row("error", "A core is older than this cell has seen it"),
    },
  );
}

/** Declares the gauges of a backup keeper. */
export function backupMetrics(metrics: Metrics, keeper: { readonly lost: number; readonly copies: number }): void {
  gaugeOf(
    metrics,
    "aggregator_vanished_protectors",
    "Protectors of this cell that vanished and are not back yet.",
    () => keeper.lost,
  );
  gaugeOf(metrics, "aggregator_protector_copies", "Protectors that have a copy in this cell.", () => keeper.copies);
}
