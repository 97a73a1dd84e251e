/** How history is lost (design 5.4): restores of a core and of a cell, a protector made again, a cell's entry removed. */
import { removeCells } from "../../../controllers/generator/protectors/remove-cells.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { exemptUnderWay } from "../actors/operators.ts";
import type { Backup, Stored } from "../apiserver/etcd.ts";
import { metadataOf } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { parse, reservedUids } from "../truth/stored-protectors.ts";
import type { Chance } from "../world/random.ts";
import type { ProtectorPlan } from "../world/scenario.ts";
import { NAMESPACE, PROTECTORS, type SimulatedCell, type World } from "../world/world.ts";
import { type Late, lateShards } from "./shard-faults.ts";

const BACKUP_AGE_MEAN_MS = 20_000;
const ABSENCE_MEAN_MS = 4_000;
const CALL_TIMEOUT_MS = 10_000;
/** Stopping a server, replacing its storage and starting it again takes longer than a connection that breaks (decision 3). */
const RESTORE_LEAST_MS = 3_000;
const RESTORE_MEAN_MS = 3_000;

/** The server's storage was replaced just now: it is away for a while. */
export function restart(world: World, server: ApiServer, chance: Chance, late?: Late): void {
  server.reset();
  world.network.serves(server.name, false);
  world.time.timers.after(RESTORE_LEAST_MS + chance.exponential(RESTORE_MEAN_MS), () => {
    world.network.serves(server.name, true, late?.links);
    if (late !== undefined && late.links.length > 0) {
      world.coverage.rule("shards: one finds a restored cell late");
      world.time.timers.after(late.afterMs, () => world.network.serves(server.name, true));
    }
  });
}

/** The core's etcd goes back to a backup; what was admitted since then is lost until somebody notices. */
export function restoreCore(world: World, chance: Chance): void {
  const core = chance.pick([...world.cores.values()]);
  const backup = core.etcd.backup();
  const since: Stored[] = [];
  const ended = core.etcd.observe(({ key, after }) => {
    if (key.startsWith("podprotectors/") && after !== undefined) since.push(after);
  });
  world.time.timers.after(chance.exponential(BACKUP_AGE_MEAN_MS), () => {
    ended();
    if (!world.faultsActive) return;
    for (const stored of since)
      for (const [cell, uids] of reservedUids(stored))
        for (const uid of uids) world.exemptions.lost(stored.key.split("/")[2] ?? "", cell, uid);
    for (const stored of core.etcd.range("podprotectors/")) {
      const kept = reservedUids(backup.objects.get(stored.key));
      const name = stored.key.split("/")[2] ?? "";
      for (const [cell, uids] of reservedUids(stored))
        for (const uid of uids) if (kept.get(cell)?.has(uid) !== true) world.exemptions.add(name, cell, uid);
      exemptUnderWay(world, name);
      world.exemptions.uncertain(name);
    }
    world.note(`a core goes back from ${core.etcd.revision} to ${backup.revision}`);
    world.rejections.forget();
    core.etcd.restore(backup, chance.chance(0.5));
    world.copies?.coreRestored(core);
    for (const { name } of world.scenario.protectors)
      if (world.coreOf(name) === core)
        world.suspensions.stored(name, core.etcd.get(`podprotectors/${NAMESPACE}/${name}`));
    for (const plan of world.scenario.protectors) if (world.coreOf(plan.name) === core) makeAgain(world, plan, chance);
    restart(world, core, chance);
  });
}

/** Whoever keeps a protector notices that it is not in the backup, and makes it again. */
function makeAgain(world: World, plan: ProtectorPlan, chance: Chance): void {
  // There it is an aggregator that makes it again.
  if (world.copies !== undefined) return;
  const { etcd } = world.coreOf(plan.name);
  const isThere = (): boolean => etcd.get(`podprotectors/${NAMESPACE}/${plan.name}`) !== undefined;
  if (isThere()) return;
  world.time.timers.after(chance.exponential(ABSENCE_MEAN_MS), () => {
    if (isThere()) return;
    exemptUnderWay(world, plan.name);
    world.exemptions.uncertain(plan.name);
    world.createProtector(plan);
  });
}

/** A protector made by hand is deleted, which releases it, and made again. */
export function recreate(world: World, chance: Chance): void {
  recreateOf(world, chance.pick(world.scenario.protectors), chance.exponential(ABSENCE_MEAN_MS));
}

export function recreateOf(world: World, plan: ProtectorPlan, absentMs: number): void {
  const core = world.coreOf(plan.name);
  for (const { restarts } of world.cells.values())
    for (const uid of restarts?.underWay() ?? []) world.exemptions.unpromised(plan.name, uid);
  const stored = core.etcd.get(`podprotectors/${NAMESPACE}/${plan.name}`);
  for (const [cell, uids] of reservedUids(stored)) for (const uid of uids) world.exemptions.add(plan.name, cell, uid);
  void core.handle({
    ...{ method: "DELETE", path: `${PROTECTORS}/${plan.name}`, contentType: "application/json", user: "operator" },
    body: {},
  });
  world.exemptions.uncertain(plan.name, absentMs);
  world.time.timers.after(absentMs, () => {
    exemptUnderWay(world, plan.name);
    world.exemptions.uncertain(plan.name);
    world.createProtector(plan);
  });
}

/** The cell's etcd goes back to a backup: pods that were deleted since then live again, younger ones were never there. */
export function restoreCell(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const backup = cell.server.etcd.backup();
  world.time.timers.after(chance.exponential(BACKUP_AGE_MEAN_MS), () => {
    if (world.faultsActive) restoreCellTo(world, cell, backup, chance.chance(0.5), chance);
  });
}

/** Without a `chance` the server is back at once. */
export function restoreCellTo(
  world: World,
  cell: SimulatedCell,
  backup: Backup,
  bumped: boolean,
  chance?: Chance,
): void {
  const { etcd } = cell.server;
  const before = etcd.revision;
  world.note(`${cell.name} goes back from ${before} to ${backup.revision}`);
  // Also for one that is not there just now: who makes it again, or counts it first, may not know of the restore.
  for (const { name } of world.scenario.protectors) {
    const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
    const cells = stored === undefined ? undefined : parse(stored).status?.cells;
    const epoch = cells?.find(({ cellID }) => cellID === cell.name)?.aggregation?.epoch ?? 0;
    world.exemptions.historyOver(name, cell.name, backup.revision, before, epoch);
  }
  const bound = new Set(cell.reviews.committable());
  const uids = new Set([...bound].map(({ uid }) => uid));
  const revision = etcd.restore(backup, bumped);
  // The API servers are stopped for a restore (the documentation of Kubernetes), so what was superseded before it is carried out by none.
  for (const flight of cell.reviews.committable()) {
    if (!bound.has(flight)) flight.isRevived = true;
    if (!uids.has(flight.uid))
      for (const { name } of world.scenario.protectors) world.exemptions.add(name, cell.name, flight.uid);
  }
  world.copies?.cellRestored(cell.name);
  const pods = [...backup.objects].filter(([key]) => key.startsWith("pods/"));
  cell.pods.restored(
    revision,
    pods.map(([key, { value }]) => [key, value] as const),
  );
  if (chance === undefined) cell.server.reset();
  else restart(world, cell.server, chance, world.scenario.features.shards > 1 ? lateShards(cell, chance) : undefined);
  cell.kubelet.restarted();
  cell.restarts?.restored();
  for (const uid of cell.restarts?.underWay() ?? []) world.exemptions.unknown(uid);
}

/** Somebody asks for a cell to be removed from a protector, although it is alive; the generator does it. */
export async function removeCell(world: World, chance: Chance): Promise<void> {
  await removeCellOf(world, chance.pick(world.scenario.protectors).name, chance.pick([...world.cells.keys()]));
}

export async function removeCellOf(world: World, name: string, cell: string): Promise<void> {
  const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
  if (stored === undefined || metadataOf(stored.value).deletionTimestamp !== undefined) return;
  const api = new ApiClient(world.plainLink(world.coreOf(name)));
  world.exemptions.cellRemoved(name, cell);
  for (const uid of world.cells.get(cell)?.restarts?.underWay() ?? []) world.exemptions.unpromised(name, uid);
  const calls = { api, timeoutMs: CALL_TIMEOUT_MS, signal: new AbortController().signal };
  await removeCells(calls, parse(stored), [cell]);
}
