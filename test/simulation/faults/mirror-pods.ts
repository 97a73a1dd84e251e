/**
 * Mirrors of static pods that match the protectors. Anybody may delete one: that stops nothing, and its kubelet creates
 * it again. So a mirror must not count.
 */
import { isMirror, MIRROR, record } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
const MIRRORS = 4;
const KUBELET = "system:node:node";

/** Creates a mirror, or deletes one that is there. */
export async function mirror(world: World, chance: Chance): Promise<void> {
  const cell = chance.pick([...world.cells.values()]);
  const name = `web-static-${chance.between(1, MIRRORS)}`;
  if (cell.server.etcd.get(`pods/${NAMESPACE}/${name}`) === undefined) return await create(world, cell, name);
  const isEvicted = chance.chance(0.3);
  const metadata = { name, namespace: NAMESPACE };
  const { status } = isEvicted
    ? await call(cell, "POST", `${PODS}/${name}/eviction`, { apiVersion: "policy/v1", kind: "Eviction", metadata })
    : await call(cell, "DELETE", `${PODS}/${name}`, {});
  if (status < 300) world.coverage.rule("a mirror pod is deleted");
}

async function create(world: World, cell: SimulatedCell, name: string): Promise<void> {
  const lastTransitionTime = new Date(Math.floor(world.time.clock.nowMs() / 1000) * 1000).toISOString();
  const conditions = ["ContainersReady", "Ready"].map((type) => ({ type, status: "True", lastTransitionTime }));
  const { status } = await call(cell, "POST", PODS, {
    metadata: { name, labels: { app: "web", tier: "a" }, annotations: { [MIRROR]: name } },
    spec: { nodeName: "node", containers: [{ name: "app", image: "app:1" }] },
    status: { phase: "Running", conditions },
  });
  if (status < 300) world.coverage.rule("a mirror pod is there");
}

function call({ server }: SimulatedCell, method: string, path: string, body: object): ReturnType<typeof server.handle> {
  const user = method === "POST" && path === PODS ? KUBELET : "client";
  return server.handle({ method, path, body: record(body), contentType: "application/json", user });
}

/** Static pods end. */
export function endMirrors(world: World): void {
  for (const { server } of world.cells.values())
    for (const { key, value } of server.etcd.range(`pods/${NAMESPACE}/`)) if (isMirror(value)) server.etcd.delete(key);
}
