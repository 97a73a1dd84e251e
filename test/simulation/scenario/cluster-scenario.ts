/** Worlds with more around the pods than one configuration and two protectors, drawn from randomness of its own. */
import type { FeatureChoice } from "./features.ts";
import { Chance } from "./random.ts";
import type { ProtectorPlan, Scenario } from "./scenario.ts";

/** Mean times between two events of a kind, in virtual milliseconds; 0: the feature is absent. */
export interface ClusterFeatures {
  /** A static and an API webhook configuration, so that each admission request is reviewed twice. */
  readonly isReviewedTwice: boolean;
  /** Protectors come near etcd's limit, and writes of them are refused. */
  readonly tooLargeEveryMs: number;
  /** A workload controller wants to delete a pod, and repeats that after longer and longer pauses. */
  readonly backoffEveryMs: number;
  /** Kubelets create the mirrors of static pods. */
  readonly mirrorEveryMs: number;
}

export const CLUSTER_KINDS = ["crowded", "reviewedTwice", "tooLarge", "backoff", "mirror"] as const;
type ClusterKind = (typeof CLUSTER_KINDS)[number];

export const NO_CLUSTER: ClusterFeatures = {
  ...{ isReviewedTwice: false, tooLargeEveryMs: 0, backoffEveryMs: 0, mirrorEveryMs: 0 },
};

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x0c1a57e;
const PROBABILITY = 0.1;
const EVERY_MS = 20_000;

/** Accidents keep the worlds that show the worth of the rules: there only `--with` adds a feature. */
export function withCluster(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const { accidentsEveryMs, generatorEveryMs } = drawn.features;
  const has = (kind: ClusterKind): boolean => {
    const isDrawn = chance.chance(PROBABILITY) && accidentsEveryMs === 0;
    return !without.has(kind) && (isDrawn || always.has(kind));
  };
  const every = (kind: ClusterKind): number => {
    const drawnMs = EVERY_MS * (0.5 + chance.fraction());
    return has(kind) ? drawnMs : 0;
  };
  const cluster = {
    isReviewedTwice: has("reviewedTwice"),
    ...{ tooLargeEveryMs: every("tooLarge"), backoffEveryMs: every("backoff"), mirrorEveryMs: every("mirror") },
  };
  const isCrowded = has("crowded") && generatorEveryMs === 0;
  const added = isCrowded ? addedProtectors(drawn.protectors, chance) : [];
  return { ...drawn, protectors: [...drawn.protectors, ...added], features: { ...drawn.features, cluster } };
}

/** So that there are three or four, in the cores of the others. */
function addedProtectors(plans: readonly ProtectorPlan[], chance: Chance): ProtectorPlan[] {
  const missing = chance.between(3, 4) - plans.length;
  return Array.from({ length: missing }, (_, index) => {
    const { minAvailable, ...plan } = chance.pick(plans);
    return { ...plan, name: `web-also-${index}`, minAvailable: Math.max(1, minAvailable - chance.between(0, 2)) };
  });
}
