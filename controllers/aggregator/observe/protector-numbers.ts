/**
 * The numbers of pods of the stored protectors, from `status.summary`: of each protector, if configured, and of all
 * protectors of a core. The summary is for people; no decision uses it. All aggregators of a core show the same.
 */
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";

const CORE = { max: 100 };
const PROTECTORS = { max: 100_000 };

/** The values of the label `number`. */
const PROMISED = ["required", "available", "estimated", "reserved", "matched"] as const;
const NUMBERS = [...PROMISED, "scheduled", "running", "ready"] as const;
type PodNumbers = Readonly<Record<(typeof NUMBERS)[number], number>>;

/** How far protectors of a core keep what they promise, as values of a label. */
const FLEET = ["all", "requiringPods", "withEnoughPods", "withEnoughAvailable"] as const;

function numbersOf({ spec, status }: PodProtector): PodNumbers {
  const { totalReplicas = 0, aggregatedAvailableReplicas: available = 0 } = status?.summary ?? {};
  const estimated = status?.summary?.estimatedAvailableReplicas ?? 0;
  const reserved = Math.max(0, available - estimated);
  const { aggregatedReady: ready = 0, aggregatedRunning: running = 0 } = status?.summary ?? {};
  const { aggregatedScheduled: scheduled = 0 } = status?.summary ?? {};
  return {
    required: spec.minAvailable,
    available,
    estimated,
    reserved,
    matched: totalReplicas,
    ready,
    running,
    scheduled,
  };
}

const protectorHelp =
  "Pods of a protector (--protector-metrics); reserved are available and not estimated to be, because a disruption " +
  "was admitted or their cell is on hold.";
const fleetHelp = "Pods of all protectors of a core, as podseidon_protector_pods has them of each.";

interface ProtectorNumbers {
  readonly cores: readonly string[];
  readonly protectorsOf: (core: string) => Iterable<PodProtector>;
  /** Series for each protector. */
  readonly isByProtector: boolean;
  /** Keys of labels of protectors that their series `protector_labels` shows. */
  readonly labels: readonly string[];
}

export function protectorNumbers(metrics: Metrics, { cores, protectorsOf, isByProtector, labels }: ProtectorNumbers) {
  const each = (core: string): PodNumbers[] => [...protectorsOf(core)].map(numbersOf);
  const ofEach = { core: CORE, namespace: PROTECTORS, protector: PROTECTORS };
  if (isByProtector) {
    metrics.gaugeFrom(
      { name: "protector_pods", help: protectorHelp, labels: { ...ofEach, number: NUMBERS } },
      (set) => {
        for (const core of cores)
          for (const one of protectorsOf(core)) {
            const { namespace = "", name: protector } = one.metadata;
            const numbers = numbersOf(one);
            for (const number of NUMBERS) set({ core, namespace, protector, number }, numbers[number]);
          }
      },
    );
  }
  if (labels.length > 0) showLabels(metrics, cores, protectorsOf, labels);
  metrics.gaugeFrom({ name: "fleet_pods", help: fleetHelp, labels: { core: CORE, number: NUMBERS } }, (set) => {
    for (const core of cores) {
      const all = each(core);
      for (const number of NUMBERS) set({ core, number }, sum(all.map((one) => one[number])));
    }
  });
  metrics.gaugeFrom(
    {
      name: "fleet_protectors",
      help: "Protectors of a core: all, those that require pods, and those with as many, or as many available.",
      labels: { core: CORE, which: FLEET },
    },
    (set) => {
      for (const core of cores) {
        const all = each(core);
        const count = (holds: (one: PodNumbers) => boolean): number => all.filter(holds).length;
        set({ core, which: "all" }, all.length);
        set(
          { core, which: "requiringPods" },
          count(({ required }) => required > 0),
        );
        set(
          { core, which: "withEnoughPods" },
          count(({ required, matched }) => matched >= required),
        );
        set(
          { core, which: "withEnoughAvailable" },
          count(({ required, available }) => available >= required),
        );
      }
    },
  );
  metrics.gaugeFrom(
    {
      name: "fleet_available_ratio",
      help: "Available of required pods, at most 1, on average over the protectors of a core that require pods.",
      labels: { core: CORE },
    },
    (set) => {
      for (const core of cores) {
        const ratios = each(core).flatMap(({ required, available }) =>
          required > 0 ? [Math.min(1, available / required)] : [],
        );
        if (ratios.length > 0) set({ core }, sum(ratios) / ratios.length);
      }
    },
  );
}

/** Shows labels like kube-state-metrics does: as a series of value 1, for joins with other series. */
function showLabels(
  metrics: Metrics,
  cores: readonly string[],
  protectorsOf: (core: string) => Iterable<PodProtector>,
  keys: readonly string[],
): void {
  const shown = new Map(keys.map((key) => [`label_${key.replace(/[^a-zA-Z0-9_]/g, "_")}`, key]));
  const values = Object.fromEntries([...shown.keys()].map((label) => [label, PROTECTORS]));
  const labels = { core: CORE, namespace: PROTECTORS, protector: PROTECTORS, ...values };
  const help = "Always 1: labels of a protector (--metric-labels), as kube-state-metrics has them.";
  metrics.gaugeFrom({ name: "protector_labels", help, labels }, (set) => {
    for (const core of cores)
      for (const { metadata } of protectorsOf(core)) {
        const { namespace = "", name: protector, labels: own = {} } = metadata;
        const found = Object.fromEntries([...shown].map(([label, key]) => [label, own[key] ?? ""]));
        set({ core, namespace, protector, ...found }, 1);
      }
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
