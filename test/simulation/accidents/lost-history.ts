/** Accidents of lost history and of leaders that do not know that they are none (design 5.4). */

import { touchProtector } from "../actors/operators.ts";
import type { Replica } from "../actors/replica.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { removeCellOf, restoreCellTo } from "../faults/lost-history.ts";
import { reservedUids } from "../truth/stored-protectors.ts";
import type { Accident } from "./accident.ts";
import type { Acts } from "./acts.ts";

export const LOSS_ACCIDENTS: readonly Accident[] = [
  { name: "a cell's entry is removed with a deletion under way", isSteady: true, happen: entryRemoved },
  { name: "a core goes back behind a deletion that is under way", isSteady: false, happen: coreGoesBack },
  { name: "a core goes back while all replicas stand still", isSteady: false, happen: standstill },
  { name: "a cell goes back behind a change of a pod that is deleted", isSteady: false, happen: cellGoesBack },
  { name: "a leader that is cut off counts a history that is over", isSteady: false, happen: overtaken },
];

/** Within the request timeout of the API servers. */
const LATE_MS = 26_000;

async function entryRemoved(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  acts.commits(LATE_MS);
  acts.removeOrEvict(pod);
  await acts.pass(chance.between(1_000, 4_000));
  await removeCellOf(world, chance.pick(world.scenario.protectors).name, acts.cell.name);
  await acts.pass(chance.between(4_000, 12_000));
  acts.commitsAsEver();
  acts.drain([pod]);
  await acts.pass(5_000);
}

/** All replicas live and are in touch: whoever has reserved something says so, and nothing is exempt. */
async function coreGoesBack(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  const core = chance.pick([...world.cores.values()]);
  const backup = core.etcd.backup();
  const isUnseen = chance.chance(0.5);
  if (isUnseen) acts.watchLag(core.name, 60_000);
  acts.commits(LATE_MS);
  acts.removeOrEvict(pod);
  await acts.pass(chance.between(1_000, 3_000));
  acts.pauseAggregators();
  if (isUnseen) acts.watchLag(core.name, chance.between(1, 200));
  goBack(acts, core, backup, isUnseen || chance.chance(0.5));
  await acts.pass(chance.between(14_000, 18_000));
  acts.commitsAsEver();
  acts.drain([pod]);
  await acts.pass(5_000);
}

/** One of them knows of a reservation that is lost; another one goes on first. */
async function standstill(acts: Acts): Promise<void> {
  const { chance, world } = acts;
  const pod = acts.somePod();
  const core = chance.pick([...world.cores.values()]);
  const backup = core.etcd.backup();
  const replicas = world.webhooks;
  const [one, other] = replicas;
  if (one === undefined || other === undefined) return;
  acts.commits(LATE_MS);
  acts.watchLag(core.name, 60_000);
  onlyAsks(acts, one);
  acts.removeOrEvict(pod);
  await acts.pass(chance.between(1_000, 3_000));
  acts.pauseAggregators();
  for (const { ports } of replicas) {
    ports.pause();
    acts.later(() => ports.resume());
  }
  acts.watchLag(core.name, chance.between(1, 200));
  goBack(acts, core, backup, true);
  await acts.pass(chance.between(3_000, 7_000));
  other.ports.resume();
  onlyAsks(acts, other);
  await acts.pass(chance.between(500, 2_000));
  acts.commitsAsEver();
  acts.drain([pod]);
  await acts.pass(chance.between(2_000, 5_000));
  for (const { ports } of replicas) ports.resume();
  await acts.pass(5_000);
}

/** Components are told of the restore last: those who delete pods are quicker. */
async function cellGoesBack(acts: Acts): Promise<void> {
  const { chance, world, cell } = acts;
  const pod = acts.somePod();
  const backup = cell.server.etcd.backup();
  acts.touch(pod);
  await acts.pass(chance.between(3_000, 8_000));
  acts.commits(LATE_MS);
  world.network.serves(cell.name, false);
  acts.later(() => world.network.serves(cell.name, true));
  restoreCellTo(world, cell, backup, chance.chance(0.7));
  acts.remove(pod);
  await acts.pass(chance.between(600, 1_200));
  acts.commitsAsEver();
  acts.drain([pod]);
  await acts.pass(chance.between(600, 1_200));
  world.network.serves(cell.name, true);
  await acts.pass(5_000);
}

async function overtaken(acts: Acts): Promise<void> {
  const { chance, world, cell } = acts;
  const backup = cell.server.etcd.backup();
  acts.remove(acts.somePod());
  await acts.pass(chance.between(15_000, 25_000));
  const old = cell.aggregators;
  acts.silence("aggregator", cell.name);
  cell.aggregators = [world.startAggregator(cell)];
  cell.oldLeaders += old.length;
  acts.later(() => {
    for (const node of old) node.kill();
    cell.oldLeaders -= old.length;
  });
  restoreCellTo(world, cell, backup, chance.chance(0.3));
  await acts.pass(chance.between(3_000, 8_000));
  touchProtector(world, chance);
  await acts.pass(chance.between(20_000, 60_000));
}

/** The storage of `core` is what it was at `backup`; nobody is excused, but replicas that are still to come. */
function goBack(
  { world }: Acts,
  core: ApiServer,
  backup: ReturnType<ApiServer["etcd"]["backup"]>,
  bumped: boolean,
): void {
  for (const stored of core.etcd.range("podprotectors/"))
    for (const [cell, uids] of reservedUids(stored))
      for (const uid of uids) world.exemptions.lost(stored.key.split("/")[2] ?? "", cell, uid);
  world.note(`a core goes back from ${core.etcd.revision} to ${backup.revision}`);
  world.rejections.forget();
  core.etcd.restore(backup, bumped);
  core.reset();
}

/** The Service knows one replica until the accident is over. */
function onlyAsks(acts: Acts, replica: Replica): void {
  const { world } = acts;
  const known = world.webhooks;
  world.webhooks = [replica];
  acts.later(() => {
    world.webhooks = known;
  });
}
