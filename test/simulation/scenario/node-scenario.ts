/** Worlds in which nodes are deleted and their pods collected, and worlds with the real taint eviction. */
import type { FeatureChoice } from "./features.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draws of each depend on the seed alone, without shifting any other draw. */
const SALTS = { nodes: 0x0de1e7e, taintEviction: 0x07a1271 };
const EVERY_MS = 25_000;
const PROBABILITY = 0.12;
const TAINT_EVICTION_PROBABILITY = 0.25;

export function withNodes(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALTS.nodes);
  const isDrawn = chance.chance(PROBABILITY);
  const nodesEveryMs = EVERY_MS * (0.5 + chance.fraction());
  if (without.has("nodes") || !(isDrawn || always.has("nodes"))) return drawn;
  return { ...drawn, features: { ...drawn.features, nodesEveryMs } };
}

/** Adds it to any scenario where the seed or the caller asks for it. */
export function withTaintEviction(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const isDrawn = new Chance(drawn.seed ^ SALTS.taintEviction).chance(TAINT_EVICTION_PROBABILITY);
  if (without.has("taintEviction") || !(isDrawn || always.has("taintEviction"))) return drawn;
  return { ...drawn, features: { ...drawn.features, isTaintEvictionReal: true } };
}
