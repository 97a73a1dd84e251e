/** Those who change pods in place: one pod, or all of a cell at once; another image, other resources, or something that restarts nothing. */
import type { Json } from "../apiserver/etcd.ts";
import type { Chance } from "../world/random.ts";
import { NAMESPACE, type SimulatedCell, type World } from "../world/world.ts";

const RETRY_MS = 1_000;
const MOST_RETRIES = 5;
const BURST_RATE = 0.08;
const DRY_RATE = 0.05;
const STRATEGIC = "application/strategic-merge-patch+json";

export function startChanges(world: World): void {
  const { changeEveryMs } = world.scenario.features;
  if (changeEveryMs > 0) for (const cell of world.cells.values()) tick(world, world.chance.fork(), cell, changeEveryMs);
}

function tick(world: World, chance: Chance, cell: SimulatedCell, everyMs: number): void {
  world.time.timers.after(chance.exponential(everyMs), () => {
    if (!world.faultsActive) return;
    world.coverage.fault("inPlace");
    const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
    const changed = chance.chance(BURST_RATE) ? pods : pods.length === 0 ? [] : [chance.pick(pods)];
    for (const { key } of changed) void change(world, chance, cell, key.split("/")[2] ?? "");
    tick(world, chance, cell, everyMs);
  });
}

/** One change of one pod, repeated while it is told to come again; resolves with the last status code. */
export async function change(world: World, chance: Chance, cell: SimulatedCell, name: string): Promise<number> {
  const kind = chance.pick(["image", "image", "image", "cpu", "cpu", "memory", "annotation"] as const);
  const body = bodyOf(kind, chance.between(2, 9));
  const isResize = kind === "cpu" || kind === "memory";
  const query = world.faultsActive && chance.chance(DRY_RATE) ? "?dryRun=All" : "";
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}${isResize ? "/resize" : ""}${query}`;
  const retries = chance.between(0, MOST_RETRIES);
  for (let attempt = 0; ; attempt += 1) {
    const reply = await cell.server.handle({ method: "PATCH", path, body, contentType: STRATEGIC, user: "client" });
    if (reply.status !== 429 || attempt >= retries) return reply.status;
    await new Promise<void>((resolve) => world.time.timers.after(RETRY_MS, resolve));
  }
}

function bodyOf(kind: "image" | "cpu" | "memory" | "annotation", value: number): Json {
  switch (kind) {
    case "image":
      return { spec: { containers: [{ name: "app", image: `app:${value}` }] } };
    case "cpu":
      return { spec: { containers: [{ name: "app", resources: { requests: { cpu: `${value * 100}m` } } }] } };
    case "memory":
      return { spec: { containers: [{ name: "app", resources: { requests: { memory: `${value * 64}Mi` } } }] } };
    case "annotation":
      return { metadata: { annotations: { changed: String(value) } } };
  }
}
