/** Worlds of accidents, drawn from a stream of randomness of their own. */

import { NONE, type Wish } from "../world/features.ts";
import { Chance } from "../world/random.ts";
import { CORES, type Faults, type Scenario } from "../world/scenario.ts";

/** What it draws depends on the seed alone, and shifts nothing else that is drawn from it. */
const SALT = 0x0acc1de;
const PROBABILITY = 0.15;
const EVERY_MS = 6_000;
const DELETION_EVERY_MS = 30_000;
/** So few pods can be spared, so that one that is let go wrongly is one too many. */
const MOST_SPARE = 4;

/**
 * The scenario with accidents, where the seed or a wish asks for them. Other faults are those that excuse nothing: where an
 * admission may be lost or overlooked for another reason, nobody could tell whether the accident's rule was at work.
 */
export function withAccidents(drawn: Scenario, { without, always }: Wish): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const isDrawn = chance.chance(PROBABILITY);
  const accidentEveryMs = EVERY_MS * (0.5 + chance.fraction());
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
  // S2 has nothing to say where pods have to mature.
  const plans = isSteady ? protectors.map((plan) => ({ ...plan, minReadySeconds: 0 })) : protectors;
  return {
    ...drawn,
    ...{ deletionEveryMs, rateMs, protectors: plans },
    features: { ...NONE, accidentEveryMs, isSteady },
    faults: { ...ordinary(drawn.faults), watchLagMaxMs },
  };
}

/** What happens every day. */
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
