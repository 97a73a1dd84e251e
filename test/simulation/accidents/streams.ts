/**
 * Accidents around lagging caches, cores that do not answer, and several protectors
 * (docs/design.md#several-protectors).
 */

import { exemptInFlight, patchProtector } from "../actors/operators.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import { recreateProtector, removeCellEntry } from "../faults/lost-history.ts";
import type { Accident } from "./accident.ts";
import type { AccidentStage } from "./accident-stage.ts";

/** Within the request timeout of the API servers. */
const LATE_MS = 26_000;

export const STREAM_ACCIDENTS: readonly Accident[] = [
  { name: "no core answers", isSteady: true, happen: silentCores },
  {
    name: "one of two protectors no longer allows",
    isSteady: true,
    isPossible: ({ protectors }) => protectors.length > 1,
    happen: deniedOnRepeat,
  },
  {
    name: "one of two cores does not answer, and the API server allows the request",
    isSteady: false,
    isPossible: ({ protectors }) => new Set(protectors.map(({ core }) => core)).size > 1,
    happen: allowedWithoutVerdict,
  },
  { name: "a selector is narrowed before its pods are counted", isSteady: false, happen: selectorNarrowed },
  { name: "a protector is created, and a replica starts on a lagging cache", isSteady: false, happen: createdUnseen },
];

async function silentCores(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  for (const core of world.cores.keys()) acts.loseRequests("webhook", core);
  await acts.pass(chance.between(0, 3_000));
  for (let left = chance.between(1, 4); left > 0; left -= 1) acts.deleteOrEvict(acts.somePod());
  await acts.pass(chance.between(15_000, 40_000));
}

/**
 * The pod's deletion is in progress when it is asked for again, and one of the protectors that allowed it denies it
 * now.
 */
async function deniedOnRepeat(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  const [, second] = world.scenario.protectors;
  if (second === undefined) return;
  acts.commitAfter(LATE_MS);
  acts.deletePod(pod);
  await acts.pass(chance.between(1_000, 3_000));
  for (const core of world.cores.keys()) acts.watchLag(core, 10_000);
  await acts.pass(chance.between(50, 300));
  await removeCellEntry(world, second.name, acts.cell.name);
  acts.deletePod(pod);
  await acts.pass(5_000);
}

/** failurePolicy Ignore: the reservation in the other core stays, because the pod is deleted. */
async function allowedWithoutVerdict(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const [first, ...others] = world.cores.keys();
  if (first === undefined) return;
  acts.slowLinks("webhook", first, chance.between(50, 300));
  for (const core of others) acts.loseRequests("webhook", core);
  world.failsOpen = true;
  acts.onEnd(() => {
    world.failsOpen = false;
  });
  acts.commitAfter(LATE_MS);
  acts.deleteOrEvict(acts.somePod());
  await acts.pass(chance.between(15_000, 25_000));
}

/** The aggregators have counted more pods than the protector covers now. */
async function selectorNarrowed(acts: AccidentStage): Promise<void> {
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
  exemptInFlight(world, name);
  const narrow = { selector: { matchLabels: { ...labels, tier: "a" } }, minAvailable: Math.max(1, covered.length) };
  patchProtector(world, name, { spec: narrow });
  acts.onEnd(() => {
    world.exemptions.uncertain(name);
    exemptInFlight(world, name);
    // A merge patch takes a label out of the selector by null.
    patchProtector(world, name, { spec: { selector: { matchLabels: { ...labels, tier: null } }, minAvailable } });
  });
  await acts.pass(chance.between(1_000, 3_000));
  for (const { cell, key } of covered.slice(0, chance.between(1, 5))) acts.deletePod(key, cell);
  await acts.pass(5_000);
}

async function createdUnseen(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const plan = chance.pick(world.scenario.protectors);
  // The replicas have either seen the deletion, or still hold the protector from before.
  const isKnownGone = chance.chance(0.7);
  const absentMs = chance.between(4_000, 8_000);
  if (!isKnownGone) acts.watchLag(plan.core, 60_000);
  recreateProtector(world, plan, absentMs);
  await acts.pass(absentMs - 1_000);
  if (isKnownGone) acts.watchLag(plan.core, 60_000);
  await acts.pass(chance.between(26_000, 36_000));
  const [old, ...others] = world.replicas;
  old?.kill();
  world.replicas = [world.startReplica(), ...others];
  await acts.pass(chance.between(1_000, 3_000));
  for (let left = chance.between(3, 6); left > 0; left -= 1) acts.deleteOrEvict(acts.somePod());
  await acts.pass(5_000);
}
