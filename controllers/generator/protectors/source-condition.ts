/** The conditions of a protector that stays in force without its source, or while the source waits to be deleted. */
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { PROTECT_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { Condition, PodProtector, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";
import type { ApiCalls } from "./calls.ts";

export const DELETION_HELD =
  "The source is being deleted while it asks for replicas: it and its pods stay until it is scaled to zero, or is " +
  `annotated with ${PROTECT_ANNOTATION}=false. A deletion can be undone: docs/operations.md#delete-a-workload`;

/**
 * State of the source that a protector was made for. `deleting`: the deletion waits, because the source asks for
 * replicas.
 */
export type SourceState = "present" | "vanished" | "deleting";

const NO_STATUS: PodProtectorStatus = {
  cells: [],
  summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
};

interface StateCondition {
  readonly type: string;
  readonly state: SourceState;
  /** The reason while the condition is true, and the reason while it is false. */
  readonly reasons: readonly [string, string];
  readonly messages: readonly [string, string];
}

const CONDITIONS: readonly StateCondition[] = [
  {
    type: "SourceVanished",
    state: "vanished",
    reasons: ["SourceMissing", "SourcePresent"],
    messages: [
      "The source is gone without a release: its pods stay protected until it is created again, or given up by " +
        "kubectl podseidon release",
      "The source is there",
    ],
  },
  {
    type: "SourceDeleting",
    state: "deleting",
    reasons: ["AsksForReplicas", "NotDeleted"],
    messages: [DELETION_HELD, "The source does not wait to be deleted"],
  },
];

export function sourceStateOf({ status }: PodProtector): SourceState {
  const isTrue = ({ type }: StateCondition): boolean =>
    status?.conditions?.some((condition) => condition.type === type && condition.status === "True") ?? false;
  return CONDITIONS.find(isTrue)?.state ?? "present";
}

/**
 * Writes the conditions, and the rest of the status unchanged. The result is `conflict` if the protector has changed
 * since it was read.
 */
export async function setSourceState(
  calls: ApiCalls<"putPodProtectorStatus">,
  protector: PodProtector,
  state: SourceState,
  time: string,
): Promise<ApiResult<PodProtector>> {
  const { generation } = protector.metadata;
  const before = protector.status ?? NO_STATUS;
  const conditions = CONDITIONS.reduce<readonly Condition[]>((present, row) => {
    const [index, status] = row.state === state ? [0 as const, "True"] : [1 as const, "False"];
    const found = present.find(({ type }) => type === row.type);
    // A condition that was never true is absent.
    if (found === undefined ? status === "False" : found.status === status) return present;
    const condition: Condition = {
      ...{ type: row.type, status, reason: row.reasons[index], message: row.messages[index], lastTransitionTime: time },
      ...(generation === undefined ? {} : { observedGeneration: generation }),
    };
    return [...present.filter(({ type }) => type !== row.type), condition];
  }, before.conditions ?? []);
  const status = { ...before, conditions: [...conditions] };
  return await calls.api.putPodProtectorStatus(protector.metadata, status, calls);
}
