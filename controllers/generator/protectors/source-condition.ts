/** The condition `SourceVanished` of a protector that stays in force without its source. */
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { Condition, PodProtector, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";
import type { ApiCalls } from "./calls.ts";

const TYPE = "SourceVanished";
const NO_STATUS: PodProtectorStatus = {
  cells: [],
  summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
};

export function hasSourceVanished({ status }: PodProtector): boolean {
  return status?.conditions?.some(({ type, status: value }) => type === TYPE && value === "True") ?? false;
}

function conditionOf(vanished: boolean, generation: number | undefined, time: string): Condition {
  const message = vanished
    ? `The source is gone without a release: its pods stay protected. The annotation ${RELEASED_ANNOTATION} ends that`
    : "The source is there";
  return {
    type: TYPE,
    status: vanished ? "True" : "False",
    reason: vanished ? "SourceMissing" : "SourcePresent",
    message,
    lastTransitionTime: time,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  };
}

/** Writes the condition, and the rest of the status as it was read. `conflict`: the protector has changed since. */
export async function setSourceVanished(
  calls: ApiCalls<"putPodProtectorStatus">,
  protector: PodProtector,
  vanished: boolean,
  time: string,
): Promise<ApiResult<PodProtector>> {
  const { namespace = "", name, uid, resourceVersion, generation } = protector.metadata;
  const before = protector.status ?? NO_STATUS;
  const others = (before.conditions ?? []).filter(({ type }) => type !== TYPE);
  const status = { ...before, conditions: [...others, conditionOf(vanished, generation, time)] };
  return await calls.api.putPodProtectorStatus({ namespace, name, uid, resourceVersion }, status, calls);
}
