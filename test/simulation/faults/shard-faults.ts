/**
 * Cells whose pods are watched in shards (`--pod-shards`, design 5.4), and what befalls one stream while the others go on. Every count is
 * checked against what each pod was at the version of its shard (`position.ts`).
 */
import type { SimulatedLink } from "../apiserver/link.ts";
import type { WatchCache } from "../apiserver/watch-cache.ts";
import type { Features } from "../world/features.ts";
import type { Chance } from "../world/random.ts";
import type { SimulatedCell, World } from "../world/world.ts";

const LASTS_MEAN_MS = 8_000;
const SLOW_MEAN_DELAY_MS = 2_500;
const LAG_MOST_MS = 20_000;
const SERVER_RATE = 0.4;
const RESTART_RATE = 0.4;
/** Aggregators of another version of the manifests, or that found a server which offers no shards. */
const OTHER_COUNT_RATE = 0.25;
const COUNTS = [1, 2, 4] as const;
/** A load balancer may take some servers of a restored cell in service before others. */
const LATE_RATE = 0.6;
const LATE_MEAN_MS = 4_000;

/** In how many streams an aggregator that starts watches its pods. */
export function shardCount({ shards, shardEveryMs }: Features, chance: Chance): number {
  return shardEveryMs > 0 && chance.chance(OTHER_COUNT_RATE) ? chance.pick(COUNTS) : shards;
}

/** Something befalls one stream of one cell, or the server that it comes from, and ends by itself. */
export function strikeShard(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  if (chance.chance(SERVER_RATE)) strikeServer(world, chance, [...cell.server.podShards().values()]);
  else strikeLink(world, chance, linksOf(cell));
}

function strikeLink(world: World, chance: Chance, links: readonly SimulatedLink[]): void {
  if (links.length === 0) return;
  const link = chance.pick(links);
  const kind = chance.pick(["out of reach", "silent", "slow", "cut"] as const);
  world.coverage.rule(`shards: one is ${kind}`);
  if (kind === "cut") {
    link.cut();
    return;
  }
  if (kind === "slow") world.network.setOne(link, { meanDelayMs: SLOW_MEAN_DELAY_MS });
  else world.network.setOne(link, { requestsLost: kind === "out of reach", responsesLost: true });
  world.time.timers.after(chance.exponential(LASTS_MEAN_MS), () => world.network.heal(link));
}

function strikeServer(world: World, chance: Chance, caches: readonly WatchCache[]): void {
  if (caches.length === 0) return;
  const cache = chance.pick(caches);
  if (chance.chance(RESTART_RATE)) {
    world.coverage.rule("shards: one server restarts");
    cache.restart();
    return;
  }
  world.coverage.rule("shards: one lags");
  cache.extraLagMs = chance.fraction() * LAG_MOST_MS;
  world.time.timers.after(chance.exponential(LASTS_MEAN_MS), () => {
    cache.extraLagMs = 0;
  });
}

/** Streams that reach a restored cell later than the rest. */
export interface Late {
  readonly links: readonly SimulatedLink[];
  readonly afterMs: number;
}

export function lateShards(cell: SimulatedCell, chance: Chance): Late {
  const links = linksOf(cell).filter(() => chance.chance(LATE_RATE));
  return { links, afterMs: chance.exponential(LATE_MEAN_MS) };
}

/** Faults are over: no server lags any more. */
export function calmShards({ server }: SimulatedCell): void {
  for (const cache of server.podShards().values()) cache.extraLagMs = 0;
}

function linksOf({ aggregators }: SimulatedCell): readonly SimulatedLink[] {
  return aggregators.flatMap(({ shardLinks }) => shardLinks);
}
