/**
 * Accidents of lost history, and of former leaders that do not know that they no longer lead
 * (docs/design.md#lost-history).
 */

import { annotateProtector } from "../actors/operators.ts";
import type { Replica } from "../actors/replica.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { removeCellEntry, restoreCell } from "../faults/lost-history.ts";
import { reservedUids } from "../truth/stored-protectors.ts";
import type { Accident } from "./accident.ts";
import type { AccidentStage } from "./accident-stage.ts";

export const LOSS_ACCIDENTS: readonly Accident[] = [
  { name: "a cell's entry is removed during a deletion", isSteady: true, happen: entryRemoved },
  { name: "a core is restored to before a deletion in progress", isSteady: false, happen: coreRestored },
  { name: "a core is restored while all replicas are stopped", isSteady: false, happen: restoredDuringStall },
  { name: "a cell is restored to before a change of a pod that is deleted", isSteady: false, happen: cellRestored },
  { name: "a leader that is cut off counts a lost history", isSteady: false, happen: cutOffLeader },
];

/** Within the request timeout of the API servers. */
const LATE_MS = 26_000;
/** No server is restored in less, and replicas rely on that (docs/decisions/0003-quiet-after-an-outage.md). */
const RESTORE_MS = 1_200;

async function entryRemoved(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  acts.commitAfter(LATE_MS);
  acts.deleteOrEvict(pod);
  await acts.pass(chance.between(1_000, 4_000));
  await removeCellEntry(world, chance.pick(world.scenario.protectors).name, acts.cell.name);
  await acts.pass(chance.between(4_000, 12_000));
  acts.commitAsUsual();
  acts.drain([pod]);
  await acts.pass(5_000);
}

/** All replicas live and are connected: each replica with a lost reservation writes it again, and nothing is exempt. */
async function coreRestored(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  const core = chance.pick([...world.cores.values()]);
  const backup = core.etcd.backup();
  const isUnseen = chance.chance(0.5);
  if (isUnseen) acts.watchLag(core.name, 60_000);
  acts.commitAfter(LATE_MS);
  acts.deleteOrEvict(pod);
  await acts.pass(chance.between(1_000, 3_000));
  acts.pauseAggregators();
  if (isUnseen) acts.watchLag(core.name, chance.between(1, 200));
  world.network.setServing(core.name, false);
  acts.onEnd(() => world.network.setServing(core.name, true));
  restoreCore(acts, core, backup, isUnseen || chance.chance(0.5));
  await acts.pass(RESTORE_MS);
  world.network.setServing(core.name, true);
  await acts.pass(chance.between(14_000, 18_000));
  acts.commitAsUsual();
  acts.drain([pod]);
  await acts.pass(5_000);
}

/** One replica knows of a lost reservation, and another replica continues first. */
async function restoredDuringStall(acts: AccidentStage): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  const core = chance.pick([...world.cores.values()]);
  const backup = core.etcd.backup();
  const replicas = world.replicas;
  const [one, other] = replicas;
  if (one === undefined || other === undefined) return;
  acts.commitAfter(LATE_MS);
  acts.watchLag(core.name, 60_000);
  onlyAsks(acts, one);
  acts.deleteOrEvict(pod);
  await acts.pass(chance.between(1_000, 3_000));
  acts.pauseAggregators();
  for (const { ports } of replicas) {
    ports.pause();
    acts.onEnd(() => ports.resume());
  }
  acts.watchLag(core.name, chance.between(1, 200));
  restoreCore(acts, core, backup, true);
  await acts.pass(chance.between(3_000, 7_000));
  other.ports.resume();
  onlyAsks(acts, other);
  await acts.pass(chance.between(500, 2_000));
  acts.commitAsUsual();
  acts.drain([pod]);
  await acts.pass(chance.between(2_000, 5_000));
  for (const { ports } of replicas) ports.resume();
  await acts.pass(5_000);
}

/** Clients are quicker than the components that learn of the restore. */
async function cellRestored(acts: AccidentStage): Promise<void> {
  const { chance, world, cell } = acts;
  const pod = acts.somePod();
  const backup = cell.server.etcd.backup();
  acts.annotatePod(pod);
  await acts.pass(chance.between(3_000, 8_000));
  acts.commitAfter(LATE_MS);
  world.network.setServing(cell.name, false);
  acts.onEnd(() => world.network.setServing(cell.name, true));
  restoreCell(world, cell, backup, chance.chance(0.7));
  acts.deletePod(pod);
  await acts.pass(chance.between(600, 1_200));
  acts.commitAsUsual();
  acts.drain([pod]);
  await acts.pass(chance.between(600, 1_200));
  world.network.setServing(cell.name, true);
  await acts.pass(5_000);
}

async function cutOffLeader(acts: AccidentStage): Promise<void> {
  const { chance, world, cell } = acts;
  const backup = cell.server.etcd.backup();
  acts.deletePod(acts.somePod());
  await acts.pass(chance.between(15_000, 25_000));
  const old = cell.aggregators;
  acts.loseRequests("aggregator", cell.name);
  cell.aggregators = [world.startAggregator(cell)];
  cell.oldLeaders += old.length;
  acts.onEnd(() => {
    for (const node of old) node.kill();
    cell.oldLeaders -= old.length;
  });
  restoreCell(world, cell, backup, chance.chance(0.3));
  await acts.pass(chance.between(3_000, 8_000));
  annotateProtector(world, chance);
  await acts.pass(chance.between(20_000, 60_000));
}

/** Restores the core to `backup`. Nothing is exempt except for replicas that start later. */
function restoreCore(
  { world }: AccidentStage,
  core: ApiServer,
  backup: ReturnType<ApiServer["etcd"]["backup"]>,
  bumped: boolean,
): void {
  for (const stored of core.etcd.range("podprotectors/"))
    for (const [cell, uids] of reservedUids(stored))
      for (const uid of uids) world.exemptions.admissionLost(stored.key.split("/")[2] ?? "", cell, uid);
  world.note(`a core is restored from ${core.etcd.revision} to ${backup.revision}`);
  world.denials.forget();
  core.etcd.restore(backup, bumped);
  core.reset();
}

/** Admission requests go to one replica until the accident ends. */
function onlyAsks(acts: AccidentStage, replica: Replica): void {
  const { world } = acts;
  const known = world.replicas;
  world.replicas = [replica];
  acts.onEnd(() => {
    world.replicas = known;
  });
}
