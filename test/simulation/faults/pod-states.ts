/**
 * States that pods declare themselves: a pre-activity (docs/design.md#owner-probe), and a condition that protectors
 * require beside Ready (docs/design.md#podprotector).
 */

import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Etcd, Json } from "../apiserver/etcd.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import { isGated, isTrue } from "../apiserver/pod-conditions.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";

/** The annotation of a pre-activity. */
export const PRE_ACTIVITY = "pre-activity.xpdb.form3.tech/backup";
/** The condition that protectors require beside Ready. */
export const OWN_CONDITION = "example.com/warm";
const MOST_HELD = 6;
const BACKUP_MEAN_MS = 8_000;
const COLD_MEAN_MS = 5_000;

/** Some pods get a pre-activity annotation, which goes after a while. */
export function startPreActivity(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const { etcd } = cell.server;
  const pods = etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  for (let left = chance.between(1, MOST_HELD); left > 0; left -= 1) {
    const { key } = chance.pick(pods);
    annotate(etcd, key, "wanted");
    world.time.timers.after(chance.exponential(BACKUP_MEAN_MS), () => annotate(etcd, key, undefined));
  }
}

/** Removes all pre-activity annotations, also those that a restored etcd has brought back. */
export function endPreActivities(world: World): void {
  if (world.scenario.features.preActivityEveryMs === 0) return;
  for (const { server } of world.cells.values())
    for (const { key } of server.etcd.range(`pods/${NAMESPACE}/`)) annotate(server.etcd, key, undefined);
}

function annotate(etcd: Etcd, key: string, value: string | undefined): void {
  const stored = etcd.get(key);
  if (stored === undefined) return;
  const { [PRE_ACTIVITY]: found, ...rest } = record(metadataOf(stored.value).annotations);
  if (found === value) return;
  const annotations = value === undefined ? rest : { ...rest, [PRE_ACTIVITY]: value };
  etcd.put(key, { ...stored.value, metadata: { ...metadataOf(stored.value), annotations } }, stored.revision);
}

/** A Ready pod loses the condition for a while. */
export function loseCondition(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  const { key } = chance.pick(pods);
  setCondition(world, key, cell.name, false);
  world.time.timers.after(chance.exponential(COLD_MEAN_MS), () => setCondition(world, key, cell.name, true));
}

function setCondition(world: World, key: string, cell: string, isWarm: boolean): void {
  const found = world.cells.get(cell);
  const stored = found?.server.etcd.get(key);
  if (found === undefined || stored === undefined || record(stored.value.status).phase !== "Running") return;
  if (metadataOf(stored.value).deletionTimestamp !== undefined) return;
  const lastTransitionTime = new Date(world.time.clock.nowMs()).toISOString().replace(/\.\d+Z$/, "Z");
  const condition: Json = { type: OWN_CONDITION, status: isWarm ? "True" : "False", lastTransitionTime };
  found.kubelet.write(stored, { fields: {}, without: [OWN_CONDITION], conditions: [condition] });
}

/** Pods get the condition some time after they have started. */
export function setConditionsOnStart(world: World, chance: Chance): void {
  for (const { name, server } of world.cells.values())
    server.etcd.observe(({ key, after, before }) => {
      if (after === undefined || !key.startsWith("pods/")) return;
      const isStarted = (pod: Json | undefined): boolean => record(pod?.status).phase === "Running";
      if (!isStarted(after.value) || isStarted(before?.value)) return;
      world.time.timers.after(chance.exponential(COLD_MEAN_MS / 5), () => setCondition(world, key, name, true));
    });
}

/** A client that writes the status without the counted condition removes it. */
export function loseGate(world: World, chance: Chance): void {
  const { kubelet, server } = chance.pick([...world.cells.values()]);
  const pods = server.etcd.range(`pods/${NAMESPACE}/`);
  const open = pods.filter(({ value }) => isGated(value) && isTrue(value, COUNTED_CONDITION));
  if (open.length === 0) return;
  const stored = chance.pick(open);
  if (metadataOf(stored.value).deletionTimestamp !== undefined) return;
  world.coverage.rule("a counted condition is lost");
  kubelet.write(stored, { fields: {}, without: [COUNTED_CONDITION], conditions: [] });
}
