/**
 * Finds the pod that an admission request would disrupt (docs/design.md#admission-table): the pod in `oldObject` for a
 * DELETE, an in-place change and a status write, the live pod for an eviction, because an Eviction carries only a name.
 */
import { readySinceMs } from "../../shared/decide/availability/availability.ts";
import { CRITERIA, type Criterion } from "../../shared/decide/state/estimate.ts";
import type { MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import { type Eviction, type PatchOperation, parseEviction } from "../../shared/schema/admission.ts";
import { HEALTH_CRITERION_ANNOTATION } from "../../shared/schema/annotations.ts";
import { type Pod, parseAnyPod } from "../../shared/schema/pod.ts";
import type { Operation } from "../../shared/schema/podprotector.ts";
import { isComparableVersion } from "../../shared/schema/resource-version.ts";
import { HttpError } from "../http/call.ts";
import { type AdmissionRequest, parseOrReject } from "./admission-request.ts";
import type { CellClient, LiveRead } from "./cell-client.ts";
import type { StatusRules } from "./status-change.ts";

/** A pod that the request would disrupt. */
export interface DisruptionTarget {
  readonly kind: "disruption";
  readonly operation: Operation;
  readonly pod: Pod;
  /** Monotonic send time of the live read that `pod` comes from; undefined when `pod` came with the request. */
  readonly podReadMs: number | undefined;
  /** Reads the pod again; undefined when the request can be committed only at the version of `pod`. */
  readonly reread: ((timeoutMs: number) => Promise<LiveRead>) | undefined;
  readonly criterion: Criterion;
  readonly dryRun: boolean;
  /**
   * The pod is not Ready, so only a protector with a criterion other than `Available` can deny: for a status write, or
   * for the deletion of the pod's node.
   */
  readonly mayGoUnhealthy?: boolean;
  /** The eviction lacks the UID precondition that `--require-bound-evictions` asks for. */
  readonly isUnbound?: boolean;
  /** A change by `pods/resize`. */
  readonly isResize?: boolean;
  /** The pod ends some time after the change, whatever its state is then. */
  readonly isDelayed?: boolean;
  /** Completes "the pod may not be ...", where the operation does not say it. */
  readonly done?: string;
  /** Labels after the change, where the change only makes the pod leave the selectors of protectors. */
  readonly labelsAfter?: Pod["labels"];
}

/** Why the request needs no decision. */
export type NoTarget =
  | { readonly kind: "ignored" | "restartsNothing" }
  | { readonly kind: "bound"; readonly patch: readonly PatchOperation[] }
  | { readonly kind: "notFound"; readonly name: string }
  /** A precondition of the eviction does not hold. */
  | {
      readonly kind: "conflict";
      readonly name: string;
      readonly field: "UID" | "resourceVersion";
      readonly wanted: string;
    }
  /** A protector covers the pod of an eviction that lacks a UID precondition. */
  | { readonly kind: "unbound"; readonly namespace: string; readonly name: string }
  /** The pod cannot be read live. */
  | { readonly kind: "unreadable"; readonly message: string };

const IGNORED: NoTarget = { kind: "ignored" };

export interface TargetRules {
  readonly requireBoundEvictions: boolean;
  /** Which status writes are disruptions. */
  readonly statusRules?: StatusRules;
}

/** `leftMs` returns the time that is left. Throws {@link HttpError} for a malformed request. */
export function findDisruptionTarget(
  request: AdmissionRequest,
  cell: CellClient,
  rules: TargetRules,
  leftMs: () => number,
): MaybePromise<DisruptionTarget | NoTarget> {
  if (isPodDeletion(request)) return targetInRequest(request, "DELETE");
  if (isEviction(request)) return evictionTarget(request, cell, rules.requireBoundEvictions, leftMs);
  if (isInPlaceChange(request)) return changeTarget(request);
  if (isStatusWrite(request)) return statusTarget(request, rules.statusRules);
  return IGNORED;
}

export function isPodDeletion(request: AdmissionRequest): boolean {
  return request.operation === "DELETE" && isPods(request) && request.subResource === "";
}

export function isEviction(request: AdmissionRequest): boolean {
  return request.operation === "CREATE" && isPods(request) && request.subResource === "eviction";
}

export function isInPlaceChange(request: AdmissionRequest): boolean {
  const isOfSpec = request.subResource === "" || request.subResource === "resize";
  return request.operation === "UPDATE" && isPods(request) && isOfSpec;
}

export function isStatusWrite(request: AdmissionRequest): boolean {
  return request.operation === "UPDATE" && isPods(request) && request.subResource === "status";
}

/**
 * A request about a node, which may end the node's pods (docs/design.md#node-deletion). kube-apiserver takes finalizers
 * from a write of the node's status, too.
 */
export function isNode({ operation, group, resource, subResource }: AdmissionRequest): boolean {
  if (group !== "" || resource !== "nodes") return false;
  if (subResource === "status") return operation === "UPDATE";
  return subResource === "" && (operation === "DELETE" || operation === "UPDATE");
}

function isPods(request: AdmissionRequest): boolean {
  return request.group === "" && request.resource === "pods";
}

/** kube-apiserver commits these operations at the version of `oldObject`, or sends another admission request. */
function targetInRequest(request: AdmissionRequest, operation: "DELETE" | "UPDATE"): DisruptionTarget {
  requireObject(request, "oldObject");
  const pod = parseOrReject("Pod in request.oldObject", () => parseAnyPod(request.oldObject));
  if (!isComparableVersion(pod.resourceVersion) || pod.resourceVersion === "0")
    throw new HttpError(400, "malformed Pod in request.oldObject: metadata.resourceVersion is no positive integer");
  const criterion = criterionOf(pod.annotations) ?? "Available";
  const { dryRun } = request;
  return { kind: "disruption", operation, pod, podReadMs: undefined, reread: undefined, criterion, dryRun };
}

function requireObject(request: AdmissionRequest, field: "object" | "oldObject"): void {
  if (request[field] !== undefined && request[field] !== null) return;
  throw new HttpError(400, `malformed AdmissionReview: ${request.operation} carries no request.${field}`);
}

/** An in-place change of the pod's spec or resources (docs/design.md#in-place-changes). */
async function changeTarget(request: AdmissionRequest): Promise<DisruptionTarget | NoTarget> {
  const target = targetInRequest(request, "UPDATE");
  requireObject(request, "object");
  const { changedLabels, endsSooner, restartedContainers } = await import("./in-place-change.ts");
  const { object, oldObject } = request;
  if (endsSooner(oldObject, object)) return { ...target, isDelayed: true, done: "ended by activeDeadlineSeconds" };
  const isResize = request.subResource === "resize";
  if (restartedContainers(oldObject, object).length > 0) return isResize ? { ...target, isResize } : target;
  const labelsAfter = changedLabels(oldObject, object);
  return labelsAfter === undefined ? { kind: "restartsNothing" } : { ...target, labelsAfter, done: "relabelled" };
}

/**
 * A status write by which a pod ends, or is taken out of service (docs/design.md#status-writes). kube-apiserver accepts
 * labels in a status write, too: changed labels are decided like those of any other update.
 */
async function statusTarget(request: AdmissionRequest, rules?: StatusRules): Promise<DisruptionTarget | NoTarget> {
  const { DEFAULT_STATUS_RULES, isFact, statusChange } = await import("./status-change.ts");
  const inForce = rules ?? DEFAULT_STATUS_RULES;
  if (isFact(request, inForce)) return IGNORED;
  const change = statusChange(request, inForce);
  if (change === undefined) return await relabelTarget(request);
  const target = targetInRequest(request, change.operation);
  const isReady = readySinceMs(target.pod) !== undefined;
  // A readiness gate takes only a Ready pod out of service.
  if (!isReady && change.operation === "UPDATE") return await relabelTarget(request);
  return isReady ? { ...target, ...change } : { ...target, ...change, mayGoUnhealthy: true };
}

/** A status write that disrupts nothing, unless it changes labels. */
async function relabelTarget(request: AdmissionRequest): Promise<DisruptionTarget | NoTarget> {
  const { changedLabels } = await import("./in-place-change.ts");
  const labelsAfter = changedLabels(request.oldObject, request.object);
  if (labelsAfter === undefined) return IGNORED;
  return { ...targetInRequest(request, "UPDATE"), labelsAfter, done: "relabelled" };
}

export function criterionOf(annotations: Readonly<Record<string, string>> | null | undefined): Criterion | undefined {
  const value = annotations?.[HEALTH_CRITERION_ANNOTATION];
  return CRITERIA.find((criterion) => criterion === value);
}

async function evictionTarget(
  request: AdmissionRequest,
  cell: CellClient,
  requireBoundEvictions: boolean,
  leftMs: () => number,
): Promise<DisruptionTarget | NoTarget> {
  const eviction = parseOrReject("Eviction in request.object", () => parseEviction(request.object));
  const { namespace } = request;
  const name = nameOf(request, eviction);
  if (name === "" || namespace === "") {
    throw new HttpError(400, "malformed AdmissionReview: an eviction needs request.namespace and the pod's name");
  }
  const live = await readPod(cell, namespace, name, leftMs);
  if (live.kind !== "found") return live;
  const { pod } = live;
  const conflict = conflictOf(eviction, pod);
  if (conflict !== undefined) return conflict;
  return {
    kind: "disruption",
    operation: "EVICT",
    ...(requireBoundEvictions && preconditionUid(eviction) === undefined ? { isUnbound: true } : {}),
    pod,
    podReadMs: live.sentMs,
    reread: (timeoutMs) => rereadPod(cell, pod, timeoutMs),
    criterion: criterionOf(eviction.metadata?.annotations) ?? criterionOf(pod.annotations) ?? "Available",
    dryRun: request.dryRun || (eviction.deleteOptions?.dryRun?.includes("All") ?? false),
  };
}

export function nameOf(request: AdmissionRequest, eviction: Eviction): string {
  return request.name || (eviction.metadata?.name ?? "");
}

export async function readPod(
  cell: CellClient,
  namespace: string,
  name: string,
  leftMs: () => number,
): Promise<Extract<LiveRead, { kind: "found" }> | NoTarget> {
  if (cell.readPod === undefined) {
    const message =
      `cell ${cell.id} is configured without a kubeconfig, so the pod of an ` +
      `eviction cannot be read: give --cell ${cell.id}=KUBECONFIG`;
    return { kind: "unreadable", message };
  }
  const live = await cell.readPod(namespace, name, leftMs());
  if (live.kind === "gone") return { kind: "notFound", name };
  return live.kind === "failed" ? { kind: "unreadable", message: live.message } : live;
}

/** Another pod of the same name counts as gone. */
async function rereadPod(cell: CellClient, pod: Pod, timeoutMs: number): Promise<LiveRead> {
  const live: LiveRead = (await cell.readPod?.(pod.namespace, pod.name, timeoutMs)) ?? { kind: "gone" };
  return live.kind === "found" && live.pod.uid !== pod.uid ? { kind: "gone" } : live;
}

function conflictOf(eviction: Eviction, { name, uid, resourceVersion }: Pod): NoTarget | undefined {
  const wanted = eviction.deleteOptions?.preconditions;
  if (typeof wanted?.uid === "string" && wanted.uid !== uid)
    return { kind: "conflict", name, field: "UID", wanted: wanted.uid };
  if (typeof wanted?.resourceVersion === "string" && wanted.resourceVersion !== resourceVersion) {
    return { kind: "conflict", name, field: "resourceVersion", wanted: wanted.resourceVersion };
  }
  return undefined;
}

export function preconditionUid(eviction: Eviction): string | undefined {
  return eviction.deleteOptions?.preconditions?.uid ?? undefined;
}
