import type { MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import { type Eviction, parseEviction } from "../../shared/schema/admission.ts";
import { HEALTH_CRITERION_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { parsePod } from "../../shared/schema/pod.ts";
import type { Operation } from "../../shared/schema/podprotector.ts";
import type { LiveRead } from "../reserve/pending.ts";
import { describeUnbound } from "../respond/deny-response.ts";
import {
  type AdmissionRequest,
  type AdmissionResponse,
  BadReview,
  type DenyStatus,
  orBadReview,
} from "./admission-request.ts";
import type { CellClient } from "./cell-client.ts";
import { bindingPatch, boundUid, isDryRun } from "./eviction-precondition.ts";

export const CRITERIA = ["Available", "Ready", "Running", "Scheduled"] as const;
/** Which count of the protector is held against its minimum (design 12). */
export type Criterion = (typeof CRITERIA)[number];

/** What a review is about. */
export type DisruptionTarget =
  | {
      readonly kind: "disruption";
      readonly operation: Operation;
      readonly pod: Pod;
      readonly podReadMs: number | undefined;
      readonly reread: ((timeoutMs: number) => Promise<LiveRead>) | undefined;
      readonly criterion: Criterion;
      readonly dryRun: boolean;
    }
  /** Answered as it is; `outcome` is a metric label. */
  | {
      readonly kind: "answer";
      readonly outcome: "ignored" | "restartsNothing" | "bound" | "notFound" | "conflict" | "unbound";
      readonly answer: AdmissionResponse;
    }
  /** The pod can't be read live. */
  | { readonly kind: "failed"; readonly message: string };

export interface DisruptionTargetOptions {
  readonly requireBoundEvictions: boolean;
}

function criterionOf(annotations: Readonly<Record<string, string>> | null | undefined): Criterion | undefined {
  const value = annotations?.[HEALTH_CRITERION_ANNOTATION];
  return CRITERIA.find((criterion) => criterion === value);
}

function deletion(request: AdmissionRequest): DisruptionTarget {
  if (request.oldObject === undefined || request.oldObject === null) {
    throw new BadReview(400, "malformed AdmissionReview: the review of a DELETE carries no request.oldObject");
  }
  const pod = orBadReview("Pod in request.oldObject", () => parsePod(request.oldObject));
  return {
    kind: "disruption",
    operation: "DELETE",
    pod,
    podReadMs: undefined,
    reread: undefined,
    criterion: criterionOf(pod.annotations) ?? "Available",
    dryRun: request.dryRun,
  };
}

/** A change in place: of the pod's spec, or of its resources (design 10). It is committed at the version that is reviewed, or reviewed again. */
async function changeOf(request: AdmissionRequest): Promise<DisruptionTarget> {
  for (const [field, object] of [
    ["oldObject", request.oldObject],
    ["object", request.object],
  ] as const) {
    if (object === undefined || object === null) {
      throw new BadReview(400, `malformed AdmissionReview: the review of an UPDATE carries no request.${field}`);
    }
  }
  const pod = orBadReview("Pod in request.oldObject", () => parsePod(request.oldObject));
  const { restartedContainers } = await import("./in-place-change.ts");
  if (restartedContainers(request.oldObject, request.object).length === 0) {
    return { kind: "answer", outcome: "restartsNothing", answer: {} };
  }
  return {
    kind: "disruption",
    operation: "UPDATE",
    pod,
    podReadMs: undefined,
    reread: undefined,
    criterion: criterionOf(pod.annotations) ?? "Available",
    dryRun: request.dryRun,
  };
}

function notFound(name: string): DisruptionTarget {
  const refusal: DenyStatus = { code: 404, reason: "NotFound", message: `pods "${name}" not found` };
  return { kind: "answer", outcome: "notFound", answer: { refusal } };
}

function precondition(name: string, field: string, wanted: string, found: string): DisruptionTarget {
  const message = `the ${field} in the precondition (${wanted}) does not match the ${field} of pod ${name} (${found}): it is another one by now`;
  return { kind: "answer", outcome: "conflict", answer: { refusal: { code: 409, reason: "Conflict", message } } };
}

/** The eviction's pod, read live because an Eviction carries its name alone. */
async function readTarget(
  cell: CellClient,
  namespace: string,
  name: string,
  budgetMs: () => number,
): Promise<LiveRead | { readonly kind: "failed"; readonly message: string }> {
  if (cell.readPod === undefined) {
    const message = `cell ${cell.id} is configured without a kubeconfig, so the pod of an eviction cannot be read: give --cell ${cell.id}=KUBECONFIG`;
    return { kind: "failed", message };
  }
  return cell.readPod(namespace, name, budgetMs());
}

/** The precondition that does not hold any more, as an answer. */
function violated(eviction: Eviction, pod: Pod): DisruptionTarget | undefined {
  const { uid, resourceVersion } = eviction.deleteOptions?.preconditions ?? {};
  if (uid !== undefined && uid !== null && uid !== pod.uid) return precondition(pod.name, "UID", uid, pod.uid);
  if (resourceVersion !== undefined && resourceVersion !== null && resourceVersion !== pod.resourceVersion) {
    return precondition(pod.name, "resourceVersion", resourceVersion, pod.resourceVersion);
  }
  return undefined;
}

async function evictionOf(
  request: AdmissionRequest,
  cell: CellClient,
  options: DisruptionTargetOptions,
  budgetMs: () => number,
): Promise<DisruptionTarget> {
  const eviction = orBadReview("Eviction in request.object", () => parseEviction(request.object));
  const name = request.name || (eviction.metadata?.name ?? "");
  const { namespace } = request;
  if (name === "" || namespace === "") {
    throw new BadReview(400, "malformed AdmissionReview: an eviction needs request.namespace and the pod's name");
  }
  const live = await readTarget(cell, namespace, name, budgetMs);
  if (live.kind === "failed") return live;
  if (live.kind === "gone") return notFound(name);
  const { pod } = live;
  const violation = violated(eviction, pod);
  if (violation !== undefined) return violation;
  if (options.requireBoundEvictions && boundUid(eviction) === undefined) {
    const refusal = describeUnbound({ operation: "EVICT", namespace, pod: name });
    return { kind: "answer", outcome: "unbound", answer: { refusal } };
  }
  return {
    kind: "disruption",
    operation: "EVICT",
    pod,
    podReadMs: live.sentMs,
    reread: (timeoutMs) => rereadSame(cell, pod, timeoutMs),
    criterion: criterionOf(eviction.metadata?.annotations) ?? criterionOf(pod.annotations) ?? "Available",
    dryRun: request.dryRun || isDryRun(eviction),
  };
}

/** A live read of the very pod that was read before: another one of its name is no answer. */
async function rereadSame(cell: CellClient, pod: Pod, timeoutMs: number): Promise<LiveRead> {
  const live = await (cell.readPod?.(pod.namespace, pod.name, timeoutMs) ??
    Promise.resolve<LiveRead>({ kind: "gone" }));
  return live.kind === "found" && live.pod.uid !== pod.uid ? { kind: "gone" } : live;
}

export function isPodDeletion(request: AdmissionRequest): boolean {
  return request.operation === "DELETE" && isPods(request) && request.subResource === "";
}

export function isEviction(request: AdmissionRequest): boolean {
  return request.operation === "CREATE" && isPods(request) && request.subResource === "eviction";
}

export function isChange(request: AdmissionRequest): boolean {
  const isOfSpec = request.subResource === "" || request.subResource === "resize";
  return request.operation === "UPDATE" && isPods(request) && isOfSpec;
}

function isPods(request: AdmissionRequest): boolean {
  return request.group === "" && request.resource === "pods";
}

/**
 * What a review is about: the pod in `oldObject` for a DELETE (of a collection too, where `name` is empty) and for a change in place,
 * the live one for an eviction; everything else is let through (design 6). `budgetMs` is the time that is left. Throws {@link BadReview}.
 */
export function findDisruptionTarget(
  request: AdmissionRequest,
  cell: CellClient,
  options: DisruptionTargetOptions,
  budgetMs: () => number,
): MaybePromise<DisruptionTarget> {
  if (isPodDeletion(request)) return deletion(request);
  if (isEviction(request)) return evictionOf(request, cell, options, budgetMs);
  if (isChange(request)) return changeOf(request);
  return { kind: "answer", outcome: "ignored", answer: {} };
}

/**
 * Binds an eviction to the UID of the pod as it is now (design 6), so that what is reviewed is what is evicted. What needs no
 * patch, or is no eviction, passes.
 */
export async function bindEviction(
  request: AdmissionRequest,
  cell: CellClient,
  budgetMs: () => number,
): Promise<DisruptionTarget> {
  if (!isEviction(request)) return { kind: "answer", outcome: "ignored", answer: {} };
  const eviction = orBadReview("Eviction in request.object", () => parseEviction(request.object));
  if (boundUid(eviction) !== undefined) return { kind: "answer", outcome: "ignored", answer: {} };
  const name = request.name || (eviction.metadata?.name ?? "");
  const live = await readTarget(cell, request.namespace, name, budgetMs);
  if (live.kind === "failed") return live;
  if (live.kind === "gone") return notFound(name);
  return { kind: "answer", outcome: "bound", answer: { patch: bindingPatch(eviction, live.pod.uid) } };
}
