/** Those who delete pods: single deletions, bursts, evictions and drains, some of them patient, some not. */
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import type { Chance } from "../random.ts";
import { NAMESPACE, type SimulatedCell, type World } from "./world.ts";

const RETRY_MS = 1_000;
const MOST_RETRIES = 5;
const BURST_RATE = 0.06;
const FORCE_RATE = 0.1;

export function startClients(world: World): void {
  for (const cell of world.cells.values()) tick(world, world.chance.fork(), cell);
}

function tick(world: World, chance: Chance, cell: SimulatedCell): void {
  world.time.timers.after(chance.exponential(world.scenario.deletionEveryMs), () => {
    if (!world.faultsActive) return;
    const burst = chance.chance(BURST_RATE) ? chance.between(4, 12) : 1;
    for (let index = 0; index < burst; index += 1) void disrupt(world, chance, cell);
    tick(world, chance, cell);
  });
}

/** One deletion or eviction of one pod, repeated while it is told to come again; resolves with the last status code. */
export async function disrupt(world: World, chance: Chance, cell: SimulatedCell, only?: string): Promise<number> {
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return 404;
  const pod = pods.find(({ key }) => key === only) ?? chance.pick(pods);
  const name = pod.key.split("/")[2] ?? "";
  const uid = text(metadataOf(pod.value).uid) ?? "";
  const evict = chance.chance(world.scenario.evictionShare);
  const isDry = world.faultsActive && chance.chance(world.scenario.faults.dryRunRate);
  if (isDry) world.coverage.fault("dryRun");
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}${evict ? "/eviction" : ""}`;
  const options: Json = {
    ...(chance.chance(FORCE_RATE) ? { gracePeriodSeconds: 0 } : {}),
    ...(chance.chance(0.3) ? { preconditions: { uid } } : {}),
    ...(isDry ? { dryRun: ["All"] } : {}),
  };
  const body: Json = evict
    ? { metadata: { name, namespace: NAMESPACE }, ...(isDry || chance.chance(0.5) ? { deleteOptions: options } : {}) }
    : options;
  const retries = chance.between(0, MOST_RETRIES);
  for (let attempt = 0; ; attempt += 1) {
    const reply = await cell.server.handle({
      method: evict ? "POST" : "DELETE",
      path,
      body,
      contentType: "application/json",
      user: "client",
    });
    if (reply.status !== 429 || attempt >= retries) return reply.status;
    await new Promise<void>((resolve) => world.time.timers.after(RETRY_MS, resolve));
  }
}
