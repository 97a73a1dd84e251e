/**
 * Protectors near etcd's limit, because annotations or managed fields fill them: some writes are refused, among them
 * those that add a reservation.
 */
import { jsonOf } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import type { World } from "../world/world.ts";

const FULL_MEAN_MS = 8_000;
/** A reservation has some 200 bytes. */
const MOST_ROOM_BYTES = 400;
/** The object was larger before the limit: only what shrinks it is stored. */
const MOST_OVER_BYTES = 100;

export function fillProtectors(world: World, chance: Chance): void {
  const { name, etcd } = chance.pick([...world.cores.values()]);
  const sizes = etcd.range("podprotectors/").map(({ value }) => jsonOf(value).length);
  if (sizes.length === 0) return;
  const { objectLimitBytes } = world.overrides;
  objectLimitBytes.set(name, Math.max(...sizes) + chance.between(-MOST_OVER_BYTES, MOST_ROOM_BYTES));
  const end = (): boolean => objectLimitBytes.delete(name);
  world.time.timers.after(chance.exponential(FULL_MEAN_MS), end);
  world.onEnd(end);
}
