/** Worlds with accidents, drawn from randomness of its own. */

import { type FeatureChoice, NO_FEATURES } from "./features.ts";
import { Chance } from "./random.ts";
import { CORES, type Faults, type Scenario } from "./scenario.ts";

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x0acc1de;
const PROBABILITY = 0.15;
const EVERY_MS = 6_000;
const DELETION_EVERY_MS = 30_000;
/** So few pods can be spared that one wrong disruption is too many. */
const MOST_SPARE = 4;

/**
 * Adds accidents to the scenario where the seed or the caller asks for them. Only faults without exemptions stay: where
 * another fault could lose an admission, nobody could tell whether the rule of the accident was at work.
 */
export function withAccidents(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const isDrawn = chance.chance(PROBABILITY);
  const accidentsEveryMs = EVERY_MS * (0.5 + chance.fraction());
  const isSteady = chance.chance(0.3);
  const deletionEveryMs = DELETION_EVERY_MS * (0.5 + chance.fraction());
  const watchLagMaxMs = chance.pick([20, 200]);
  const rateMs = chance.pick([0, 0, 200]);
  const total = drawn.cells * drawn.podsPerCell;
  const [first] = drawn.protectors;
  const added = { name: "web-too", core: chance.pick(CORES) };
  const isTwo = drawn.protectors.length === 1 && chance.chance(0.5);
  const all = isTwo && first !== undefined ? [first, { ...first, ...added }] : drawn.protectors;
  const protectors = all.map((plan) => ({ ...plan, minAvailable: total - chance.between(1, MOST_SPARE) }));
  if (without.has("accidents") || !(isDrawn || always.has("accidents"))) return drawn;
  // S2 promises nothing where pods have to mature.
  const plans = isSteady ? protectors.map((plan) => ({ ...plan, minReadySeconds: 0 })) : protectors;
  return {
    ...drawn,
    ...{ deletionEveryMs, rateMs, protectors: plans },
    features: { ...NO_FEATURES, accidentsEveryMs, isSteady },
    faults: { ...ordinary(drawn.faults), watchLagMaxMs },
  };
}

/** The faults of every day. */
function ordinary(drawn: Faults): Faults {
  const never = Object.fromEntries(Object.keys(drawn).map((kind) => [kind, 0]));
  const { flapEveryMs, podFailureEveryMs, annotateEveryMs, conflictingWriterEveryMs } = drawn;
  const { commitNeverRate, commitLateRate, otherWebhookRejectRate, duplicateReviewRate, dryRunRate } = drawn;
  return {
    ...drawn,
    ...never,
    ...{ flapEveryMs, podFailureEveryMs, annotateEveryMs, conflictingWriterEveryMs },
    ...{ commitNeverRate, commitLateRate, otherWebhookRejectRate, duplicateReviewRate, dryRunRate },
  };
}
