/**
 * Worlds in which Kubernetes does more than the model of other worlds: habits of kube-apiserver, of kubelets and of
 * controllers, drawn from randomness of their own.
 */
import type { FeatureChoice } from "./features.ts";
import { HABITS, HABITS_OF_CHANGES, type Habit } from "./habits.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x4ab17;
const PROBABILITY = 0.1;
/** Of those that need changes in place, in worlds with such changes. */
const CHANGES_PROBABILITY = 0.5;
const CHANGE_EVERY_MS = 12_000;

/**
 * Worlds with accidents have none, unless the caller asks for it: only an accident may matter there. The generator's
 * protectors do not protect changes in place.
 */
export function withHabits(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const { features } = drawn;
  const changes = new Set(HABITS_OF_CHANGES);
  const isDrawnHere = (habit: Habit): boolean => {
    const isOfChanges = changes.has(habit);
    const isDrawn = chance.chance(isOfChanges ? CHANGES_PROBABILITY : PROBABILITY);
    return isDrawn && features.accidentsEveryMs === 0 && (features.inPlaceEveryMs > 0 || !isOfChanges);
  };
  const chosen = HABITS.filter((habit) => (isDrawnHere(habit) || always.has(habit)) && !without.has(habit));
  const isGenerated = features.generatorEveryMs > 0;
  const habits = new Set(isGenerated ? chosen.filter((habit) => !changes.has(habit)) : chosen);
  const isChanging = HABITS_OF_CHANGES.some((habit) => habits.has(habit));
  const inPlaceEveryMs = features.inPlaceEveryMs || (isChanging ? CHANGE_EVERY_MS : 0);
  return { ...drawn, features: { ...features, inPlaceEveryMs, habits } };
}
