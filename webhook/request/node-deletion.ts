/**
 * The deletion of a node (docs/design.md#node-deletion), which takes every pod that runs there: pod garbage collection
 * sets them to Failed and deletes them. Finds the node's pods, by a quorum read of the cell.
 */
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { withQuery } from "../../shared/kube/client/api-path.ts";
import { describeFailure } from "../../shared/kube/client/api-result.ts";
import { retryThrottled } from "../../shared/kube/client/retry-throttled.ts";
import { isOversized } from "../../shared/kube/client/transport.ts";
import { checkKind } from "../../shared/kube/stream/raw-object.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { isRecord, valueAt } from "../../shared/schema/check.ts";
import { MAX_NAME_LENGTH, requireShort } from "../../shared/schema/lengths.ts";
import { type Pod, parseAnyPod } from "../../shared/schema/pod.ts";
import { SchemaError } from "../../shared/schema/schema-error.ts";
import { HttpError } from "../http/call.ts";
import { type AdmissionRequest, parseOrReject } from "./admission-request.ts";
import type { ReviewedDeletions } from "./reviewed-deletions.ts";

/** Finished pods are left out: those of Jobs may stay by the thousands. */
const UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed";
const PAGE_SIZE = 500;
/** Of a page after one that was too large for a response: so many pods fit, as large as etcd and JSON let them be. */
const SMALL_PAGE_SIZE = 8;
/** Several times as many pods as Kubernetes supports on one node. */
const MAX_PODS = 2_000;
/** Part of the request's time that the list may take; the rest is for the decision. */
const LIST_FRACTION = 0.6;

export type PodsOfNode =
  | { readonly kind: "listed"; readonly pods: readonly Pod[] }
  | { readonly kind: "failed"; readonly message: string };

/**
 * Lists the pods of a node that are at stake, never from a cache that may be old. A user who may create pods can put
 * any number of any size on a node: the others are read and dropped.
 */
export type ListPods = (node: string, timeoutMs: number, isAtStake: (pod: Pod) => boolean) => Promise<PodsOfNode>;

/** Those of garbage collection. kube-apiserver takes them off by itself where a deletion asks for another policy. */
const COLLECTION_FINALIZERS: readonly unknown[] = ["foregroundDeletion", "orphan"];

function finalizersOf(node: unknown): readonly unknown[] {
  const finalizers = valueAt(node, "metadata", "finalizers");
  return Array.isArray(finalizers) ? finalizers : [];
}

/**
 * As {@link removedNode}, for the reviews of one cell in their order. kube-apiserver decides to remove a node when it
 * reads the node, before it calls the webhook: a node without finalizers is removed even if it gets a finalizer
 * meanwhile. After a denial, kube-apiserver calls the webhook once more, with the present version of the node. The
 * second review has to be decided like the first.
 */
export function removedNodeSince(
  reviewed: ReviewedDeletions,
  { cell, request, nowMs }: { readonly cell: string; readonly request: AdmissionRequest; readonly nowMs: number },
): string | undefined {
  const removed = removedNode(request);
  const uid = valueAt(request.oldObject, "metadata", "uid");
  if (request.operation !== "DELETE" || typeof uid !== "string" || uid.length > MAX_NAME_LENGTH) return removed;
  const key = `${cell}/${uid}`;
  if (removed === undefined) return reviewed.mayBeAskedAgain(key, nowMs) ? nameOf(request) : undefined;
  // A dry run removes nothing.
  if (!request.dryRun) reviewed.add(key, nowMs);
  return removed;
}

/**
 * Name of the node that the request removes; undefined when it removes none. A node with finalizers stays until the
 * last one is taken off. Its controller drains the node first, and the update that takes it off removes the node. A
 * deletion removes a node that has only {@link COLLECTION_FINALIZERS}.
 */
export function removedNode(request: AdmissionRequest): string | undefined {
  const { operation, object, oldObject } = request;
  if (!isRecord(oldObject))
    throw new HttpError(400, `malformed AdmissionReview: ${operation} carries no request.oldObject`);
  const isTerminating = typeof valueAt(oldObject, "metadata", "deletionTimestamp") === "string";
  const isRemoved =
    operation === "DELETE"
      ? finalizersOf(oldObject).every((finalizer) => COLLECTION_FINALIZERS.includes(finalizer))
      : isTerminating && finalizersOf(oldObject).length > 0 && finalizersOf(object).length === 0;
  return isRemoved ? nameOf(request) : undefined;
}

function nameOf({ name, oldObject }: AdmissionRequest): string {
  // A deletecollection names no node in the request.
  const found = name || valueAt(oldObject, "metadata", "name");
  if (typeof found !== "string" || found === "")
    throw new HttpError(400, "malformed AdmissionReview: a node without a name");
  parseOrReject("Node in request.oldObject", () => requireShort(found, "metadata.name", MAX_NAME_LENGTH));
  return found;
}

interface Page {
  readonly pods: readonly Pod[];
  readonly token: string | undefined;
}

function parsePage(raw: unknown): Page {
  checkKind(raw, "PodList");
  const items = valueAt(raw, "items");
  if (!Array.isArray(items)) throw new SchemaError("items", "is required");
  const token = valueAt(raw, "metadata", "continue");
  return { pods: items.map(parseAnyPod), token: typeof token === "string" && token !== "" ? token : undefined };
}

export function createPodLister(api: Pick<ApiClient, "get">, ports: Pick<Ports, "clock" | "timers">): ListPods {
  const { clock } = ports;
  return async (node, timeoutMs, isAtStake) => {
    const pods: Pod[] = [];
    const endMs = clock.monotonicMs() + timeoutMs * LIST_FRACTION;
    let limit = PAGE_SIZE;
    let token: string | undefined;
    while (clock.monotonicMs() < endMs) {
      const query = { fieldSelector: `spec.nodeName=${node},${UNFINISHED}`, limit, continue: token };
      const result = await retryThrottled(ports, endMs, (leftMs) =>
        api.get(withQuery("/api/v1/pods", query), parsePage, { timeoutMs: leftMs, isList: true }),
      );
      if (result.kind === "unavailable" && isOversized(result.error) && limit > SMALL_PAGE_SIZE) {
        limit = SMALL_PAGE_SIZE;
        continue;
      }
      if (result.kind !== "ok") return { kind: "failed", message: describeFailure(result) };
      pods.push(...result.object.pods.filter(isAtStake));
      if (pods.length > MAX_PODS) return { kind: "failed", message: `there are more than ${MAX_PODS} pods on it` };
      token = result.object.token;
      if (token === undefined) return { kind: "listed", pods };
    }
    return { kind: "failed", message: "there was no time for all of them" };
  };
}
