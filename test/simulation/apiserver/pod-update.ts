/**
 * Updates of pods in the API server model, through the main resource, `pods/resize`, and `pods/status` where a write
 * takes a pod away. Each update is reviewed before it commits, and commits only at the version that was reviewed. A
 * patch that meets a newer version is applied and reviewed again.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import { admissionRequest, denialOf } from "./admission.ts";
import type { Json } from "./etcd.ts";
import { asObject, jsonOf, metadataOf, record, replaced, text } from "./objects.ts";
import { mergePatch, strategicMerge } from "./patches.ts";
import { closesGate, VOLUNTARY_GATE } from "./pod-conditions.ts";
import { keyOf, type RequestTarget } from "./resources.ts";
import { conflict, failure, immutableUid, notFound, ok, type SimulatedResponse } from "./responses.ts";
import type { ApiServer, ServerRequest } from "./server.ts";

const KIND = { group: "", version: "v1", kind: "Pod" };
const PODS = { group: "", version: "v1", resource: "pods" };

export async function updatePod(
  server: ApiServer,
  target: RequestTarget,
  request: ServerRequest,
): Promise<SimulatedResponse> {
  const deadlineMs = server.ports.clock.monotonicMs() + server.settings.requestTimeoutMs;
  const name = target.name ?? "";
  const key = keyOf(target.resource, target.namespace, name);
  const body = request.body ?? {};
  for (;;) {
    const found = server.etcd.get(key);
    if (found === undefined) return notFound(name, target.resource);
    const { resourceVersion, uid } = metadataOf(body);
    if (text(resourceVersion) !== undefined && resourceVersion !== String(found.revision)) return conflict(name);
    if (text(uid) !== undefined && uid !== metadataOf(found.value).uid)
      return request.method === "PUT" ? conflict(name) : immutableUid(name);
    const next = replaced(
      target.resource,
      found.value,
      nextOf(target, request, asObject(target.resource, found)),
      target.subresource === "status" ? "status" : undefined,
    );
    if (jsonOf(next) === jsonOf(found.value)) return ok(asObject(target.resource, found));
    const dryRun = target.query.get("dryRun") === "All";
    const subResource = target.subresource === undefined ? {} : { subResource: target.subresource };
    const admission = admissionRequest(server, request, {
      ...{ kind: KIND, resource: PODS, requestKind: KIND, requestResource: PODS, ...subResource },
      ...{ name, namespace: target.namespace, operation: "UPDATE", dryRun },
      object: asObject(target.resource, { ...found, value: next }),
      oldObject: asObject(target.resource, found),
      options: { kind: "UpdateOptions", apiVersion: "meta.k8s.io/v1" },
    });
    const denial = isAsked(target, found.value, next) ? await denialOf(server, admission) : undefined;
    if (denial !== undefined) return denial;
    if (dryRun) return ok(asObject(target.resource, { ...found, value: next }));
    const delayMs = server.settings.commitDelayMs();
    const late = delayMs === undefined || server.ports.clock.monotonicMs() + delayMs > deadlineMs;
    if (delayMs !== undefined && !late) await sleep(server.ports, delayMs);
    const written = late ? undefined : server.etcd.put(key, next, found.revision);
    server.admission?.settled(admission, written?.kind === "ok");
    if (written?.kind === "ok") return ok(asObject(target.resource, written.stored));
    if (late) return failure(504, "Timeout", "request did not complete within the allowed duration");
    if (request.method === "PUT") return conflict(name);
  }
}

/** The admission request for a pod that is being created. */
export function creationOf(server: ApiServer, { namespace }: RequestTarget, request: ServerRequest): Json {
  const object = { apiVersion: "v1", kind: "Pod", ...request.body };
  return admissionRequest(server, request, {
    ...{ kind: KIND, resource: PODS, requestKind: KIND, requestResource: PODS, operation: "CREATE", dryRun: false },
    ...{ name: text(metadataOf(object).name) ?? "", namespace, object, oldObject: null },
    options: { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1" },
  });
}

/** True for a status write by which a pod ends, or which closes its gate. */
export function takesPod({ resource, subresource }: RequestTarget, { body }: ServerRequest): boolean {
  return resource.plural === "pods" && subresource === "status" && (isFinal(record(body)) || closes(record(body)));
}

function closes({ status }: Json): boolean {
  const { conditions } = record(status);
  return Array.isArray(conditions) && conditions.some((one) => record(one).type === VOLUNTARY_GATE);
}

function isFinal({ status }: Json): boolean {
  const { phase } = record(status);
  return phase === "Failed" || phase === "Succeeded";
}

/** The match conditions of status writes: nobody is asked about a pod that has ended, or is terminating. */
function isAsked({ subresource }: RequestTarget, before: Json, after: Json): boolean {
  if (subresource !== "status") return true;
  if (isFinal(before) || metadataOf(before).deletionTimestamp !== undefined) return false;
  return isFinal(after) || closesGate(before, after);
}

/** The object that the request asks for. A resize changes nothing but resources. */
function nextOf({ subresource }: RequestTarget, { method, contentType, body }: ServerRequest, found: Json): Json {
  const isStrategic = contentType === "application/strategic-merge-patch+json";
  const merged = method === "PUT" ? record(body) : record((isStrategic ? strategicMerge : mergePatch)(found, body));
  if (subresource !== "resize") return merged;
  const wanted = new Map(containersOf(merged).map((container) => [container.name, container.resources]));
  const containers = containersOf(found).map((container) => ({ ...container, resources: wanted.get(container.name) }));
  return { ...found, spec: { ...record(found.spec), containers } };
}

function containersOf(pod: Json): Json[] {
  const { containers } = record(pod.spec);
  return Array.isArray(containers) ? containers.map(record) : [];
}
