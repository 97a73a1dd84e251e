/**
 * Metrics of the stored protectors of a core, read at each scrape. Every replica shows them, a standby too, and all
 * aggregators of a core show the same numbers: take the maximum.
 */
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { newestHeartbeats } from "./heartbeats.ts";

const CORE = { max: 100 };
const CELL = { max: 200 };
/**
 * Protectors of a core with their own series, for each trouble separately. In a large fleet, hundreds of protectors may
 * have no pod to spare. They must not hide a protector whose pods have vanished.
 */
const MAX_IN_TROUBLE = 500;
/** `MAX_IN_TROUBLE` bounds the series. */
const NAMES = { max: 100_000 };

/** What can be wrong with a protector, as values of a label. */
export const TROUBLES = [
  "belowMinimum",
  "selectorUnreadable",
  "disruptionImpossible",
  "noPodsMatched",
  "sourceVanished",
  "podsVanished",
  "cellStale",
  "notCounted",
] as const;
type Trouble = (typeof TROUBLES)[number];
/** Troubles that concern the owner of the workload. The others concern a cell, and all its protectors at once. */
const OWNERS_TROUBLES = [
  ...(["belowMinimum", "selectorUnreadable", "disruptionImpossible", "noPodsMatched"] as const),
  ...(["sourceVanished", "podsVanished"] as const),
] as const;

/** The troubles that a protector's conditions show. */
export function troublesOf({ status }: PodProtector): readonly Trouble[] {
  const found: Trouble[] = [];
  let counted = false;
  for (const { type, status: holds, reason } of status?.conditions ?? []) {
    if (type === "Healthy" && holds !== "Unknown") counted = true;
    if (type === "Healthy" && holds === "False" && reason === "TooFewAvailable") found.push("belowMinimum");
    if (type === "Healthy" && reason === "InvalidSelector") found.push("selectorUnreadable");
    if (type === "DisruptionImpossible" && holds === "True") found.push("disruptionImpossible");
    if (type === "NoPodsMatched" && holds === "True") found.push("noPodsMatched");
    if (type === "SourceVanished" && holds === "True") found.push("sourceVanished");
    if (type === "PodsVanished" && holds === "True") found.push("podsVanished");
    if (type === "CellStale" && holds === "True") found.push("cellStale");
  }
  return counted ? found : [...found, "notCounted"];
}

export function protectorMetrics(
  metrics: Metrics,
  cores: readonly string[],
  protectorsOf: (core: string) => Iterable<PodProtector>,
  clock: Pick<Clock, "nowMs">,
): void {
  metrics.gaugeFrom(
    {
      name: "protectors_in_trouble",
      help: "Protectors of a core by what is wrong with them; one may be in several kinds of trouble.",
      labels: { core: CORE, trouble: TROUBLES },
    },
    (set) => {
      for (const core of cores) {
        const counts = new Map<Trouble, number>(TROUBLES.map((trouble) => [trouble, 0]));
        for (const protector of protectorsOf(core)) {
          for (const trouble of troublesOf(protector)) counts.set(trouble, (counts.get(trouble) ?? 0) + 1);
        }
        for (const [trouble, count] of counts) set({ core, trouble }, count);
      }
    },
  );
  metrics.gaugeFrom(
    {
      name: "protector_trouble",
      help: "1 for each protector that its owner has to look after, up to 500 of each trouble; absent for all others.",
      labels: { core: CORE, namespace: NAMES, protector: NAMES, trouble: OWNERS_TROUBLES },
    },
    (set) => {
      for (const core of cores) {
        const shown = new Map<Trouble, number>();
        for (const one of protectorsOf(core)) {
          const { namespace = "", name: protector } = one.metadata;
          const troubles = troublesOf(one);
          for (const trouble of OWNERS_TROUBLES) {
            const before = shown.get(trouble) ?? 0;
            if (before >= MAX_IN_TROUBLE || !troubles.includes(trouble)) continue;
            shown.set(trouble, before + 1);
            set({ core, namespace, protector, trouble }, 1);
          }
        }
      }
    },
  );
  metrics.gaugeFrom(
    {
      name: "cell_heartbeat_age_seconds",
      help:
        "Time since the newest heartbeat that a cell's aggregator wrote; " +
        "negative when its clock is ahead of this process's.",
      labels: { core: CORE, cell: CELL },
    },
    (set) => {
      for (const core of cores) {
        for (const [cell, atMs] of newestHeartbeats(protectorsOf(core)))
          set({ core, cell }, (clock.nowMs() - atMs) / 1000);
      }
    },
  );
}
