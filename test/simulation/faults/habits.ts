/** What begins by itself, from time to time, in worlds with a habit. */
import { openAllGates, updateByGate } from "../actors/gate-controllers.ts";
import type { Habit } from "../scenario/habits.ts";
import type { Chance } from "../scenario/random.ts";
import type { World } from "../world/world.ts";
import { addFinalizer, endFinalizers, releasePods } from "./pod-finalizers.ts";

const FINALIZER_EVERY_MS = 4_000;
const CLOCK_EVERY_MS = 20_000;
const GATE_EVERY_MS = 6_000;
const MOST_SKEW_MS = 120_000;

/** In the form of other faults; 0: the habit is absent. */
export function habitActions(world: World, chance: Chance): readonly [Habit, number, () => void][] {
  const { habits } = world.scenario.features;
  const every = (habit: Habit, meanMs: number): number => (habits.has(habit) ? meanMs : 0);
  return [
    ["finalizers", every("finalizers", FINALIZER_EVERY_MS), () => addFinalizer(world, chance)],
    ["kubeletClock", every("kubeletClock", CLOCK_EVERY_MS), () => stepNodeClocks(world, chance)],
    ["voluntaryGates", every("voluntaryGates", GATE_EVERY_MS), () => void updateByGate(world, chance)],
  ];
}

/** The clocks of a cell's nodes go wrong, in one step, and later right again. */
function stepNodeClocks(world: World, chance: Chance): void {
  const { kubelet } = chance.pick([...world.cells.values()]);
  kubelet.skewMs = kubelet.skewMs === 0 ? chance.between(-MOST_SKEW_MS, MOST_SKEW_MS) : 0;
  world.coverage.rule(
    kubelet.skewMs === 0
      ? "the clocks of nodes are set right"
      : `the clocks of nodes are ${kubelet.skewMs > 0 ? "ahead" : "behind"}`,
  );
}

/** What reacts to pods from here on. */
export function startHabits(world: World): void {
  const { habits } = world.scenario.features;
  if (habits.has("finalizers")) releasePods(world, world.chance.fork());
  if (habits.has("resolvedImages")) world.coverage.fault("resolvedImages");
}

/** Ends what began here. */
export function endHabits(world: World): void {
  endFinalizers(world);
  if (world.scenario.features.habits.has("voluntaryGates")) openAllGates(world);
  for (const { kubelet } of world.cells.values()) kubelet.skewMs = 0;
}
