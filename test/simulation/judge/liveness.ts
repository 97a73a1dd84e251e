/**
 * The bounds of L1 (docs/design.md#invariants) after faults have ended: R1 and R2 settle a record one reconcile after
 * the event, long before R3 could. One pod is deleted. Another pod is reviewed for a deletion that never commits, and
 * changes afterwards.
 */
import { metadataOf, text } from "../apiserver/objects.ts";
import { parseStored, reservedUids } from "../truth/stored-protectors.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

/** A reconcile, the shortest time between two writes, and conflicts. Far below the settle period. */
const RECONCILE_MS = 15_000;
const REVIEW_MS = 12_000;

export async function checkBounds(world: World): Promise<void> {
  const [cell] = world.cells.values();
  if (cell === undefined) return;
  const pods = cell.server.etcd
    .range("pods/default/")
    .filter(({ value }) => metadataOf(value).deletionTimestamp === undefined);
  const [first, second] = pods;
  if (first === undefined || second === undefined) return;
  await superseded(world, cell, first.key);
  await died(world, cell, second.key);
}

/** R2: the reviewed deletion can't commit any more, because the pod has changed. */
async function superseded(world: World, cell: SimulatedCell, key: string): Promise<void> {
  const { etcd } = cell.server;
  const found = etcd.get(key);
  if (found === undefined) return;
  cell.server.settings.abandonNext?.();
  const name = key.split("/")[2] ?? "";
  void cell.server.handle({
    ...{ method: "DELETE", path: `/api/v1/namespaces/default/pods/${name}`, contentType: "application/json" },
    ...{ body: {}, user: "client" },
  });
  await world.time.advance(REVIEW_MS);
  const now = etcd.get(key);
  if (now === undefined || now.revision !== found.revision) return;
  const annotations = { touched: "by the check of L1" };
  etcd.put(key, { ...now.value, metadata: { ...metadataOf(now.value), annotations } }, now.revision);
  await world.time.advance(RECONCILE_MS);
  expectGone(world, cell, text(metadataOf(now.value).uid) ?? "", "R2", `${key} has changed since it was reviewed`);
}

/** R1: the pod is terminating. */
async function died(world: World, cell: SimulatedCell, key: string): Promise<void> {
  const { etcd } = cell.server;
  const found = etcd.get(key);
  if (found === undefined) return;
  const name = key.split("/")[2] ?? "";
  void cell.server.handle({
    ...{ method: "DELETE", path: `/api/v1/namespaces/default/pods/${name}`, contentType: "application/json" },
    ...{ body: {}, user: "client" },
  });
  await world.time.advance(REVIEW_MS + RECONCILE_MS);
  const uid = text(metadataOf(found.value).uid) ?? "";
  if (cell.pods.deadAt(uid) !== undefined) expectGone(world, cell, uid, "R1", `${key} is dead`);
}

function expectGone(world: World, cell: SimulatedCell, uid: string, rule: string, why: string): void {
  for (const core of world.cores.values())
    for (const stored of core.etcd.range("podprotectors/"))
      if (reservedUids(stored).get(cell.name)?.has(uid) === true)
        world.violation(
          "L1",
          `${parseStored(stored).metadata.name}: ${why}, and its record exists ${RECONCILE_MS} ms later (${rule})`,
        );
}
