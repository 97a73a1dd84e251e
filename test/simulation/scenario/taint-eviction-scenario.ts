/** Worlds with the real taint eviction, drawn from randomness of its own. */
import type { FeatureChoice } from "./features.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draw depend on the seed alone, without shifting any other draw. */
const SALT = 0x07a1271;
const PROBABILITY = 0.25;

/** Adds it to any scenario where the seed or the caller asks for it. */
export function withTaintEviction(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const isDrawn = new Chance(drawn.seed ^ SALT).chance(PROBABILITY);
  if (without.has("taintEviction") || !(isDrawn || always.has("taintEviction"))) return drawn;
  return { ...drawn, features: { ...drawn.features, isTaintEvictionReal: true } };
}
