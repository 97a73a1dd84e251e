/** Worlds in which aggregators keep backups of protectors in their cells, drawn from randomness of its own. */

import { type FeatureChoice, NO_FEATURES } from "./features.ts";
import { Chance } from "./random.ts";
import type { Scenario } from "./scenario.ts";

/** Makes the draws depend on the seed alone, without shifting any other draw. */
const SALT = 0x0c0b1e5;
const EVERY_MS = 20_000;
const PROBABILITY = 0.12;
const RESTORE_CELL_EVERY_MS = 90_000;
const CRASH_WEBHOOK_EVERY_MS = 60_000;

/**
 * Adds backups to the scenario where the seed or the caller asks for them. The generator makes the protectors, or an
 * operator makes them with the generator's marks, and no other feature changes them. Replicas restart and cells are
 * restored more often.
 */
export function withBackups(drawn: Scenario, { without, always }: FeatureChoice): Scenario {
  const chance = new Chance(drawn.seed ^ SALT);
  const isDrawn = chance.chance(PROBABILITY);
  const backupsEveryMs = EVERY_MS * (0.5 + chance.fraction());
  const restoreCellEveryMs = chance.chance(0.5) ? RESTORE_CELL_EVERY_MS * (0.5 + chance.fraction()) : 0;
  const crashWebhookEveryMs = CRASH_WEBHOOK_EVERY_MS * (0.5 + chance.fraction());
  if (without.has("backups") || !(isDrawn || always.has("backups"))) return drawn;
  const { faults, features } = drawn;
  const { generatorEveryMs, shards, shardsEveryMs } = features;
  const most = (kind: string, everyMs: number, instead: number): number =>
    without.has(kind) || everyMs > 0 ? everyMs : instead;
  return {
    ...drawn,
    features: { ...NO_FEATURES, generatorEveryMs, shards, shardsEveryMs, backupsEveryMs },
    faults: {
      ...faults,
      // Deleting a protector with the generator's marks releases nothing. The feature has releases of its own.
      recreateProtectorEveryMs: 0,
      restoreCellEveryMs: most("restoreCell", faults.restoreCellEveryMs, restoreCellEveryMs),
      crashWebhookEveryMs: most("crashWebhook", faults.crashWebhookEveryMs, crashWebhookEveryMs),
    },
  };
}
