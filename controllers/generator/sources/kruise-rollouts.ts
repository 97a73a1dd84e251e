/**
 * What a workload asks for while OpenKruise's Rollouts change its spec to steer the workload's own controller, and keep
 * the former values in annotations. Unreadable ones count as absent.
 */
import { recordOrEmpty } from "../../../shared/schema/check.ts";
import type { ObjectMeta } from "../../../shared/schema/podprotector.ts";

const PREFIX = "rollouts.kruise.io/";
/** Rollouts' `MaxReadySeconds`: no pod ever becomes available for its controller, which then keeps the former pods. */
const NEVER = 2_147_483_646;

/** The strategy by which Rollouts replace the pods of a Deployment that they have paused, under Recreate. */
export function strategyInBatches({ annotations }: ObjectMeta): unknown {
  return kept(annotations?.[`${PREFIX}deployment-strategy`]).rollingUpdate;
}

/** A pod that never counted could be deleted at any time. */
export function readySeconds({ annotations }: ObjectMeta, stated: number): number {
  if (stated !== NEVER) return stated;
  const former = Number(kept(annotations?.[`${PREFIX}original-deployment-strategy`]).minReadySeconds);
  return Number.isInteger(former) && former > 0 && former < NEVER ? former : 0;
}

function kept(text = ""): Readonly<Record<string, unknown>> {
  try {
    return recordOrEmpty(JSON.parse(text));
  } catch {
    return {};
  }
}
