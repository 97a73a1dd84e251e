/**
 * Deletions and evictions of pods in the API server model. A DELETE commits only at the version that was reviewed, and
 * is reviewed again when the pod has changed. An eviction reads the pod again by name, and only its preconditions
 * decide whether it commits.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import { admissionRequest, denialOf } from "./admission.ts";
import type { EtcdObject, Json } from "./etcd.ts";
import { asObject, matchesLabels, metadataOf, record, text } from "./objects.ts";
import { isTrue } from "./pod-conditions.ts";
import { keyOf, prefixOf, type RequestTarget } from "./resources.ts";
import { conflict, failure, notFound, ok, type SimulatedResponse } from "./responses.ts";
import type { ApiServer, ServerRequest } from "./server.ts";

export const FOREGROUND = "foregroundDeletion";
const CONDITION = { type: "DisruptionTarget", status: "True", reason: "EvictionByEvictionAPI" };
const POD_KIND = { group: "", version: "v1", kind: "Pod" };
const PODS = { group: "", version: "v1", resource: "pods" };

export interface DeletionHabits {
  /** What the first review sees comes from the watch cache. An old version is denied only after a look at etcd. */
  readonly readsCache: boolean;
  /** A deletion without grace is stored as a mark, and reviewed again before the pod is removed. */
  readonly marksFirst: boolean;
  /** An eviction writes the condition DisruptionTarget before it deletes. */
  readonly writesCondition: boolean;
  /** From the condition to the deletion. */
  pauseMs(): number;
  /** Called when it mattered. */
  seen(what: DeletionStep): void;
}

/** What is seen of these habits. */
export const DELETION_STEPS = [
  "review: an old version is allowed",
  "review: an old version is denied, and the next is reviewed",
  "deletion without grace: marked, and reviewed again",
  "deletion without grace: denied after the mark",
  "eviction: a condition first",
  "eviction: the pod changes after its condition",
] as const;
export type DeletionStep = (typeof DELETION_STEPS)[number];

/**
 * A deletecollection. Each pod is reviewed by itself, without a name in the request, and the first denial ends the
 * call.
 */
export async function deletePods(
  server: ApiServer,
  target: RequestTarget,
  request: ServerRequest,
): Promise<SimulatedResponse> {
  const selector = target.query.get("labelSelector");
  const found = server.etcd.range(prefixOf(target.resource, target.namespace));
  for (const { key, value } of found) {
    if (!matchesLabels(value, selector)) continue;
    const response = await deletePod(server, { ...target, name: key.split("/")[2] }, request, true);
    if (response.status >= 300 && response.status !== 404) return response;
  }
  return ok({ kind: "PodList", apiVersion: "v1", metadata: {}, items: [] });
}

export async function deletePod(
  server: ApiServer,
  target: RequestTarget,
  request: ServerRequest,
  isCollection = false,
): Promise<SimulatedResponse> {
  const deadlineMs = server.ports.clock.monotonicMs() + server.settings.requestTimeoutMs;
  const name = target.name ?? "";
  const key = keyOf(target.resource, target.namespace, name);
  const options = record(request.body);
  const isDry = isDryRun(target, options);
  const { deletion } = server.settings;
  let isFirst = true;
  let isSecondStep = false;
  for (;;) {
    const current = server.etcd.get(key);
    if (current === undefined) return notFound(name, target.resource);
    if (!isFit(current, options)) return conflict(name);
    const found = isFirst && !isDry ? reviewedOf(server, target, current, options) : current;
    isFirst = false;
    const admission = deletionRequest(server, target, request, found, { isCollection, isDry });
    const denial = await denialOf(server, admission);
    const isOld = found !== current && server.etcd.get(key)?.revision !== found.revision;
    if (isOld && denial === undefined) deletion?.seen("review: an old version is allowed");
    if (isOld && denial !== undefined) {
      deletion?.seen("review: an old version is denied, and the next is reviewed");
      continue;
    }
    if (denial !== undefined && isSecondStep) deletion?.seen("deletion without grace: denied after the mark");
    if (denial !== undefined) return denial;
    if (isDry) return ok(ending(server, target, found, found.revision));
    const delayMs = server.settings.commitDelayMs();
    const late = delayMs === undefined || server.ports.clock.monotonicMs() + delayMs > deadlineMs;
    if (delayMs !== undefined && !late) await sleep(server.ports, delayMs);
    const isStep = deletion?.marksFirst === true && !isSecondStep && isRemoved(found, options);
    const committed = !late && (isStep ? mark(server, found, 0, options) : commit(server, found, options));
    server.admission?.settled(admission, committed);
    if (late) return failure(504, "Timeout", "request did not complete within the allowed duration");
    if (!committed) continue;
    const left = server.etcd.get(key);
    if (!isStep)
      return ok(
        left === undefined ? ending(server, target, found, server.etcd.revision) : asObject(target.resource, left),
      );
    deletion?.seen("deletion without grace: marked, and reviewed again");
    // The second step removes whatever pod has the name by then.
    isFirst = true;
    isSecondStep = true;
  }
}

/** What the first review of a deletion sees: the pod as the watch cache has it. */
function reviewedOf(server: ApiServer, target: RequestTarget, current: EtcdObject, options: Json): EtcdObject {
  const cached = server.settings.deletion?.readsCache ? server.cached(target, current.key) : undefined;
  return cached !== undefined && cached.revision !== current.revision && isFit(cached, options) ? cached : current;
}

function deletionRequest(
  server: ApiServer,
  target: RequestTarget,
  request: ServerRequest,
  found: EtcdObject,
  { isCollection, isDry }: { readonly isCollection: boolean; readonly isDry: boolean },
): Json {
  return admissionRequest(server, request, {
    ...{ kind: POD_KIND, resource: PODS, requestKind: POD_KIND, requestResource: PODS },
    ...{ name: isCollection ? "" : target.name, namespace: target.namespace, operation: "DELETE", object: null },
    oldObject: asObject(target.resource, found),
    dryRun: isDry,
    options: { kind: "DeleteOptions", apiVersion: "meta.k8s.io/v1", ...request.body },
  });
}

/** Whether the UID is the one that the client asks for, if it does. */
function isFit({ value }: EtcdObject, options: Json): boolean {
  const wanted = text(record(options.preconditions).uid);
  return wanted === undefined || wanted === metadataOf(value).uid;
}

/** The generation after the deletion is marked. Only the first mark raises it. */
function nextOf({ generation, deletionTimestamp }: Json): number {
  return Number(generation ?? 1) + (deletionTimestamp === undefined ? 1 : 0);
}

/** The deleted object in the response. */
function ending(server: ApiServer, target: RequestTarget, found: EtcdObject, revision: number): Json {
  const deletionTimestamp = new Date(server.ports.clock.nowMs()).toISOString();
  const meta = metadataOf(found.value);
  const metadata = {
    ...meta,
    deletionTimestamp: meta.deletionTimestamp ?? deletionTimestamp,
    generation: nextOf(meta),
  };
  return asObject(target.resource, { ...found, revision, value: { ...found.value, metadata } });
}

export async function evictPod(
  server: ApiServer,
  target: RequestTarget,
  request: ServerRequest,
): Promise<SimulatedResponse> {
  const deadlineMs = server.ports.clock.monotonicMs() + server.settings.requestTimeoutMs;
  const name = target.name ?? "";
  const key = keyOf(target.resource, target.namespace, name);
  const kind = { group: "policy", version: "v1", kind: "Eviction" };
  const draft = admissionRequest(server, request, {
    kind,
    resource: PODS,
    subResource: "eviction",
    requestKind: kind,
    requestResource: PODS,
    requestSubResource: "eviction",
    name,
    namespace: target.namespace,
    operation: "CREATE",
    // The decoded object has apiVersion and kind, whatever the client sent.
    object: { apiVersion: "policy/v1", kind: "Eviction", ...request.body },
    oldObject: null,
    dryRun: isDryRun(target, record(record(request.body).deleteOptions)),
    options: { kind: "CreateOptions" },
  });
  const admission = (await server.admission?.mutateEviction(draft)) ?? draft;
  const denial = await denialOf(server, admission);
  if (denial !== undefined) return denial;
  const options = record(record(admission.object).deleteOptions);
  if (isDryRun(target, options)) return ok({ kind: "Status", status: "Success" }, 201);
  const delayMs = server.settings.commitDelayMs();
  const late = delayMs === undefined || server.ports.clock.monotonicMs() + delayMs > deadlineMs;
  if (delayMs !== undefined && !late) await sleep(server.ports, delayMs);
  if (!late && server.settings.deletion?.writesCondition) await writeCondition(server, key, options);
  const found = server.etcd.get(key);
  const same = found !== undefined && isFit(found, options);
  const committed = !late && same && commit(server, found, options);
  server.admission?.settled(admission, committed);
  if (late) return failure(504, "Timeout", "request did not complete within the allowed duration");
  if (found === undefined) return notFound(name, target.resource);
  return same ? ok({ kind: "Status", status: "Success" }, 201) : conflict(name);
}

function isDryRun(target: RequestTarget, options: Json): boolean {
  const listed = options.dryRun;
  return target.query.get("dryRun") === "All" || (Array.isArray(listed) && listed.includes("All"));
}

/**
 * The eviction says in the pod's status what happens, before it deletes: two writes, and anything may happen between
 * them. Nobody reviews this write.
 */
async function writeCondition(server: ApiServer, key: string, options: Json): Promise<void> {
  const found = server.etcd.get(key);
  if (found === undefined || !isFit(found, options) || isTrue(found.value, CONDITION.type)) return;
  const status = record(found.value.status);
  const conditions = [...(Array.isArray(status.conditions) ? status.conditions : []), CONDITION];
  server.etcd.put(key, { ...found.value, status: { ...status, conditions } }, found.revision);
  const written = server.etcd.get(key);
  const { deletion } = server.settings;
  await sleep(server.ports, deletion?.pauseMs() ?? 0);
  const isSame = server.etcd.get(key) === written;
  deletion?.seen(isSame ? "eviction: a condition first" : "eviction: the pod changes after its condition");
}

/** True when the deletion leaves nothing of the pod: no grace, no kubelet, no finalizer. */
function isRemoved({ value }: EtcdObject, options: Json): boolean {
  const isScheduled = record(value.spec).nodeName !== undefined;
  const hasFinished = ["Succeeded", "Failed"].includes(String(record(value.status).phase));
  const isNow = options.gracePeriodSeconds === 0 || !isScheduled || hasFinished;
  return isNow && finalizersOf(value, options).length === 0;
}

/** The finalizers that hold the pod from here on. */
function finalizersOf(pod: Json, { propagationPolicy }: Json): readonly unknown[] {
  const { finalizers } = metadataOf(pod);
  const held = Array.isArray(finalizers) ? finalizers : [];
  return propagationPolicy === "Foreground" && !held.includes(FOREGROUND) ? [...held, FOREGROUND] : held;
}

/** Commits the deletion at the version of `found`; returns false when the pod has changed since. */
function commit(server: ApiServer, found: EtcdObject, options: Json): boolean {
  if (isRemoved(found, options)) return server.etcd.delete(found.key, found.revision).kind === "ok";
  const grace = options.gracePeriodSeconds;
  const { deletionTimestamp, deletionGracePeriodSeconds } = metadataOf(found.value);
  const isSooner = grace === 0 && deletionGracePeriodSeconds !== 0;
  if (deletionTimestamp !== undefined && !isSooner) return server.etcd.get(found.key)?.revision === found.revision;
  return mark(server, found, typeof grace === "number" ? grace : 30, options);
}

/** Marks the pod as terminating. */
function mark(server: ApiServer, found: EtcdObject, grace: number, options: Json): boolean {
  const meta = metadataOf(found.value);
  const finalizers = finalizersOf(found.value, options);
  const metadata = {
    ...meta,
    generation: nextOf(meta),
    deletionTimestamp: meta.deletionTimestamp ?? new Date(server.ports.clock.nowMs()).toISOString(),
    deletionGracePeriodSeconds: grace,
    ...(finalizers.length > 0 ? { finalizers } : {}),
  };
  return server.etcd.put(found.key, { ...found.value, metadata }, found.revision).kind === "ok";
}
