/** Worlds in which the aggregators keep copies of the protectors in their cells (design 7), drawn from a stream of randomness of their own. */

import { NONE, type Wish } from "../world/features.ts";
import { Chance } from "../world/random.ts";
import type { Scenario } from "../world/scenario.ts";

/** What it draws depends on the seed alone, and shifts nothing else that is drawn from it. */
const SALT = 0x0c0b1e5;
const EVERY_MS = 20_000;
const PROBABILITY = 0.12;
const RESTORE_CELL_EVERY_MS = 90_000;
const CRASH_WEBHOOK_EVERY_MS = 60_000;

/**
 * The scenario with copies, where the seed or a wish asks for them. Protectors are then the generator's, or as it makes them, and no
 * other feature has a say in what they are; replicas start anew more often, and cells go back.
 */
export function withCopies(drawn: Scenario, { without, always }: Wish): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const isDrawn = chance.chance(PROBABILITY);
  const copiesEveryMs = EVERY_MS * (0.5 + chance.fraction());
  const restoreCellEveryMs = chance.chance(0.5) ? RESTORE_CELL_EVERY_MS * (0.5 + chance.fraction()) : 0;
  const crashWebhookEveryMs = CRASH_WEBHOOK_EVERY_MS * (0.5 + chance.fraction());
  if (without.has("copies") || !(isDrawn || always.has("copies"))) return drawn;
  const { faults, features } = drawn;
  const { generatorEveryMs, shards, shardEveryMs } = features;
  const most = (kind: string, everyMs: number, instead: number): number =>
    without.has(kind) || everyMs > 0 ? everyMs : instead;
  return {
    ...drawn,
    features: { ...NONE, generatorEveryMs, shards, shardEveryMs, copiesEveryMs },
    faults: {
      ...faults,
      // Deleting one that is the generator's releases nothing: the feature has releases of its own.
      recreateProtectorEveryMs: 0,
      restoreCellEveryMs: most("restoreCell", faults.restoreCellEveryMs, restoreCellEveryMs),
      crashWebhookEveryMs: most("crashWebhook", faults.crashWebhookEveryMs, crashWebhookEveryMs),
    },
  };
}
