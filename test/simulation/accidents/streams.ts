/** Accidents around caches that lag, cores that do not answer and several protectors (design 5.3, 5.4, 5.7, 5.8). */

import { exemptUnderWay, patch } from "../actors/operators.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import { recreateOf, removeCellOf } from "../faults/lost-history.ts";
import type { Accident } from "./accident.ts";
import type { Acts } from "./acts.ts";

/** Within the request timeout of the API servers. */
const LATE_MS = 26_000;

export const STREAM_ACCIDENTS: readonly Accident[] = [
  { name: "no core answers", isSteady: true, happen: silentCores },
  {
    name: "one of two protectors takes its leave back",
    isSteady: true,
    isPossible: ({ protectors }) => protectors.length > 1,
    happen: takenBack,
  },
  {
    name: "one of two cores does not answer, and the API server goes on",
    isSteady: false,
    isPossible: ({ protectors }) => new Set(protectors.map(({ core }) => core)).size > 1,
    happen: goesOn,
  },
  { name: "a selector comes to cover fewer pods, uncounted", isSteady: false, happen: narrowed },
  { name: "a protector is made, and a replica starts on a cache that lags", isSteady: false, happen: madeUnseen },
];

async function silentCores(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  for (const core of world.cores.keys()) acts.silence("webhook", core);
  await acts.pass(chance.between(0, 3_000));
  for (let left = chance.between(1, 4); left > 0; left -= 1) acts.removeOrEvict(acts.somePod());
  await acts.pass(chance.between(15_000, 40_000));
}

/** Its deletion is under way when it is asked for again, and one protector that had agreed before does so no more. */
async function takenBack(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  const [, second] = world.scenario.protectors;
  if (second === undefined) return;
  acts.commits(LATE_MS);
  acts.remove(pod);
  await acts.pass(chance.between(1_000, 3_000));
  for (const core of world.cores.keys()) acts.watchLag(core, 10_000);
  await acts.pass(chance.between(50, 300));
  await removeCellOf(world, second.name, acts.cell.name);
  acts.remove(pod);
  await acts.pass(5_000);
}

/** failurePolicy Ignore: what was reserved in the other core stays, because the pod goes. */
async function goesOn(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const [first, ...others] = world.cores.keys();
  if (first === undefined) return;
  acts.slow("webhook", first, chance.between(50, 300));
  for (const core of others) acts.silence("webhook", core);
  world.failsOpen = true;
  acts.later(() => {
    world.failsOpen = false;
  });
  acts.commits(LATE_MS);
  acts.removeOrEvict(acts.somePod());
  await acts.pass(chance.between(15_000, 25_000));
}

/** What the aggregators have counted is more than the protector means by now. */
async function narrowed(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const { name, labels, minAvailable } = chance.pick(world.scenario.protectors);
  acts.pauseAggregators(world.cells.values());
  const covered = [...world.cells.values()].flatMap((cell) => {
    const isCovered = (key: string): boolean =>
      record(metadataOf(cell.server.etcd.get(key)?.value ?? {}).labels).tier === "a";
    return acts
      .pods(cell)
      .filter(isCovered)
      .map((key) => ({ cell, key }));
  });
  exemptUnderWay(world, name);
  const narrow = { selector: { matchLabels: { ...labels, tier: "a" } }, minAvailable: Math.max(1, covered.length) };
  patch(world, name, { spec: narrow });
  acts.later(() => {
    world.exemptions.uncertain(name);
    exemptUnderWay(world, name);
    // A merge patch takes a label out of the selector by null.
    patch(world, name, { spec: { selector: { matchLabels: { ...labels, tier: null } }, minAvailable } });
  });
  await acts.pass(chance.between(1_000, 3_000));
  for (const { cell, key } of covered.slice(0, chance.between(1, 5))) acts.remove(key, cell);
  await acts.pass(5_000);
}

async function madeUnseen(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const plan = chance.pick(world.scenario.protectors);
  // Replicas have heard of its deletion, or hold its predecessor still.
  const isKnownGone = chance.chance(0.7);
  const absentMs = chance.between(4_000, 8_000);
  if (!isKnownGone) acts.watchLag(plan.core, 60_000);
  recreateOf(world, plan, absentMs);
  await acts.pass(absentMs - 1_000);
  if (isKnownGone) acts.watchLag(plan.core, 60_000);
  await acts.pass(chance.between(26_000, 36_000));
  const [old, ...others] = world.webhooks;
  old?.kill();
  world.webhooks = [world.startReplica(), ...others];
  await acts.pass(chance.between(1_000, 3_000));
  for (let left = chance.between(3, 6); left > 0; left -= 1) acts.removeOrEvict(acts.somePod());
  await acts.pass(5_000);
}
