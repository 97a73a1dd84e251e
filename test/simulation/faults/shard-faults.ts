/**
 * Cells whose pods are watched in shards (`--pod-shards`, docs/design.md#informers), and the faults of one stream while
 * the others continue. The judge checks each count against every pod at the version of its shard (`truth/position.ts`).
 */
import type { SimulatedLink } from "../apiserver/link.ts";
import type { WatchCache } from "../apiserver/watch-cache.ts";
import type { Features } from "../scenario/features.ts";
import type { Chance } from "../scenario/random.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

const LASTS_MEAN_MS = 8_000;
const SLOW_MEAN_DELAY_MS = 2_500;
const LAG_MOST_MS = 20_000;
const SERVER_RATE = 0.4;
const RESTART_RATE = 0.4;
/** Aggregators with another `--pod-shards`, or that found a server without shards. */
const OTHER_COUNT_RATE = 0.25;
const COUNTS = [1, 2, 4] as const;
/** After a restore a load balancer may add some servers of the cell later than others. */
const LATE_RATE = 0.6;
const LATE_MEAN_MS = 4_000;

/** Returns in how many streams an aggregator that starts watches its pods. */
export function shardCount({ shards, shardsEveryMs }: Features, chance: Chance): number {
  return shardsEveryMs > 0 && chance.chance(OTHER_COUNT_RATE) ? chance.pick(COUNTS) : shards;
}

/** A fault of one stream of one cell, or of the server behind the stream. It ends by itself. */
export function faultShard(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  if (chance.chance(SERVER_RATE)) faultServer(world, chance, [...cell.server.podShards().values()]);
  else faultLink(world, chance, linksOf(cell));
}

function faultLink(world: World, chance: Chance, links: readonly SimulatedLink[]): void {
  if (links.length === 0) return;
  const link = chance.pick(links);
  const kind = chance.pick(["out of reach", "silent", "slow", "cut"] as const);
  world.coverage.rule(`shards: one is ${kind}`);
  if (kind === "cut") {
    link.cut();
    return;
  }
  if (kind === "slow") world.network.setLink(link, { meanDelayMs: SLOW_MEAN_DELAY_MS });
  else world.network.setLink(link, { requestsLost: kind === "out of reach", responsesLost: true });
  world.time.timers.after(chance.exponential(LASTS_MEAN_MS), () => world.network.heal(link));
}

function faultServer(world: World, chance: Chance, caches: readonly WatchCache[]): void {
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

/** Streams that reach a restored cell later than the others. */
export interface LateLinks {
  readonly links: readonly SimulatedLink[];
  readonly afterMs: number;
}

export function lateLinks(cell: SimulatedCell, chance: Chance): LateLinks {
  const links = linksOf(cell).filter(() => chance.chance(LATE_RATE));
  return { links, afterMs: chance.exponential(LATE_MEAN_MS) };
}

/** Ends the lag of every server. */
export function endShardFaults({ server }: SimulatedCell): void {
  for (const cache of server.podShards().values()) cache.extraLagMs = 0;
}

function linksOf({ aggregators }: SimulatedCell): readonly SimulatedLink[] {
  return aggregators.flatMap(({ shardLinks }) => shardLinks);
}
