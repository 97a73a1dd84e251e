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
const PROTECTORS = { max: 100_000 };

/** What can be wrong with a protector, as values of a label. */
export const TROUBLES = ["belowMinimum", "disruptionImpossible", "noPodsMatched", "cellStale", "notCounted"] as const;
type Trouble = (typeof TROUBLES)[number];

/** The troubles that the conditions of its status show. */
export function troublesOf({ status }: PodProtector): readonly Trouble[] {
  const found: Trouble[] = [];
  let counted = false;
  for (const { type, status: holds, reason } of status?.conditions ?? []) {
    if (type === "Healthy" && holds !== "Unknown") counted = true;
    if (type === "Healthy" && holds === "False" && reason === "TooFewAvailable") found.push("belowMinimum");
    if (type === "DisruptionImpossible" && holds === "True") found.push("disruptionImpossible");
    if (type === "NoPodsMatched" && holds === "True") found.push("noPodsMatched");
    if (type === "CellStale" && holds === "True") found.push("cellStale");
  }
  return counted ? found : [...found, "notCounted"];
}

/** What {@link protectorNumbers} shows of a protector. */
const NUMBERS = ["required", "available", "estimated", "matched"] as const;
type PodNumbers = Readonly<Record<(typeof NUMBERS)[number], number>>;

/** As its status says, which is for people: no decision is made on it. */
function numbersOf({ spec, status }: PodProtector): PodNumbers {
  const { totalReplicas = 0, aggregatedAvailableReplicas = 0, estimatedAvailableReplicas = 0 } = status?.summary ?? {};
  return {
    ...{ required: spec.minAvailable, available: aggregatedAvailableReplicas },
    ...{ estimated: estimatedAvailableReplicas, matched: totalReplicas },
  };
}

const protectorHelp = "Pods of a protector; estimated are those that are available and not reserved.";
const fleetHelp = "Pods of all protectors of a core; estimated are those that are available and not reserved.";

/** Series for each protector where `isByProtector`, and the sums of each core. */
export function protectorNumbers(
  metrics: Metrics,
  cores: readonly string[],
  protectorsOf: (core: string) => Iterable<PodProtector>,
  isByProtector: boolean,
): void {
  if (isByProtector) {
    const labels = { core: CORE, namespace: PROTECTORS, protector: PROTECTORS, number: NUMBERS };
    metrics.gaugeFrom({ name: "protector_pods", help: protectorHelp, labels }, (set) => {
      for (const core of cores)
        for (const one of protectorsOf(core)) {
          const { namespace = "", name: protector } = one.metadata;
          const numbers = numbersOf(one);
          for (const number of NUMBERS) set({ core, namespace, protector, number }, numbers[number]);
        }
    });
  }
  const labels = { core: CORE, number: NUMBERS };
  metrics.gaugeFrom({ name: "fleet_pods", help: fleetHelp, labels }, (set) => {
    for (const core of cores) {
      const all = [...protectorsOf(core)].map(numbersOf);
      for (const number of NUMBERS)
        set(
          { core, number },
          all.reduce((sum, one) => sum + one[number], 0),
        );
    }
  });
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
