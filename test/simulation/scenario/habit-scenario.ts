/**
 * Worlds in which Kubernetes does more than the model of other worlds: habits of kube-apiserver, of kubelets and of
 * controllers, drawn from randomness of their own.
 */
import type { FeatureChoice } from "./features.ts";
import { HABITS } from "./habits.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x4ab17;
const PROBABILITY = 0.1;

/** Worlds with accidents have none, unless the caller asks for it: only an accident may matter there. */
export function withHabits(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const { features } = drawn;
  const habits = HABITS.filter((habit) => {
    const isDrawn = chance.chance(PROBABILITY) && features.accidentsEveryMs === 0;
    return !without.has(habit) && (isDrawn || always.has(habit));
  });
  return { ...drawn, features: { ...features, habits: new Set(habits) } };
}
