/**
 * What some worlds have beside deletions. A feature is drawn from the seed after everything else, so that the worlds
 * without it stay the same when it is added.
 */

import type { HealthCriterion } from "../../../shared/schema/podprotector.ts";
import { CLUSTER_KINDS, type ClusterFeatures, NO_CLUSTER } from "./cluster-scenario.ts";
import { HABITS, type Habit } from "./habits.ts";
import type { Chance } from "./random.ts";

/** Mean times between two events of a kind, in virtual milliseconds; 0: the feature is absent. */
export interface Features {
  readonly suspendEveryMs: number;
  readonly terminateEveryMs: number;
  /** Pods change in place, in each cell. */
  readonly inPlaceEveryMs: number;
  /** The owner that the first protector probes changes its behaviour; 0: no protector has a probe. */
  readonly probeEveryMs: number;
  /** Pods get a pre-activity annotation, and are held back until it goes. */
  readonly preActivityEveryMs: number;
  /** Ready pods lose a condition that the protectors require; 0: they require none. */
  readonly conditionEveryMs: number;
  /** Pods lose the counted condition; 0: new pods have no counted gate. */
  readonly countedGateEveryMs: number;
  /** Faults of a Deployment and of the protector that the generator makes from it; 0: protectors are made by hand. */
  readonly generatorEveryMs: number;
  /**
   * Protectors are lost whose backups the cells keep; 0: there are no backups, and a replica knows of lost protectors
   * only what it has seen.
   */
  readonly backupsEveryMs: number;
  /** Replicas deny nothing (`--dry-run`). */
  readonly isDryRunMode: boolean;
  /**
   * In how many streams aggregators watch the pods of a cell, unless an aggregator starts with another number
   * (`--pod-shards`).
   */
  readonly shards: number;
  /** Faults of one of these streams; 0: there is one stream. */
  readonly shardsEveryMs: number;
  /** Taint eviction deletes as the real one does: it tries five times, and its client obeys Retry-After. */
  readonly isTaintEvictionReal: boolean;
  /** Nodes are deleted, in each cell, and their pods collected. */
  readonly nodesEveryMs: number;
  /** Nodes die and come back, so that node-lifecycle writes pods' Ready. */
  readonly deadNodeEveryMs: number;
  /** Pods say what can't be read. */
  readonly oddPodEveryMs: number;
  /** Pods get the labels of another application for a while. */
  readonly relabelEveryMs: number;
  /** What the protectors count, in their order; those beyond count available pods. */
  readonly criteria: readonly HealthCriterion[];
  readonly cluster: ClusterFeatures;
  readonly habits: ReadonlySet<Habit>;
  /** From the end of one accident to the next; 0: there are no accidents. */
  readonly accidentsEveryMs: number;
  /** Only accidents that change no spec and lose no history. */
  readonly isSteady: boolean;
}

export const FEATURE_KINDS = [
  "suspend",
  "terminate",
  "dryRunMode",
  "inPlace",
  "probe",
  "preActivity",
  "condition",
  "countedGate",
  "generator",
  "shards",
  "backups",
  "accidents",
  "taintEviction",
  "nodes",
  "deadNode",
  "oddPod",
  "relabel",
  "criterion",
  ...CLUSTER_KINDS,
  ...HABITS,
] as const;
export type FeatureKind = (typeof FEATURE_KINDS)[number];

export function isFeature(name: string): name is FeatureKind {
  return FEATURE_KINDS.some((kind) => kind === name);
}

export interface FeatureChoice {
  readonly without: ReadonlySet<string>;
  /** Features of every world. */
  readonly always: ReadonlySet<string>;
}

export const NO_FEATURES: Features = {
  ...{
    suspendEveryMs: 0,
    terminateEveryMs: 0,
    inPlaceEveryMs: 0,
    probeEveryMs: 0,
    preActivityEveryMs: 0,
    conditionEveryMs: 0,
  },
  ...{
    countedGateEveryMs: 0,
    generatorEveryMs: 0,
    backupsEveryMs: 0,
    isDryRunMode: false,
    isTaintEvictionReal: false,
    shards: 1,
    shardsEveryMs: 0,
  },
  ...{ deadNodeEveryMs: 0, oddPodEveryMs: 0, relabelEveryMs: 0, criteria: [], habits: new Set<Habit>() },
  ...{ accidentsEveryMs: 0, isSteady: true, nodesEveryMs: 0, cluster: NO_CLUSTER },
};

/** Numbers of shards. Four are rarer, because each shard then has few pods. */
const SHARDS = [2, 2, 4] as const;
export const MOST_SHARDS = Math.max(...SHARDS);

export function drawFeatures(chance: Chance, { without, always }: FeatureChoice): Features {
  // Everything is drawn before anything is left out, so that the rest stays the same.
  const has = (kind: FeatureKind, probability: number): boolean => {
    const isDrawn = chance.chance(probability);
    return !without.has(kind) && (isDrawn || always.has(kind));
  };
  const every = (kind: FeatureKind, meanMs: number, probability: number): number => {
    const drawnMs = meanMs * (0.5 + chance.fraction());
    return has(kind, probability) ? drawnMs : 0;
  };
  const drawn: Features = {
    // Those that are not drawn here have randomness of their own: `backup-scenario.ts` and others.
    ...NO_FEATURES,
    suspendEveryMs: every("suspend", 50_000, 0.15),
    terminateEveryMs: every("terminate", 150_000, 0.1),
    isDryRunMode: has("dryRunMode", 0.04),
    inPlaceEveryMs: every("inPlace", 12_000, 0.12),
    probeEveryMs: every("probe", 25_000, 0.12),
    preActivityEveryMs: every("preActivity", 8_000, 0.1),
    conditionEveryMs: every("condition", 8_000, 0.1),
    countedGateEveryMs: every("countedGate", 20_000, 0.12),
    generatorEveryMs: every("generator", 15_000, 0.08),
    shardsEveryMs: every("shards", 12_000, 0.12),
    shards: chance.pick(SHARDS),
  };
  const { generatorEveryMs, shardsEveryMs } = drawn;
  const sharded = { shardsEveryMs, shards: shardsEveryMs > 0 ? drawn.shards : 1 };
  // The generator alone decides what its protector asks for.
  return generatorEveryMs > 0 ? { ...NO_FEATURES, generatorEveryMs, ...sharded } : { ...drawn, ...sharded };
}
