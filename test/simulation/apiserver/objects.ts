/** How the API server model presents stored values as Kubernetes objects, and how it merges a write into one. */
import { GROUP } from "../../../shared/schema/annotations.ts";
import type { Json, Stored } from "./etcd.ts";
import type { SimulatedResource } from "./resources.ts";

export function record(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
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

/** Objects are immutable once stored: what is made of one is made once, however many clients see it. */
const presented = new WeakMap<Stored, Json>();
const listed = new WeakMap<Stored, Json>();
const texts = new WeakMap<Json, string>();

/** The object as a response shows it: apiVersion, kind and the resourceVersion of its revision. */
export function present(resource: SimulatedResource, stored: Stored): Json {
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

/** The object as a list shows it: those of built-in kinds say nothing of their kind there. */
export function presentInList(resource: SimulatedResource, stored: Stored): Json {
  const object = present(resource, stored);
  if (resource.group === GROUP) return object;
  let item = listed.get(stored);
  if (item === undefined) {
    const { apiVersion: _, kind: __, ...rest } = object;
    item = rest;
    listed.set(stored, item);
  }
  return item;
}

/** JSON of a value that never changes; a spec or a status that versions have in common is written out once. */
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
  if (typeof field !== "object" || field === null || Array.isArray(field)) return JSON.stringify(field);
  let json = texts.get(field as Json);
  if (json === undefined) {
    json = JSON.stringify(field);
    texts.set(field as Json, json);
  }
  return json;
}

function listText(items: unknown): string {
  return Array.isArray(items) ? `[${items.map((item) => jsonOf(record(item))).join(",")}]` : JSON.stringify(items);
}

/** RFC 7386. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const merged: Record<string, unknown> = { ...record(target) };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    else merged[name] = mergePatch(merged[name], value);
  }
  return merged;
}

/** What is stored when `next` replaces `before` through the main resource or through `/status`. */
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

/** A map without entries is not stored. */
function isEmpty(data: unknown): boolean {
  return data !== undefined && Object.keys(record(data)).length === 0;
}

export function matchesLabels(value: Json, selector: string | null): boolean {
  if (selector === null || selector === "") return true;
  const labels = record(metadataOf(value).labels);
  return selector.split(",").every((term) => {
    const [key = "", wanted] = term.split(/==?/);
    // Without a value it asks for whatever value there is.
    return wanted === undefined ? labels[key] !== undefined : labels[key] === wanted;
  });
}
