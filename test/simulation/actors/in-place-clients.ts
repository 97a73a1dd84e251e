/**
 * Clients that change pods in place, one pod or all pods of a cell: the image, resources, or something that restarts
 * nothing.
 */
import type { Json } from "../apiserver/etcd.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

const RETRY_MS = 1_000;
const MOST_RETRIES = 5;
/** Most pods are older. */
const DEADLINE_SECONDS = 30;
const DEADLINE_RATE = 0.25;
const BURST_RATE = 0.08;
const DRY_RATE = 0.05;
const STRATEGIC = "application/strategic-merge-patch+json";

export function startInPlaceClients(world: World): void {
  const { inPlaceEveryMs } = world.scenario.features;
  if (inPlaceEveryMs > 0)
    for (const cell of world.cells.values()) tick(world, world.chance.fork(), cell, inPlaceEveryMs);
}

function tick(world: World, chance: Chance, cell: SimulatedCell, everyMs: number): void {
  world.time.timers.after(chance.exponential(everyMs), () => {
    if (!world.faultsActive) return;
    world.coverage.fault("inPlace");
    const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
    const changed = chance.chance(BURST_RATE) ? pods : pods.length === 0 ? [] : [chance.pick(pods)];
    for (const { key } of changed) void changePod(world, chance, cell, key.split("/")[2] ?? "");
    tick(world, chance, cell, everyMs);
  });
}

/** One change of one pod, repeated after a 429; resolves with the last status code. */
async function changePod(world: World, chance: Chance, cell: SimulatedCell, name: string): Promise<number> {
  const isDeadline = world.scenario.features.habits.has("deadlines") && chance.chance(DEADLINE_RATE);
  const kinds = ["image", "image", "image", "cpu", "cpu", "memory", "annotation"] as const;
  const kind = isDeadline ? "deadline" : chance.pick(kinds);
  if (isDeadline) world.coverage.fault("deadlines");
  const body = bodyOf(kind, chance.between(2, 9));
  const isResize = kind === "cpu" || kind === "memory";
  const query = world.faultsActive && chance.chance(DRY_RATE) ? "?dryRun=All" : "";
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}${isResize ? "/resize" : ""}${query}`;
  const retries = chance.between(0, MOST_RETRIES);
  for (let attempt = 0; ; attempt += 1) {
    const response = await cell.server.handle({ method: "PATCH", path, body, contentType: STRATEGIC, user: "client" });
    if (response.status !== 429 || attempt >= retries) return response.status;
    await new Promise<void>((resolve) => world.time.timers.after(RETRY_MS, resolve));
  }
}

function bodyOf(kind: "deadline" | "image" | "cpu" | "memory" | "annotation", value: number): Json {
  switch (kind) {
    case "deadline":
      return { spec: { activeDeadlineSeconds: DEADLINE_SECONDS } };
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
