/**
 * How history gets lost (docs/design.md#lost-history): a core or a cell is restored, a protector is recreated, a cell's
 * entry is removed.
 */
import { removeCells } from "../../../controllers/generator/protectors/remove-cells.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { exemptInFlight } from "../actors/operators.ts";
import type { EtcdBackup, EtcdObject } from "../apiserver/etcd.ts";
import { metadataOf } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE, PROTECTORS, type ProtectorPlan } from "../scenario/scenario.ts";
import { parseStored, reservedUids } from "../truth/stored-protectors.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";
import { type LateLinks, lateLinks } from "./shard-faults.ts";

const BACKUP_AGE_MEAN_MS = 20_000;
const ABSENCE_MEAN_MS = 4_000;
const CALL_TIMEOUT_MS = 10_000;
/**
 * The shortest time to stop a server, replace its storage and start it again. A broken connection is back sooner
 * (docs/decisions/0003-quiet-after-an-outage.md).
 */
const RESTORE_LEAST_MS = 3_000;
const RESTORE_MEAN_MS = 3_000;

/** Restarts a server whose storage was replaced. The server refuses connections for a while. */
export function restartServer(world: World, server: ApiServer, chance: Chance, late?: LateLinks): void {
  server.reset();
  world.network.setServing(server.name, false);
  world.time.timers.after(RESTORE_LEAST_MS + chance.exponential(RESTORE_MEAN_MS), () => {
    world.network.setServing(server.name, true, late?.links);
    if (late !== undefined && late.links.length > 0) {
      world.coverage.rule("shards: one finds a restored cell late");
      world.time.timers.after(late.afterMs, () => world.network.setServing(server.name, true));
    }
  });
}

/** Restores a core's etcd from a backup. Reservations made since the backup are lost until a component notices. */
export function restoreSomeCore(world: World, chance: Chance): void {
  const core = chance.pick([...world.cores.values()]);
  const backup = core.etcd.backup();
  const since: EtcdObject[] = [];
  const ended = core.etcd.observe(({ key, after }) => {
    if (key.startsWith("podprotectors/") && after !== undefined) since.push(after);
  });
  world.time.timers.after(chance.exponential(BACKUP_AGE_MEAN_MS), () => {
    ended();
    if (!world.faultsActive) return;
    for (const stored of since)
      for (const [cell, uids] of reservedUids(stored))
        for (const uid of uids) world.exemptions.admissionLost(stored.key.split("/")[2] ?? "", cell, uid);
    for (const stored of core.etcd.range("podprotectors/")) {
      const kept = reservedUids(backup.objects.get(stored.key));
      const name = stored.key.split("/")[2] ?? "";
      for (const [cell, uids] of reservedUids(stored))
        for (const uid of uids) if (kept.get(cell)?.has(uid) !== true) world.exemptions.add(name, cell, uid);
      exemptInFlight(world, name);
      world.exemptions.uncertain(name);
    }
    world.note(`a core is restored from ${core.etcd.revision} to ${backup.revision}`);
    world.denials.forget();
    core.etcd.restore(backup, chance.chance(0.5));
    world.backups?.coreRestored(core);
    for (const { name } of world.scenario.protectors)
      if (world.coreOf(name) === core)
        world.suspensions.stored(name, core.etcd.get(`podprotectors/${NAMESPACE}/${name}`));
    for (const plan of world.scenario.protectors)
      if (world.coreOf(plan.name) === core) createAgain(world, plan, chance);
    restartServer(world, core, chance);
  });
}

/** The person who keeps a protector by hand notices that the backup lacks it, and creates it again. */
function createAgain(world: World, plan: ProtectorPlan, chance: Chance): void {
  // Where cells keep backups, an aggregator creates it again.
  if (world.backups !== undefined) return;
  const { etcd } = world.coreOf(plan.name);
  const isThere = (): boolean => etcd.get(`podprotectors/${NAMESPACE}/${plan.name}`) !== undefined;
  if (isThere()) return;
  world.time.timers.after(chance.exponential(ABSENCE_MEAN_MS), () => {
    if (isThere()) return;
    exemptInFlight(world, plan.name);
    world.exemptions.uncertain(plan.name);
    world.createProtector(plan);
  });
}

/** Deletes a protector made by hand, which releases it, and creates it again. */
export function recreateSomeProtector(world: World, chance: Chance): void {
  recreateProtector(world, chance.pick(world.scenario.protectors), chance.exponential(ABSENCE_MEAN_MS));
}

export function recreateProtector(world: World, plan: ProtectorPlan, absentMs: number): void {
  const core = world.coreOf(plan.name);
  for (const { restarts } of world.cells.values())
    for (const uid of restarts?.inProgress() ?? []) world.exemptions.notPromised(plan.name, uid);
  const stored = core.etcd.get(`podprotectors/${NAMESPACE}/${plan.name}`);
  for (const [cell, uids] of reservedUids(stored)) for (const uid of uids) world.exemptions.add(plan.name, cell, uid);
  void core.handle({
    ...{ method: "DELETE", path: `${PROTECTORS}/${plan.name}`, contentType: "application/json", user: "operator" },
    body: {},
  });
  world.exemptions.uncertain(plan.name, absentMs);
  world.time.timers.after(absentMs, () => {
    exemptInFlight(world, plan.name);
    world.exemptions.uncertain(plan.name);
    world.createProtector(plan);
  });
}

/** Restores a cell's etcd from a backup: pods that were deleted since live again, and younger pods never existed. */
export function restoreSomeCell(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const backup = cell.server.etcd.backup();
  world.time.timers.after(chance.exponential(BACKUP_AGE_MEAN_MS), () => {
    if (world.faultsActive) restoreCell(world, cell, backup, chance.chance(0.5), chance);
  });
}

/** Without `chance` the server is back at once. */
export function restoreCell(
  world: World,
  cell: SimulatedCell,
  backup: EtcdBackup,
  bumped: boolean,
  chance?: Chance,
): void {
  const { etcd } = cell.server;
  const lastRevision = etcd.revision;
  world.note(`${cell.name} is restored from ${lastRevision} to ${backup.revision}`);
  // Also for a protector that is absent now: whoever creates it again, or counts it first, may not know of the restore.
  for (const { name } of world.scenario.protectors) {
    const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
    const cells = stored === undefined ? undefined : parseStored(stored).status?.cells;
    const epoch = cells?.find(({ cellID }) => cellID === cell.name)?.aggregation?.epoch ?? 0;
    world.exemptions.historyLost(name, cell.name, backup.revision, lastRevision, epoch);
  }
  const before = new Set(cell.admission.unsuperseded());
  const uids = new Set([...before].map(({ uid }) => uid));
  const revision = etcd.restore(backup, bumped);
  // For a restore all API servers are stopped, as the documentation of Kubernetes asks. No server still holds a request
  // that was superseded before. The record of a pod that had ended in the lost history may be settled.
  for (const inFlight of cell.admission.unsuperseded()) {
    const hadEnded = cell.pods.deadAt(inFlight.uid) !== undefined;
    if (!before.has(inFlight) || hadEnded) inFlight.isRevived = true;
    if (!uids.has(inFlight.uid) || hadEnded)
      for (const { name } of world.scenario.protectors) world.exemptions.add(name, cell.name, inFlight.uid);
  }
  world.backups?.cellRestored(cell.name);
  const pods = [...backup.objects].filter(([key]) => key.startsWith("pods/"));
  cell.pods.restored(
    revision,
    pods.map(([key, { value }]) => [key, value] as const),
  );
  if (chance === undefined) cell.server.reset();
  else
    restartServer(world, cell.server, chance, world.scenario.features.shards > 1 ? lateLinks(cell, chance) : undefined);
  cell.kubelet.restarted();
  cell.restarts?.restored();
  for (const uid of cell.restarts?.inProgress() ?? []) world.exemptions.unknown(uid);
}

/** An operator removes a live cell from a protector by annotation, and the generator's code carries it out. */
export async function removeSomeEntry(world: World, chance: Chance): Promise<void> {
  await removeCellEntry(world, chance.pick(world.scenario.protectors).name, chance.pick([...world.cells.keys()]));
}

export async function removeCellEntry(world: World, name: string, cell: string): Promise<void> {
  const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
  if (stored === undefined || metadataOf(stored.value).deletionTimestamp !== undefined) return;
  const api = new ApiClient(world.plainLink(world.coreOf(name)));
  world.exemptions.cellRemoved(name, cell);
  for (const uid of world.cells.get(cell)?.restarts?.inProgress() ?? []) world.exemptions.notPromised(name, uid);
  const calls = { api, timeoutMs: CALL_TIMEOUT_MS, signal: new AbortController().signal };
  await removeCells(calls, parseStored(stored), [cell]);
}
