/**
 * Updates of pods in the API server model: the main resource and `pods/resize`. Each is reviewed before it commits, at the version that
 * was reviewed; a patch that meets a newer one is made and reviewed again.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { Json } from "./etcd.ts";
import { jsonOf, mergePatch, metadataOf, present, record, replaced, text } from "./objects.ts";
import { keyOf, type Target } from "./resources.ts";
import { conflict, failure, immutableUid, notFound, ok, type SimulatedReply } from "./responses.ts";
import { reviewed, reviewOf } from "./review.ts";
import type { ApiServer, ServerRequest } from "./server.ts";
import { strategicMerge } from "./strategic-merge.ts";

const KIND = { group: "", version: "v1", kind: "Pod" };
const PODS = { group: "", version: "v1", resource: "pods" };

export async function updatePod(server: ApiServer, target: Target, request: ServerRequest): Promise<SimulatedReply> {
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
      nextOf(target, request, present(target.resource, found)),
      undefined,
    );
    if (jsonOf(next) === jsonOf(found.value)) return ok(present(target.resource, found));
    const dryRun = target.query.get("dryRun") === "All";
    const subResource = target.subresource === undefined ? {} : { subResource: target.subresource };
    const review = reviewOf(server, request, {
      ...{ kind: KIND, resource: PODS, requestKind: KIND, requestResource: PODS, ...subResource },
      ...{ name, namespace: target.namespace, operation: "UPDATE", dryRun },
      object: present(target.resource, { ...found, value: next }),
      oldObject: present(target.resource, found),
      options: { kind: "UpdateOptions", apiVersion: "meta.k8s.io/v1" },
    });
    const refused = await reviewed(server, review);
    if (refused !== undefined) return refused;
    if (dryRun) return ok(present(target.resource, { ...found, value: next }));
    const delayMs = server.settings.commitDelayMs();
    const late = delayMs === undefined || server.ports.clock.monotonicMs() + delayMs > deadlineMs;
    if (delayMs !== undefined && !late) await sleep(server.ports, delayMs);
    const written = late ? undefined : server.etcd.put(key, next, found.revision);
    server.admission?.settled(review, written?.kind === "ok");
    if (written?.kind === "ok") return ok(present(target.resource, written.stored));
    if (late) return failure(504, "Timeout", "request did not complete within the allowed duration");
    if (request.method === "PUT") return conflict(name);
  }
}

/** The review of a pod that is to be made. */
export function creationOf(server: ApiServer, { namespace }: Target, request: ServerRequest): Json {
  const object = { apiVersion: "v1", kind: "Pod", ...request.body };
  return reviewOf(server, request, {
    ...{ kind: KIND, resource: PODS, requestKind: KIND, requestResource: PODS, operation: "CREATE", dryRun: false },
    ...{ name: text(metadataOf(object).name) ?? "", namespace, object, oldObject: null },
    options: { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1" },
  });
}

/** The object that the request asks for; a resize has no say in anything but resources. */
function nextOf({ subresource }: Target, { method, contentType, body }: ServerRequest, found: Json): Json {
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
