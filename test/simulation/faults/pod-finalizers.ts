/**
 * Finalizers of pods: a controller of somebody else adds its own and takes it away when the pod is terminating, the
 * garbage collector that of a foreground deletion. A pod that has ended stays until then.
 */
import type { EtcdObject } from "../apiserver/etcd.ts";
import { metadataOf } from "../apiserver/objects.ts";
import { FOREGROUND } from "../apiserver/pod-deletion.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

const FINALIZER = "example.com/drain";
const HELD_MEAN_MS = 6_000;

/** Controllers let go of the terminating pods of each cell from here on. */
export function releasePods(world: World, chance: Chance): void {
  for (const cell of world.cells.values())
    cell.server.etcd.observe(({ after, before }) => {
      if (after === undefined || !isHeld(after) || (before !== undefined && isHeld(before))) return;
      const isForeground = finalizersOf(after).includes(FOREGROUND);
      world.coverage.rule(isForeground ? "finalizers: a foreground deletion" : "finalizers: a pod is held");
      world.time.timers.after(chance.exponential(HELD_MEAN_MS), () => letGo(world, cell, after.key));
    });
}

export function addFinalizer(world: World, chance: Chance): void {
  const { server } = chance.pick([...world.cells.values()]);
  const pods = server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  const { key, value, revision } = chance.pick(pods);
  // kube-apiserver takes no new finalizers of an object that is being deleted.
  if (metadataOf(value).deletionTimestamp !== undefined) return;
  server.etcd.put(key, { ...value, metadata: { ...metadataOf(value), finalizers: [FINALIZER] } }, revision);
}

/** No pod is held any more, also none that a restored etcd has brought back. */
export function endFinalizers(world: World): void {
  for (const cell of world.cells.values())
    for (const { key } of cell.server.etcd.range(`pods/${NAMESPACE}/`)) letGo(world, cell, key);
}

/** Where the pod has no grace left, nobody else has to remove it. */
function letGo(world: World, { server: { etcd } }: SimulatedCell, key: string): void {
  const stored = etcd.get(key);
  if (stored === undefined || finalizersOf(stored).length === 0) return;
  const { finalizers: _, ...metadata } = metadataOf(stored.value);
  const isOver = metadata.deletionTimestamp !== undefined && metadata.deletionGracePeriodSeconds === 0;
  if (isOver) world.coverage.rule("finalizers: the pod goes with its last one");
  if (isOver) etcd.delete(key, stored.revision);
  else etcd.put(key, { ...stored.value, metadata }, stored.revision);
}

function isHeld(stored: EtcdObject): boolean {
  return metadataOf(stored.value).deletionTimestamp !== undefined && finalizersOf(stored).length > 0;
}

function finalizersOf({ value }: EtcdObject): readonly unknown[] {
  const { finalizers } = metadataOf(value);
  return Array.isArray(finalizers) ? finalizers : [];
}
