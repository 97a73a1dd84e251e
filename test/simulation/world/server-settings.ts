/** How an API server behaves: by the faults of the scenario, or as a scene or an accident has set it by hand. */
import type { DeletionHabits } from "../apiserver/pod-deletion.ts";
import type { ServerSettings } from "../apiserver/server.ts";
import type { Chance } from "../scenario/random.ts";
import type { World } from "./world.ts";

/** From an eviction's condition to its deletion. */
const CONDITION_MEAN_MS = 300;
const OBJECT_LIMIT_BYTES = 1_500_000;

export function serverSettings(
  world: Pick<World, "scenario" | "coverage" | "overrides" | "faultsActive">,
  name: string,
  chance: Chance,
): ServerSettings {
  const { faults, features, requestTimeoutMs } = world.scenario;
  let isNextAbandoned = false;
  return {
    requestTimeoutMs,
    objectLimitBytes: () => world.overrides.objectLimitBytes.get(name) ?? OBJECT_LIMIT_BYTES,
    // The hash of a UID hardly depends on its last characters. Numbers at the end would put all pods into one shard.
    ...(features.shards > 1 ? { uidOf: (count: number) => `${count}-${name}-uid` } : {}),
    deletion: deletionHabits(world, chance),
    pageObjects: () => {
      if (faults.pageObjects > 0) world.coverage.fault("partialPages");
      return faults.pageObjects;
    },
    servesStaleList: () => {
      const isStale = world.faultsActive && chance.chance(faults.staleListRate);
      if (isStale) world.coverage.fault("staleList");
      return isStale;
    },
    watchLagMs: () => {
      const setMs = world.overrides.watchLagMs.get(name);
      if (setMs !== undefined) return setMs;
      if (!world.faultsActive) return 2;
      if (faults.watchLagMaxMs > 1_000 && chance.chance(0.9)) return chance.exponential(20);
      const lagMs = chance.fraction() * faults.watchLagMaxMs;
      if (lagMs > 1_000) world.coverage.fault("watchLag");
      return lagMs;
    },
    abandonNext: () => {
      isNextAbandoned = true;
    },
    commitDelayMs: () => {
      if (isNextAbandoned) {
        isNextAbandoned = false;
        return undefined;
      }
      if (world.overrides.commitDelayMs.has(name)) return world.overrides.commitDelayMs.get(name);
      if (!world.faultsActive) return 2;
      if (chance.chance(faults.commitNeverRate)) {
        world.coverage.fault("commitNever");
        return undefined;
      }
      if (!chance.chance(faults.commitLateRate)) return chance.exponential(3);
      world.coverage.fault("commitLate");
      return chance.fraction() * requestTimeoutMs;
    },
  };
}

function deletionHabits(
  { scenario: { features }, coverage }: Pick<World, "scenario" | "coverage">,
  chance: Chance,
): DeletionHabits | undefined {
  const { habits } = features;
  const readsCache = habits.has("staleReview");
  const marksFirst = habits.has("twoReviews");
  const writesCondition = habits.has("evictionCondition");
  if (!readsCache && !marksFirst && !writesCondition) return undefined;
  return {
    ...{ readsCache, marksFirst, writesCondition },
    pauseMs: () => chance.exponential(CONDITION_MEAN_MS),
    seen: (step) => {
      coverage.rule(step);
      const [habit] = HABIT_OF.find(([, prefix]) => step.startsWith(prefix)) ?? [];
      if (habit !== undefined) coverage.fault(habit);
    },
  };
}

/** By the beginning of what is seen of it. */
const HABIT_OF = [
  ["staleReview", "review"],
  ["twoReviews", "deletion"],
  ["evictionCondition", "eviction"],
] as const;
