/** Stored values as Kubernetes objects, and how a write changes a stored value. */
import { GROUP } from "../../../shared/schema/annotations.ts";
import type { EtcdObject, Json } from "./etcd.ts";
import type { SimulatedResource } from "./resources.ts";

function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value when it is a JSON object, else an empty one. */
export function record(value: unknown): Json {
  return isJson(value) ? value : {};
}

export function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

export function metadataOf(value: Json): Json {
  return record(value.metadata);
}

/** Whether the object carries all of these labels. */
export function hasLabels(value: Json, wanted: Readonly<Record<string, unknown>>): boolean {
  const labels = record(metadataOf(value).labels);
  return Object.entries(wanted).every(([label, text]) => labels[label] === text);
}

/** The annotation of the mirror of a static pod (Kubernetes' documentation of static pods). */
export const MIRROR = "kubernetes.io/config.mirror";

export function isMirror(pod: Json): boolean {
  return record(metadataOf(pod).annotations)[MIRROR] !== undefined;
}

/** Caches by stored value: stored values never change, and many clients read them. */
const presented = new WeakMap<EtcdObject, Json>();
const listed = new WeakMap<EtcdObject, Json>();
const texts = new WeakMap<Json, string>();

/** The object in a response: with apiVersion, kind and the resourceVersion of its revision. */
export function asObject(resource: SimulatedResource, stored: EtcdObject): Json {
  let object = presented.get(stored);
  if (object === undefined) {
    const apiVersion = resource.group === "" ? resource.version : `${resource.group}/${resource.version}`;
    object = {
      apiVersion,
      kind: resource.kind,
      ...stored.value,
      metadata: { ...metadataOf(stored.value), resourceVersion: String(stored.revision) },
    };
    presented.set(stored, object);
  }
  return object;
}

/** The object in a list: items of built-in kinds have no apiVersion and kind. */
export function asListItem(resource: SimulatedResource, stored: EtcdObject): Json {
  const object = asObject(resource, stored);
  if (resource.group === GROUP) return object;
  let item = listed.get(stored);
  if (item === undefined) {
    const { apiVersion: _, kind: __, ...rest } = object;
    item = rest;
    listed.set(stored, item);
  }
  return item;
}

/** JSON of a value that never changes. Versions share specs and statuses, which are written out once. */
export function jsonOf(value: Json): string {
  let json = texts.get(value);
  if (json === undefined) {
    const fields: string[] = [];
    for (const name in value) {
      const field = value[name];
      if (field !== undefined) fields.push(`"${name}":${name === "items" ? listText(field) : fieldText(field)}`);
    }
    json = `{${fields.join(",")}}`;
    texts.set(value, json);
  }
  return json;
}

function fieldText(field: unknown): string {
  if (!isJson(field)) return JSON.stringify(field);
  let json = texts.get(field);
  if (json === undefined) {
    json = JSON.stringify(field);
    texts.set(field, json);
  }
  return json;
}

function listText(items: unknown): string {
  return Array.isArray(items) ? `[${items.map((item) => jsonOf(record(item))).join(",")}]` : JSON.stringify(items);
}

/** The stored value after `next` replaces `before` through the main resource or through `/status`. */
export function replaced(resource: SimulatedResource, before: Json, next: Json, subresource: string | undefined): Json {
  if (subresource === "status") return { ...before, status: next.status };
  if (isEmpty(next.data)) return replaced(resource, before, { ...next, data: undefined }, subresource);
  const old = metadataOf(before);
  const { resourceVersion: _version, ...given } = metadataOf(next);
  const changed = resource.status && JSON.stringify(next.spec) !== JSON.stringify(before.spec);
  const metadata = {
    ...given,
    uid: old.uid,
    creationTimestamp: old.creationTimestamp,
    generation: Number(old.generation ?? 1) + (changed ? 1 : 0),
    ...(old.deletionTimestamp === undefined ? {} : { deletionTimestamp: old.deletionTimestamp }),
  };
  return { ...next, metadata, ...(resource.status ? { status: before.status } : {}) };
}

/** An empty map is not stored. */
function isEmpty(data: unknown): boolean {
  return data !== undefined && Object.keys(record(data)).length === 0;
}

/** The field selectors of pods that are in use: `spec.nodeName=NAME` and `status.phase!=PHASE`. */
export function matchesNode(value: Json, selector: string | null): boolean {
  const phase = String(record(value.status).phase);
  return (selector ?? "").split(",").every((term) => {
    if (term.startsWith("status.phase!=")) return term !== `status.phase!=${phase}`;
    return term === "" || term === `spec.nodeName=${String(record(value.spec).nodeName)}`;
  });
}

export function matchesLabels(value: Json, selector: string | null): boolean {
  if (selector === null || selector === "") return true;
  const labels = record(metadataOf(value).labels);
  return selector.split(",").every((term) => {
    const [key = "", wanted] = term.split(/==?/);
    // A key without a value matches every value.
    return wanted === undefined ? labels[key] !== undefined : labels[key] === wanted;
  });
}

export const FORCE_ANNOTATION = "podseidon.kubewharf.io/force-delete";

export function isForced(pod: Json): boolean {
  return record(metadataOf(pod).annotations)[FORCE_ANNOTATION] !== undefined;
}
