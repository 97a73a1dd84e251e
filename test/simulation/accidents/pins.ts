/** Accidents around pods that are ready for one and not for the other (design 5.2, 5.3). */
import type { Accident } from "./accident.ts";
import type { Acts } from "./acts.ts";

export const PIN_ACCIDENTS: readonly Accident[] = [
  { name: "a pod flaps unseen and is deleted", isSteady: true, happen: flapUnseen },
  { name: "a pod is ready by the time its eviction is recorded", isSteady: true, happen: readyMeanwhile },
  { name: "a pod is deleted that the aggregator has not seen", isSteady: true, happen: youngerThanTheCount },
  { name: "a pod changes between review and commit, and is reviewed again", isSteady: true, happen: reviewedAgain },
];

/** The aggregator counts it throughout. Its eviction finds it unready, its deletion ready and perhaps not mature. */
async function flapUnseen(acts: Acts): Promise<void> {
  const { chance } = acts;
  const pod = acts.somePod();
  const isEvicted = chance.chance(0.5);
  acts.pauseAggregators();
  acts.ready(pod, false);
  await acts.pass(chance.between(500, 1_500));
  if (!isEvicted) {
    acts.ready(pod, true);
    await acts.pass(chance.between(200, 1_500));
  }
  acts.commits(chance.between(10_000, 25_000));
  if (isEvicted) acts.evict(pod);
  else acts.remove(pod);
  await acts.pass(chance.between(500, 1_500));
  if (isEvicted) acts.ready(pod, true);
  await acts.pass(chance.between(200, 1_500));
  acts.commitsAsEver();
  acts.drain([pod]);
  await acts.pass(chance.between(1_000, 4_000));
}

/** Between the live read of its eviction and the write that pins it a pod becomes ready and is counted, and the rest is deleted. */
async function readyMeanwhile(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  acts.watchLag(acts.cell.name, chance.between(1, 20));
  acts.ready(pod, false);
  await acts.pass(chance.between(2_000, 3_000));
  const slowMs = chance.between(150, 600);
  for (const core of world.cores.keys()) acts.slow("webhook", core, slowMs);
  acts.evict(pod);
  await acts.pass(chance.between(20, 100));
  acts.ready(pod, true);
  await acts.pass(chance.between(5, slowMs));
  acts.drain([pod]);
  await acts.pass(5_000);
}

/** What is absent from a snapshot is not dead for that: it may be younger. */
async function youngerThanTheCount(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const known = new Set(acts.pods());
  acts.watchLag(acts.cell.name, chance.between(20_000, 40_000));
  acts.remove(acts.somePod());
  await acts.pass(chance.between(10_000, 14_000));
  const young = acts.pods().filter((key) => !known.has(key));
  if (young.length === 0) return;
  for (const core of world.cores.keys()) acts.slow("aggregator", core, chance.between(50, 300));
  acts.commits(chance.between(15_000, 25_000));
  for (const pod of young) acts.remove(pod);
  await acts.pass(chance.between(8_000, 12_000));
}

/** The first review's version is superseded; the second one's commits late. */
async function reviewedAgain(acts: Acts): Promise<void> {
  const { chance } = acts;
  const pod = acts.somePod();
  acts.watchLag(acts.cell.name, chance.between(5_000, 12_000));
  acts.commits(chance.between(1_500, 3_000));
  acts.remove(pod);
  await acts.pass(chance.between(500, 1_400));
  acts.touch(pod);
  acts.commits(chance.between(20_000, 26_000));
  await acts.pass(chance.between(15_000, 20_000));
}
