/** Pods that say of themselves what protectors ask for: something to be done before they go (design 9), a condition of one's own (design 4). */

import type { Answered } from "../actors/admission-requests.ts";
import type { Etcd, Json } from "../apiserver/etcd.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import type { Chance } from "../world/random.ts";
import { NAMESPACE, type World } from "../world/world.ts";

type Violate = (invariant: string, message: string) => void;

const PRE_ACTIVITY = "pre-activity.xpdb.form3.tech/backup";
/** Beside Ready, where the worlds' protectors ask for it. */
export const WARM = "example.com/warm";
const MOST_HELD = 6;
const BACKUP_MEAN_MS = 8_000;
const COLD_MEAN_MS = 5_000;
/** Reasons for which a pod goes whatever is left to do. */
const WHATEVER: ReadonlySet<string> = new Set([
  ...["Finished", "Terminating", "Mirror", "Pending", "PinnedPending", "Forced", "Suspended", "NotProtected"],
]);

/** Something has to be done before the pod goes; it is done after a while. */
export function hold(world: World, chance: Chance): void {
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

/** All is done, with whatever came back with a restored etcd, too. */
export function releaseHeld(world: World): void {
  if (world.scenario.features.holdEveryMs === 0) return;
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

/** A deletion carries its pod as it is reviewed: one that is held back does not go. */
export function checkHeld({ request, allowed, reasons, isOnlyWarned }: Answered, violation: Violate): void {
  if (!allowed || isOnlyWarned || request.operation !== "DELETE" || reasons.length === 0) return;
  const { name, annotations } = metadataOf(record(request.oldObject));
  if (record(annotations)[PRE_ACTIVITY] === undefined || reasons.some((reason) => WHATEVER.has(reason))) return;
  violation("pre-activity", `${String(name)} was let go (${reasons.join()}), and something is left to do`);
}

/** The pod is Ready, and says that it is not warm. */
export function chill(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  const { key } = chance.pick(pods);
  warm(world, key, cell.name, false);
  world.time.timers.after(chance.exponential(COLD_MEAN_MS), () => warm(world, key, cell.name, true));
}

function warm(world: World, key: string, cell: string, isWarm: boolean): void {
  const found = world.cells.get(cell);
  const stored = found?.server.etcd.get(key);
  if (found === undefined || stored === undefined || record(stored.value.status).phase !== "Running") return;
  if (metadataOf(stored.value).deletionTimestamp !== undefined) return;
  const lastTransitionTime = new Date(world.time.clock.nowMs()).toISOString().replace(/\.\d+Z$/, "Z");
  const condition: Json = { type: WARM, status: isWarm ? "True" : "False", lastTransitionTime };
  found.kubelet.write(stored, { fields: {}, without: [WARM], conditions: [condition] });
}

/** Pods get warm some time after they have started. */
export function warmUp(world: World, chance: Chance): void {
  for (const { name, server } of world.cells.values())
    server.etcd.observe(({ key, after, before }) => {
      if (after === undefined || !key.startsWith("pods/")) return;
      const isStarted = (pod: Json | undefined): boolean => record(pod?.status).phase === "Running";
      if (!isStarted(after.value) || isStarted(before?.value)) return;
      world.time.timers.after(chance.exponential(COLD_MEAN_MS / 5), () => warm(world, key, name, true));
    });
}
