/**
 * Accidents around pins: pods whose readiness one component has seen and another has not (docs/design.md#admission).
 */
import type { Accident } from "./accident.ts";
import type { AccidentStage } from "./accident-stage.ts";

export const PIN_ACCIDENTS: readonly Accident[] = [
  { name: "a pod flaps unseen and is deleted", isSteady: true, happen: flapUnseen },
  { name: "a pod is ready by the time its eviction is recorded", isSteady: true, happen: readyMeanwhile },
  { name: "a pod is deleted that the aggregator has not seen", isSteady: true, happen: youngerThanTheCount },
  { name: "a pod changes between review and commit, and is reviewed again", isSteady: true, happen: reviewedAgain },
];

/**
 * The aggregator counts the pod throughout. The eviction finds the pod unready; the deletion finds it ready and perhaps
 * not mature.
 */
async function flapUnseen(acts: AccidentStage): Promise<void> {
  const { chance } = acts;
  const pod = acts.somePod();
  const isEvicted = chance.chance(0.5);
  acts.pauseAggregators();
  acts.setReady(pod, false);
  await acts.pass(chance.between(500, 1_500));
  if (!isEvicted) {
    acts.setReady(pod, true);
    await acts.pass(chance.between(200, 1_500));
  }
  acts.commitAfter(chance.between(10_000, 25_000));
  if (isEvicted) acts.evict(pod);
  else acts.deletePod(pod);
  await acts.pass(chance.between(500, 1_500));
  if (isEvicted) acts.setReady(pod, true);
  await acts.pass(chance.between(200, 1_500));
  acts.commitAsUsual();
  acts.drain([pod]);
  await acts.pass(chance.between(1_000, 4_000));
}

/**
 * Between the live read of the eviction and the write of its pin the pod becomes ready and is counted, and the spare
 * pods are deleted.
 */
async function readyMeanwhile(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  if (chance.chance(0.4)) return await readyDuringSlowWrites(acts);
  const pod = acts.somePod();
  acts.watchLag(acts.cell.name, chance.between(1, 20));
  acts.setReady(pod, false);
  await acts.pass(chance.between(2_000, 3_000));
  // Where the writes take longer, the webhook reads the pod again because of that.
  const slowMs = chance.between(25, 40);
  for (const core of world.cores.keys()) acts.slowLinks("webhook", core, slowMs);
  acts.evict(pod);
  await acts.pass(chance.between(5, 15));
  acts.setReady(pod, true);
  await acts.pass(chance.between(5, slowMs));
  acts.drain([pod]);
  await acts.pass(5_000);
}

/** One pod more than can be spared is unready. One of them becomes ready while the writes of its pins are slow. */
async function readyDuringSlowWrites(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const [pod = acts.somePod(), ...others] = acts.pods().slice(0, acts.spare() + 1);
  for (const key of [pod, ...others]) acts.setReady(key, false);
  acts.onEnd(() => {
    for (const key of others) acts.setReady(key, true);
  });
  await acts.pass(chance.between(2_000, 3_000));
  acts.commitAfter(1);
  for (const core of world.cores.keys()) acts.slowLinks("webhook", core, chance.between(200, 400));
  acts.evict(pod);
  await acts.pass(chance.between(100, 300));
  acts.setReady(pod, true);
  await acts.pass(5_000);
}

/** A pod that the snapshot lacks is not dead: it may be younger than the snapshot. */
async function youngerThanTheCount(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const known = new Set(acts.pods());
  acts.watchLag(acts.cell.name, chance.between(20_000, 40_000));
  acts.deletePod(acts.somePod());
  await acts.pass(chance.between(10_000, 14_000));
  const young = acts.pods().filter((key) => !known.has(key));
  if (young.length === 0) return;
  for (const core of world.cores.keys()) acts.slowLinks("aggregator", core, chance.between(50, 300));
  acts.commitAfter(chance.between(15_000, 25_000));
  for (const pod of young) acts.deletePod(pod);
  await acts.pass(chance.between(8_000, 12_000));
}

/** The version of the first review is superseded. The deletion at the version of the second review commits late. */
async function reviewedAgain(acts: AccidentStage): Promise<void> {
  const { chance } = acts;
  const pod = acts.somePod();
  acts.watchLag(acts.cell.name, chance.between(5_000, 12_000));
  acts.commitAfter(chance.between(1_500, 3_000));
  acts.deletePod(pod);
  await acts.pass(chance.between(500, 1_400));
  acts.annotatePod(pod);
  acts.commitAfter(chance.between(20_000, 26_000));
  await acts.pass(chance.between(15_000, 20_000));
}
