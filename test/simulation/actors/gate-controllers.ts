/**
 * Controllers that update pods in place as OpenKruise does: they take a pod out of service by its readiness gate, which
 * is a reviewed status write, change its image, and open the gate again when the container runs.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import { isGateClosed, isTrue, VOLUNTARY_GATE } from "../apiserver/pod-conditions.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

/** Part of the spec of pods that controllers update in place. */
export const VOLUNTARY_GATES: Json = { readinessGates: [{ conditionType: VOLUNTARY_GATE }] };
const STRATEGIC = "application/strategic-merge-patch+json";
const OPEN_MEAN_MS = 200;
const GRACE_MEAN_MS = 1_000;
const POLL_MS = 1_000;
const MOST_POLLS = 20;
/** The controller dies, and another one finds the gate closed, much later. */
const DEATH_RATE = 0.15;
const TAKEN_OVER_MEAN_MS = 30_000;

/** Gates open when their pods have started. */
export function openGatesOnStart(world: World, chance: Chance): void {
  for (const cell of world.cells.values())
    cell.server.etcd.observe(({ key, after, before }) => {
      if (after === undefined || !key.startsWith(`pods/${NAMESPACE}/`)) return;
      const isStarted = (pod: Json | undefined): boolean => record(pod?.status).phase === "Running";
      if (!isStarted(after.value) || isStarted(before?.value)) return;
      world.time.timers.after(chance.exponential(OPEN_MEAN_MS), () => openGate(world, cell, key));
    });
}

/** All gates open, also those that a restored etcd has brought back closed. */
export function openAllGates(world: World): void {
  for (const cell of world.cells.values())
    for (const { key } of cell.server.etcd.range(`pods/${NAMESPACE}/`)) openGate(world, cell, key);
}

function openGate(world: World, { server, kubelet }: SimulatedCell, key: string): void {
  const stored = server.etcd.get(key);
  if (stored === undefined || record(stored.value.status).phase !== "Running" || !isGateClosed(stored.value)) return;
  if (metadataOf(stored.value).deletionTimestamp !== undefined) return;
  kubelet.write(stored, { fields: {}, without: [VOLUNTARY_GATE], conditions: [gate(world, "True")] });
}

function gate(world: World, status: string): Json {
  const lastTransitionTime = new Date(Math.floor(world.time.clock.nowMs() / 1000) * 1000).toISOString();
  return { type: VOLUNTARY_GATE, status, lastTransitionTime };
}

/** Updates one pod. */
export async function updateByGate(world: World, chance: Chance): Promise<void> {
  const cell = chance.pick([...world.cells.values()]);
  const { server } = cell;
  const open = server.etcd.range(`pods/${NAMESPACE}/`).filter(({ value }) => isTrue(value, VOLUNTARY_GATE));
  if (open.length === 0) return;
  const { key } = chance.pick(open);
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${key.split("/")[2] ?? ""}`;
  const patch = (where: string, body: Json): Promise<{ readonly status: number }> =>
    server.handle({ method: "PATCH", path: where, body, contentType: STRATEGIC, user: "kruise" });
  const { status } = await patch(`${path}/status`, { status: { conditions: [gate(world, "False")] } });
  if (status === 429) world.coverage.rule("gates: a pod stays in service");
  if (status >= 300) return;
  world.coverage.rule("gates: a pod is taken out of service");
  await sleep(world.time, chance.exponential(GRACE_MEAN_MS));
  const isDead = chance.chance(DEATH_RATE);
  if (isDead) await sleep(world.time, chance.exponential(TAKEN_OVER_MEAN_MS));
  else await patch(path, { spec: { containers: [{ name: "app", image: `app:${chance.between(2, 9)}` }] } });
  for (let polls = 0; polls < MOST_POLLS && !isDone(server.etcd.get(key)?.value); polls += 1)
    await sleep(world.time, POLL_MS);
  if (server.etcd.get(key) !== undefined) world.coverage.rule("gates: a pod is back in service");
  openGate(world, cell, key);
}

/** The kubelet has seen the change, and the container runs. */
function isDone(pod: Json | undefined): boolean {
  if (pod === undefined) return true;
  const isSeen = record(pod.status).observedGeneration === metadataOf(pod).generation;
  return isSeen && isTrue(pod, "ContainersReady") && text(metadataOf(pod).deletionTimestamp) === undefined;
}
