/** Worlds in which nodes are deleted and their pods collected, drawn from randomness of its own. */
import type { FeatureChoice } from "./features.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x0de1e7e;
const EVERY_MS = 25_000;
const PROBABILITY = 0.12;

export function withNodes(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const isDrawn = chance.chance(PROBABILITY);
  const nodesEveryMs = EVERY_MS * (0.5 + chance.fraction());
  if (without.has("nodes") || !(isDrawn || always.has("nodes"))) return drawn;
  return { ...drawn, features: { ...drawn.features, nodesEveryMs } };
}
