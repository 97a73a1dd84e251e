/** Worlds in which Kubernetes does more to pods than to delete them, drawn from randomness of its own. */
import type { FeatureChoice, FeatureKind } from "./features.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x0b0d5;
const DEAD_NODE_EVERY_MS = 30_000;
const ODD_POD_EVERY_MS = 15_000;
const RELABEL_EVERY_MS = 20_000;
const PROBABILITY = 0.15;
const CRITERIA = ["Available", "Ready", "Running", "Running"] as const;
/** A dead node matters most to pods with the counted gate. */
const GATED_PROBABILITY = 0.6;

export function withPodTrouble(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const { features } = drawn;
  const every = (kind: FeatureKind, meanMs: number, probability: number): number => {
    const isDrawn = chance.chance(probability);
    const drawnMs = meanMs * (0.5 + chance.fraction());
    return !without.has(kind) && (isDrawn || always.has(kind)) ? drawnMs : 0;
  };
  const deadNodeProbability = features.countedGateEveryMs > 0 ? GATED_PROBABILITY : PROBABILITY;
  const deadNodeEveryMs = every("deadNode", DEAD_NODE_EVERY_MS, deadNodeProbability);
  const oddPodEveryMs = every("oddPod", ODD_POD_EVERY_MS, PROBABILITY);
  const relabelEveryMs = every("relabel", RELABEL_EVERY_MS, PROBABILITY);
  const drawnCriteria = drawn.protectors.map(() => chance.pick(CRITERIA));
  // A pod that is not Ready may be taken out of service by its gates, which takes nothing from those that run.
  const isJudged = features.inPlaceEveryMs === 0;
  const criteria = every("criterion", 1, PROBABILITY) > 0 && isJudged ? drawnCriteria : [];
  return { ...drawn, features: { ...features, deadNodeEveryMs, oddPodEveryMs, relabelEveryMs, criteria } };
}
