/** Condition `SourceVanished` of a protector (design 7): whoever looks at one that outlived its source sees that it did. */
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { Condition, PodProtector, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";

const TYPE = "SourceVanished";

export interface StatusCalls {
  readonly api: ApiClient;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export function isNotedAsVanished({ status }: PodProtector): boolean {
  return status?.conditions?.some(({ type, status: value }) => type === TYPE && value === "True") ?? false;
}

function conditionOf(vanished: boolean, generation: number | undefined, time: string): Condition {
  const message = vanished
    ? `The source is gone without having been released: its pods stay protected. The annotation ${RELEASED_ANNOTATION} lets them go`
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

/** Writes the condition and leaves the rest of the status as it is, at the very version that was seen. */
export async function noteSource(
  { api, timeoutMs, signal }: StatusCalls,
  protector: PodProtector,
  vanished: boolean,
  time: string,
): Promise<ApiResult<PodProtector>> {
  const { namespace = "", name, uid, resourceVersion, generation } = protector.metadata;
  const empty = {
    cells: [],
    summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
  };
  const before: PodProtectorStatus = protector.status ?? empty;
  const others = (before.conditions ?? []).filter(({ type }) => type !== TYPE);
  const status = { ...before, conditions: [...others, conditionOf(vanished, generation, time)] };
  return await api.putPodProtectorStatus({ namespace, name, uid, resourceVersion }, status, { timeoutMs, signal });
}
