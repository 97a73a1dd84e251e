/** Metrics and log lines of what happens around lost protectors. */
import type { Log } from "../../observe/log.ts";
import type { Metrics } from "../../observe/metrics.ts";
import type { BackupEvent } from "./backup-events.ts";
import type { BackupKeeper } from "./backup-keeper.ts";

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

const TEXTS: Readonly<Record<BackupEvent["kind"], readonly ["debug" | "info" | "warn" | "error", string]>> = {
  vanished: ["error", "A protector vanished from its core without a release"],
  recreated: ["warn", "A protector that had vanished was created again from this cell's copy"],
  recreateFailed: ["error", "A protector that has vanished cannot be created again yet"],
  copied: ["debug", "Copies of protectors were written"],
  copyFailed: ["error", "The copies of protectors cannot be read or written in this cell"],
  noRoom: ["error", "There is no room for the copy of a protector"],
  acknowledged: ["debug", "Releases were acknowledged"],
  acknowledgeFailed: ["warn", "Releases cannot be acknowledged in a core"],
  coreWentBack: ["error", "A core is older than this cell has seen it"],
};

export function observeBackup(metrics: Metrics, log: Log): (event: BackupEvent) => void {
  const events = metrics.counter({
    name: "aggregator_outlive_events_total",
    help: "What happened around protectors that vanished, and their copies in this cell.",
    labels: { event: KINDS },
  });
  return (event) => {
    const { kind, ...fields } = event;
    events.inc({ event: kind });
    const [level, text] = TEXTS[kind];
    log[level](fields, text);
  };
}

/** Gauges that are asked for at each scrape. */
export function backupMetrics(metrics: Metrics, outlive: BackupKeeper): void {
  metrics.gaugeFrom(
    { name: "aggregator_vanished_protectors", help: "Protectors of this cell that vanished and are not back yet." },
    (set) => set({}, outlive.lost),
  );
  metrics.gaugeFrom({ name: "aggregator_protector_copies", help: "Protectors that have a copy in this cell." }, (set) =>
    set({}, outlive.copies),
  );
}
