/**
 * Deletions and evictions of pods in the API server model. A DELETE commits only at the version that was reviewed, and
 * is reviewed again when the pod has changed. An eviction reads the pod again by name, and only its preconditions
 * decide whether it commits.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import { admissionRequest, denialOf } from "./admission.ts";
import type { EtcdObject, Json } from "./etcd.ts";
import { asObject, matchesLabels, metadataOf, record, text } from "./objects.ts";
import { keyOf, prefixOf, type RequestTarget } from "./resources.ts";
import { conflict, failure, notFound, ok, type SimulatedResponse } from "./responses.ts";
import type { ApiServer, ServerRequest } from "./server.ts";

const POD_KIND = { group: "", version: "v1", kind: "Pod" };
const PODS = { group: "", version: "v1", resource: "pods" };

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
  for (;;) {
    const found = server.etcd.get(key);
    if (found === undefined) return notFound(name, target.resource);
    const wanted = text(record(options.preconditions).uid);
    if (wanted !== undefined && wanted !== metadataOf(found.value).uid) return conflict(name);
    const admission = admissionRequest(server, request, {
      kind: POD_KIND,
      resource: PODS,
      requestKind: POD_KIND,
      requestResource: PODS,
      name: isCollection ? "" : name,
      namespace: target.namespace,
      operation: "DELETE",
      object: null,
      oldObject: asObject(target.resource, found),
      dryRun: isDryRun(target, options),
      options: { kind: "DeleteOptions", apiVersion: "meta.k8s.io/v1", ...options },
    });
    const denial = await denialOf(server, admission);
    if (denial !== undefined) return denial;
    if (isDryRun(target, options)) return ok(ending(server, target, found, found.revision));
    const delayMs = server.settings.commitDelayMs();
    const late = delayMs === undefined || server.ports.clock.monotonicMs() + delayMs > deadlineMs;
    if (delayMs !== undefined && !late) await sleep(server.ports, delayMs);
    const committed = !late && commit(server, target, found, options);
    server.admission?.settled(admission, committed);
    if (committed) {
      const left = server.etcd.get(key);
      return ok(
        left === undefined ? ending(server, target, found, server.etcd.revision) : asObject(target.resource, left),
      );
    }
    if (late) return failure(504, "Timeout", "request did not complete within the allowed duration");
  }
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
  const found = server.etcd.get(key);
  const wanted = text(record(options.preconditions).uid);
  const same = found !== undefined && (wanted === undefined || wanted === metadataOf(found.value).uid);
  const committed = !late && same && commit(server, target, found, options);
  server.admission?.settled(admission, committed);
  if (late) return failure(504, "Timeout", "request did not complete within the allowed duration");
  if (found === undefined) return notFound(name, target.resource);
  return same ? ok({ kind: "Status", status: "Success" }, 201) : conflict(name);
}

function isDryRun(target: RequestTarget, options: Json): boolean {
  const listed = options.dryRun;
  return target.query.get("dryRun") === "All" || (Array.isArray(listed) && listed.includes("All"));
}

/** Commits the deletion at the version of `found`; returns false when the pod has changed since. */
function commit(server: ApiServer, target: RequestTarget, found: EtcdObject, options: Json): boolean {
  const grace = options.gracePeriodSeconds;
  const meta = metadataOf(found.value);
  const scheduled = record(found.value.spec).nodeName !== undefined;
  const finished = ["Succeeded", "Failed"].includes(String(record(found.value.status).phase));
  if (grace === 0 || !scheduled || finished) return server.etcd.delete(found.key, found.revision).kind === "ok";
  if (meta.deletionTimestamp !== undefined) return server.etcd.get(found.key)?.revision === found.revision;
  const metadata = {
    ...meta,
    generation: nextOf(meta),
    deletionTimestamp: new Date(server.ports.clock.nowMs()).toISOString(),
    deletionGracePeriodSeconds: typeof grace === "number" ? grace : 30,
  };
  return (
    server.etcd.put(
      keyOf(target.resource, target.namespace, target.name ?? ""),
      { ...found.value, metadata },
      found.revision,
    ).kind === "ok"
  );
}
