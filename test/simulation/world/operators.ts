/** What people do to protectors and pods while everything runs: edits, restores, re-creation, force, drains. */
import { metadataOf, text } from "../apiserver/objects.ts";
import type { Chance } from "../random.ts";
import { reservedUids } from "./checks.ts";
import { disrupt } from "./clients.ts";
import { FORCE_ANNOTATION } from "./reviews.ts";
import { NAMESPACE, PROTECTORS, type World } from "./world.ts";

const BACKUP_AGE_MEAN_MS = 20_000;
const ABSENCE_MEAN_MS = 4_000;

export function editSpec(world: World, chance: Chance): void {
  const total = world.scenario.cells * world.scenario.podsPerCell;
  const minAvailable = Math.max(1, Math.floor(total * (0.4 + 0.55 * chance.fraction())));
  const minReadySeconds = chance.chance(0.3) ? chance.pick([0, 5, 20]) : undefined;
  const spec = { minAvailable, ...(minReadySeconds === undefined ? {} : { minReadySeconds }) };
  patch(world, chance.pick(world.scenario.protectors).name, { spec });
}

/** The selector comes to cover other pods. */
export function editSelector(world: World, chance: Chance): void {
  const { name, labels, minAvailable } = chance.pick(world.scenario.protectors);
  const isNarrow = chance.chance(0.5);
  world.exemptions.uncertain(name);
  exemptUnderWay(world, name);
  // A merge patch takes a label out of the selector by null.
  const matchLabels = { ...labels, tier: isNarrow ? "a" : null };
  patch(world, name, {
    spec: { selector: { matchLabels }, minAvailable: isNarrow ? Math.ceil(minAvailable / 3) : minAvailable },
  });
}

/** Somebody else writes the object, so that compare-and-swaps fail. */
export function touchProtector(world: World, chance: Chance): void {
  const { name } = chance.pick(world.scenario.protectors);
  patch(world, name, { metadata: { annotations: { touched: String(world.time.elapsedMs) } } });
}

/** A pod is marked to go whatever the count, and goes. */
export function forceDelete(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  const { key, value, revision } = chance.pick(pods);
  world.exemptions.force(text(metadataOf(value).uid) ?? "");
  const annotations = { [FORCE_ANNOTATION]: "asked for" };
  cell.server.etcd.put(key, { ...value, metadata: { ...metadataOf(value), annotations } }, revision);
  void disrupt(world, chance, cell, key);
}

/** A drain of everything, in every cell at once. */
export function burst(world: World, chance: Chance): void {
  for (const cell of world.cells.values())
    for (const { key } of cell.server.etcd.range(`pods/${NAMESPACE}/`)) void disrupt(world, chance, cell, key);
}

/** The core's etcd goes back to a backup; what was admitted since then is lost until somebody notices. */
export function restoreCore(world: World, chance: Chance): void {
  const backup = world.core.etcd.backup();
  world.time.timers.after(chance.exponential(BACKUP_AGE_MEAN_MS), () => {
    if (!world.faultsActive) return;
    for (const stored of world.core.etcd.range("podprotectors/")) {
      const kept = reservedUids(backup.objects.get(stored.key));
      const name = stored.key.split("/")[2] ?? "";
      for (const [cell, uids] of reservedUids(stored))
        for (const uid of uids) if (kept.get(cell)?.has(uid) !== true) world.exemptions.add(name, cell, uid);
      exemptUnderWay(world, name);
      world.exemptions.uncertain(name);
    }
    world.note(`the core goes back from ${world.core.etcd.revision} to ${backup.revision}`);
    world.rejections.forget();
    world.core.etcd.restore(backup, chance.chance(0.5));
    world.core.reset();
  });
}

/** A protector made by hand is deleted, which releases it, and made again. */
export function recreate(world: World, chance: Chance): void {
  const plan = chance.pick(world.scenario.protectors);
  const absentMs = chance.exponential(ABSENCE_MEAN_MS);
  const stored = world.core.etcd.get(`podprotectors/${NAMESPACE}/${plan.name}`);
  for (const [cell, uids] of reservedUids(stored)) for (const uid of uids) world.exemptions.add(plan.name, cell, uid);
  void world.core.handle({
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

/** What was admitted before the protector covered it (design 5.9, S1). */
function exemptUnderWay(world: World, name: string): void {
  for (const { name: cell, reviews } of world.cells.values())
    for (const { uid } of reviews.committable()) world.exemptions.add(name, cell, uid);
}

function patch(world: World, name: string, body: Readonly<Record<string, unknown>>): void {
  void world.core.handle({
    ...{
      method: "PATCH",
      path: `${PROTECTORS}/${name}`,
      contentType: "application/merge-patch+json",
      user: "operator",
    },
    body,
  });
}
