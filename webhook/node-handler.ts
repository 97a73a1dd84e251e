/**
 * Handles the deletion of a node, from its name to the response (docs/design.md#node-deletion), as `handler.ts` does
 * for a pod. Loaded with the first of them.
 */
import { readySinceMs } from "../shared/decide/availability/availability.ts";
import type { MaybePromise } from "../shared/runtime/maybe-promise.ts";
import type { Pod } from "../shared/schema/pod.ts";
import type { AdmissionRequest } from "./request/admission-request.ts";
import type { CellClient } from "./request/cell-client.ts";
import { criterionOf } from "./request/disruption-target.ts";
import { exemptionOf } from "./request/exemption.ts";
import { removedNodeSince } from "./request/node-deletion.ts";
import type { ReviewedDeletions } from "./request/reviewed-deletions.ts";
import { decideAll } from "./reserve/decide-all.ts";
import type { Disruption } from "./reserve/pipeline.ts";
import type { Verdict } from "./reserve/verdict.ts";
import type { AdmissionResponse } from "./respond/admission-response.ts";
import type { DenialContext } from "./respond/denial-outlook.ts";
import { withCriterion } from "./respond/health-criterion.ts";
import { responseToNode, responseToUnknownPods } from "./respond/node-response.ts";

/**
 * Decisions of one deletion, one for each protector of each pod: each takes 5 KB until all are made. A node has some
 * hundred pods, and a pod one protector or two; but a tenant may make thousands over each of its pods.
 */
const MAX_DECISIONS = 5_000;

export interface NodeDeletion extends Pick<Disruption, "arrivedMs" | "deadlineMs" | "isCallerGone"> {
  readonly request: AdmissionRequest;
  /** Of the caller. */
  readonly address: string | undefined;
  readonly cell: CellClient;
  readonly pipeline: {
    readonly decide: (disruption: Disruption) => MaybePromise<Verdict>;
    readonly protectsNothing?: (cell: string) => boolean;
    readonly countsUnready?: (pod: Pod) => boolean;
    readonly onlyWarns?: (pod: Pod) => boolean;
    readonly protectorsOf?: (pod: Pod) => number;
  };
  readonly context: DenialContext;
  readonly reviewed: ReviewedDeletions;
  readonly leftMs: () => number;
  /** True when the pod's force-delete annotation is followed. */
  readonly bypassOf: (pod: Pod) => MaybePromise<Pick<Disruption, "forced" | "noProtect">>;
}

interface HandledNode {
  readonly response: AdmissionResponse;
  readonly disruptions: readonly Disruption[];
}

export async function handleNodeDeletion(deletion: NodeDeletion): Promise<HandledNode> {
  const { request, cell, pipeline, context } = deletion;
  const node = removedNodeSince(deletion.reviewed, { cell: cell.id, request, nowMs: deletion.arrivedMs });
  if (node === undefined) return { response: { outcome: "ignored" }, disruptions: [] };
  if (pipeline.protectsNothing?.(cell.id) === true) return { response: { outcome: "unprotected" }, disruptions: [] };
  const decisions = new Map<string, number>();
  let left = MAX_DECISIONS;
  const listed = await cell.listPods?.(node, deletion.leftMs(), (pod) => {
    if (left < 0 || !isAtStake(pod, deletion)) return false;
    const protectors = pipeline.protectorsOf?.(pod) ?? 0;
    left -= protectors;
    decisions.set(pod.namespace, (decisions.get(pod.namespace) ?? 0) + protectors);
    return true;
  });
  if (listed?.kind === "listed" && left < 0)
    return { response: responseToUnknownPods(node, tooMany(decisions)), disruptions: [] };
  if (listed?.kind !== "listed") {
    const why = `cell ${cell.id} is configured without a kubeconfig: give --cell ${cell.id}=KUBECONFIG`;
    return { response: responseToUnknownPods(node, listed?.message ?? why), disruptions: [] };
  }
  const disruptions = await Promise.all(listed.pods.map((pod) => disruptionOf(pod, deletion)));
  const verdict = await decideAll(pipeline, disruptions);
  const response = withCriteria(responseToNode(node, verdict, context));
  return { response: { ...response, node, dryRun: request.dryRun }, disruptions };
}

function tooMany(decisions: ReadonlyMap<string, number>): string {
  const [most] = [...decisions].sort(([, one], [, other]) => other - one);
  return `its pods have more than ${MAX_DECISIONS} protectors together, most of them in namespace ${most?.[0]}`;
}

/** Told where a pod of the node goes by another health criterion. */
function withCriteria(response: AdmissionResponse): AdmissionResponse {
  if (response.outcome !== "allowed") return response;
  for (const { decision } of response.decisions ?? []) {
    const criterion = decision.kind === "allowed" ? decision.decision.facts.criterion : undefined;
    if (criterion !== undefined) return withCriterion(response, criterion);
  }
  return response;
}

/**
 * A pod that is not Ready keeps a node only where a protector counts it. The webhook configuration leaves out the
 * project's own namespace.
 */
function isAtStake(pod: Pod, { context: { ownNamespace }, pipeline }: NodeDeletion): boolean {
  if (pod.namespace === ownNamespace) return false;
  const exemption = exemptionOf(pod, ownNamespace);
  if (exemption !== undefined && exemption !== "Pending") return false;
  return (exemption === undefined && readySinceMs(pod) !== undefined) || pipeline.countsUnready?.(pod) === true;
}

/** A DELETE: pod garbage collection is asked again for each pod, at the version that it finds. */
async function disruptionOf(pod: Pod, deletion: NodeDeletion): Promise<Disruption> {
  const { request, cell, arrivedMs, deadlineMs, isCallerGone, bypassOf } = deletion;
  return {
    ...{ cell: cell.id, operation: "DELETE", pod, podReadMs: undefined, reread: undefined },
    ...(await bypassOf(pod)),
    ...{ criterion: criterionOf(pod.annotations) ?? "Available", dryRun: request.dryRun },
    ...(readySinceMs(pod) === undefined ? { mayGoUnhealthy: true } : {}),
    ...{ arrivedMs, deadlineMs, isCallerGone, caller: { address: deletion.address, username: request.user.username } },
  };
}
