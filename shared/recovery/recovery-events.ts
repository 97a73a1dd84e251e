/** What an aggregator does about lost protectors, as events, and their metrics and log lines. */
import { type EventRow, limitLines, observeEvents } from "../observe/event-table.ts";
import { gaugeOf } from "../observe/gauge.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Clock } from "../runtime/clock.ts";
import type { LogLevel } from "../runtime/options/common-options.ts";

interface NamedProtector {
  readonly core: string;
  /** `namespace/name`. */
  readonly protector: string;
  readonly uid: string;
}

export type RecoveryEvent =
  /** `ended`: a protector made by hand is absent, which is its release. */
  | ({ readonly kind: "vanished" | "ended" | "recreated" } & NamedProtector)
  | ({ readonly kind: "recreateFailed"; readonly message: string } & NamedProtector)
  | { readonly kind: "copied"; readonly chunks: number; readonly protectors: number }
  | { readonly kind: "copyFailed"; readonly message: string }
  /** Stored backups that can't be read, each as `CONFIGMAP/KEY`: their protectors can't be restored from this cell. */
  | { readonly kind: "unreadable"; readonly keys: readonly string[] }
  /** A protector has no backup, because the chunks are full. */
  | { readonly kind: "noRoom"; readonly uid: string }
  | { readonly kind: "acknowledged"; readonly core: string; readonly version: string }
  | { readonly kind: "acknowledgeFailed"; readonly core: string; readonly message: string }
  /** The core has an older version than this cell has seen before. */
  | { readonly kind: "coreWentBack"; readonly core: string; readonly from: string; readonly to: string };

const KINDS = [
  "vanished",
  "ended",
  "recreated",
  "recreateFailed",
  "copied",
  "copyFailed",
  "unreadable",
  "noRoom",
  "acknowledged",
  "acknowledgeFailed",
  "coreWentBack",
] as const satisfies readonly RecoveryEvent["kind"][];

/** Why protectors may have no current backup, as values of a label. */
const TROUBLES = ["failing", "noRoom"] as const;
/** `failing`: 1 while the backups can't be read or written. `noRoom`: protectors that have none. */
export type BackupTrouble = Readonly<Record<(typeof TROUBLES)[number], number>>;

interface ShownBackups {
  readonly lost: number;
  readonly backups: number;
  readonly trouble: BackupTrouble | undefined;
}

/** A core without its CRD takes none of its protectors back, of which there may be thousands. */
const FAILURE_EVERY_MS = 10_000;
/** Unreadable backups that one line names. */
const MAX_NAMED = 10;

/** The `onEvent` of a backup keeper. */
export function observeRecovery(
  metrics: Metrics,
  log: Log,
  clock: Pick<Clock, "monotonicMs">,
): (event: RecoveryEvent) => void {
  const events = metrics.counter({
    name: "aggregator_backup_events_total",
    help: "What happened around lost protectors and the backups in this cell.",
    labels: { event: KINDS },
  });
  const limited = limitLines(clock, FAILURE_EVERY_MS);
  const row = (level: LogLevel, message: string): EventRow<RecoveryEvent> => {
    return { level, message, count: ({ kind }) => events.inc({ event: kind }) };
  };
  return observeEvents<RecoveryEvent>(
    { log },
    {
      vanished: row("error", "A protector vanished from its core without a release"),
      ended: row("warn", "A protector made by hand is gone from its core, and has ended"),
      recreated: row("warn", "A lost protector was restored from its backup"),
      recreateFailed: {
        ...row("error", "A lost protector can't be restored yet"),
        fields: ({ kind: _, ...fields }) => limited(fields.core, fields),
      },
      copied: row("debug", "Backups were written"),
      copyFailed: row("error", "This cell's backups can't be read or written"),
      unreadable: {
        level: "error",
        message: "Backups in this cell can't be read",
        fields: ({ keys }) => ({ keys: keys.slice(0, MAX_NAMED), more: Math.max(0, keys.length - MAX_NAMED) }),
        count: ({ keys }) => events.inc({ event: "unreadable" }, keys.length),
      },
      noRoom: row("error", "No room for the backup of a protector"),
      acknowledged: row("debug", "Releases were acknowledged"),
      acknowledgeFailed: row("warn", "Releases can't be acknowledged in a core"),
      coreWentBack: row("error", "A core is older than this cell has seen it"),
    },
  );
}

/** Declares the gauges of a backup keeper. */
export function recoveryMetrics(metrics: Metrics, keeper: ShownBackups, cell: string): void {
  gaugeOf(
    metrics,
    "aggregator_vanished_protectors",
    "Lost protectors of this cell that are not restored yet.",
    () => keeper.lost,
  );
  gaugeOf(metrics, "aggregator_backups", "Protectors that have a backup in this cell.", () => keeper.backups);
  metrics.gaugeFrom(
    {
      name: "aggregator_backup_trouble",
      help:
        "Backups in this cell that are not current. failing: 1 while they can't be read or written; noRoom: " +
        "protectors that have none. Absent on a standby.",
      labels: { cell: [cell], trouble: TROUBLES },
    },
    (set) => {
      const found = keeper.trouble;
      if (found !== undefined) for (const trouble of TROUBLES) set({ cell, trouble }, found[trouble]);
    },
  );
}
