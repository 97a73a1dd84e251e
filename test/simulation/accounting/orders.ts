/** Random orders of events around one protector in one cell: admissions, commits, denials, watch lag, reconciles. */
import fc from "fast-check";
import { AccountingWorld } from "./accounting-world.ts";

type Step = readonly [action: number, index: number];

const ACTIONS: readonly ((world: AccountingWorld, index: number) => void)[] = [
  (world, index) => world.review(index, "DELETE"),
  (world, index) => world.review(index, "DELETE"),
  (world, index) => world.review(index, "EVICT"),
  (world, index) => world.commit(index),
  (world, index) => world.refuse(index),
  (world, index) => world.rollBack(index),
  (world, index) => world.finish(index),
  (world, index) => world.flip(index),
  (world, index) => world.flip(index),
  (world, index) => world.annotate(index),
  (world) => world.create(),
  (world, index) => world.watch((index % 4) / 3),
  (world) => world.account(),
  (world, index) => {
    world.watch((index % 4) / 3);
    world.account();
  },
  (world) => world.list(),
  (world, index) => world.get(index),
  (world, index) => world.tick([1, 100, 400, 1000][index % 4] ?? 1),
];

const steps: fc.Arbitrary<Step[]> = fc.array(fc.tuple(fc.nat(ACTIONS.length - 1), fc.nat(11)), {
  minLength: 5,
  maxLength: 60,
  size: "max",
});

/** Quota is neither used twice nor lost, in worlds with these values of minReadySeconds. */
export function quotaHolds(...minReadySeconds: readonly number[]) {
  const setting = fc.record({
    pods: fc.integer({ min: 1, max: 5 }),
    minAvailable: fc.integer({ min: 0, max: 3 }),
    minReadySeconds: fc.constantFrom(...minReadySeconds),
    compactThreshold: fc.constantFrom(0, 1, 2, 100),
  });
  return fc.property(setting, steps, (values, actions) => {
    const world = new AccountingWorld(
      values.pods,
      values.minAvailable,
      values.minReadySeconds,
      values.compactThreshold,
    );
    for (const [action, index] of actions) ACTIONS[action]?.(world, index);
    if (world.leftAfterQuiet() !== 0) throw new Error("L1: a reservation remains");
  });
}

/** True when one of `runs` random orders from `seed` on uses quota twice, or loses it. */
export function isBroken(seed: number, minReadySeconds: number, runs: number): boolean {
  return fc.check(quotaHolds(minReadySeconds), { numRuns: runs, seed, endOnFailure: true }).failed;
}
