/** States of a protector: suspended for a while, or terminating until its finalizer goes. */
import { formatMs } from "../../../shared/schema/time.ts";
import { patchProtector } from "../actors/operators.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE, PROTECTORS } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";
import { recreateProtector } from "./lost-history.ts";

/**
 * A finalizer that is not the generator's. The protector's deletion releases it, and it is enforced until it is gone.
 */
const FINALIZER = "example.com/hold";
const SUSPENDED_MEAN_MS = 12_000;
const TERMINATING_MEAN_MS = 15_000;
const ABSENCE_MEAN_MS = 4_000;

/** Suspends a protector, until a time in its spec or until an operator ends the suspension. */
export function suspend(world: World, chance: Chance): void {
  const { name } = chance.pick(world.scenario.protectors);
  const forMs = chance.exponential(SUSPENDED_MEAN_MS);
  const expires = chance.chance(0.7);
  const until = expires ? formatMs(world.time.clock.nowMs() + forMs) : null;
  patchProtector(world, name, { spec: { suspend: { enabled: true, until, reason: "maintenance" } } });
  if (!expires) world.time.timers.after(forMs, () => patchProtector(world, name, { spec: { suspend: null } }));
}

/** Deletes a protector that a finalizer holds for a while, and creates it again. */
export function terminate(world: World, chance: Chance): void {
  const plan = chance.pick(world.scenario.protectors);
  const heldMs = chance.exponential(TERMINATING_MEAN_MS);
  const absentMs = chance.exponential(ABSENCE_MEAN_MS);
  const core = world.coreOf(plan.name);
  const key = `podprotectors/${NAMESPACE}/${plan.name}`;
  if (core.etcd.get(key) === undefined) return;
  patchProtector(world, plan.name, { metadata: { finalizers: [FINALIZER] } });
  void core.handle({
    ...{ method: "DELETE", path: `${PROTECTORS}/${plan.name}`, contentType: "application/json", user: "operator" },
    body: {},
  });
  world.time.timers.after(heldMs, () => {
    recreateProtector(world, plan, absentMs);
    patchProtector(world, plan.name, { metadata: { finalizers: null } });
  });
}
