/** What a protector goes through: suspended for a while, deleted and held by a finalizer. */
import { formatMs } from "../../../shared/schema/time.ts";
import { patch } from "../actors/operators.ts";
import type { Chance } from "../world/random.ts";
import { NAMESPACE, PROTECTORS, type World } from "../world/world.ts";
import { recreateOf } from "./lost-history.ts";

/** Whoever holds it: a protector of no generator is released by its deletion, and enforced for as long as it is there. */
const FINALIZER = "example.com/hold";
const SUSPENDED_MEAN_MS = 12_000;
const TERMINATING_MEAN_MS = 15_000;
const ABSENCE_MEAN_MS = 4_000;

/** With an end that comes by itself, or until somebody switches it off. */
export function suspend(world: World, chance: Chance): void {
  const { name } = chance.pick(world.scenario.protectors);
  const forMs = chance.exponential(SUSPENDED_MEAN_MS);
  const expires = chance.chance(0.7);
  const until = expires ? formatMs(world.time.clock.nowMs() + forMs) : null;
  patch(world, name, { spec: { suspend: { enabled: true, until, reason: "maintenance" } } });
  if (!expires) world.time.timers.after(forMs, () => patch(world, name, { spec: { suspend: null } }));
}

/** Deleted, and there until its finalizer goes; made again afterwards. */
export function terminate(world: World, chance: Chance): void {
  const plan = chance.pick(world.scenario.protectors);
  const heldMs = chance.exponential(TERMINATING_MEAN_MS);
  const absentMs = chance.exponential(ABSENCE_MEAN_MS);
  const core = world.coreOf(plan.name);
  const key = `podprotectors/${NAMESPACE}/${plan.name}`;
  if (core.etcd.get(key) === undefined) return;
  patch(world, plan.name, { metadata: { finalizers: [FINALIZER] } });
  void core.handle({
    ...{ method: "DELETE", path: `${PROTECTORS}/${plan.name}`, contentType: "application/json", user: "operator" },
    body: {},
  });
  world.time.timers.after(heldMs, () => {
    recreateOf(world, plan, absentMs);
    patch(world, plan.name, { metadata: { finalizers: null } });
  });
}
