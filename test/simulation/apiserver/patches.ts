/** The patch formats of the API server model. */
import type { Json } from "./etcd.ts";
import { record } from "./objects.ts";

/** JSON merge patch (RFC 7386). */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const merged: Record<string, unknown> = { ...record(target) };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    else merged[name] = mergePatch(merged[name], value);
  }
  return merged;
}

/** The body of a request; the operations of a JSON patch become the member `operations`. */
export function requestBody(body: unknown): Json {
  return Array.isArray(body) ? { operations: body } : record(body);
}

/** JSON patch (RFC 6902) of members of objects; undefined when a test fails, or a member to change is absent. */
export function jsonPatch(target: Json, { operations }: Json): Json | undefined {
  let result: unknown = target;
  for (const { op, path, value } of Array.isArray(operations) ? operations.map(record) : []) {
    const names = String(path).split("/").slice(1).map(unescaped);
    const found = names.reduce<unknown>((object, name) => record(object)[name], result);
    if (op === "test" ? JSON.stringify(found) !== JSON.stringify(value) : op !== "add" && found === undefined)
      return undefined;
    if (op === "remove") result = without(result, names);
    else if (op !== "test") result = added(result, names, value);
  }
  return record(result);
}

function unescaped(name: string): string {
  return name.replaceAll("~1", "/").replaceAll("~0", "~");
}

function without(target: unknown, [first = "", ...rest]: readonly string[]): Json {
  const { [first]: member, ...others } = record(target);
  return rest.length === 0 ? others : { ...others, [first]: without(member, rest) };
}

/**
 * A base64 JSON patch (RFC 6902) as the product's mutating webhooks send it: only `add`, to objects and to the ends of
 * lists.
 */
export function applyJsonPatch(object: Json, base64: string): Json {
  const operations: unknown = JSON.parse(Buffer.from(base64, "base64").toString());
  let result: unknown = object;
  for (const { path, value } of Array.isArray(operations) ? operations.map(record) : [])
    result = added(result, String(path).split("/").slice(1), value);
  return record(result);
}

function added(target: unknown, [first = "", ...rest]: readonly string[], value: unknown): unknown {
  if (Array.isArray(target) && first === "-") return [...target, value];
  const object = record(target);
  return { ...object, [first]: rest.length === 0 ? value : added(object[first], rest, value) };
}

/** Patch merge keys of core/v1, by the name of the field. */
const KEYS: Readonly<Record<string, string>> = { containers: "name", initContainers: "name", conditions: "type" };

/**
 * Strategic merge patch, as far as pods need it: lists whose items have a merge key are merged, all others are
 * replaced.
 */
export function strategicMerge(target: unknown, patch: unknown): unknown {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const merged: Record<string, unknown> = { ...record(target) };
  for (const [name, value] of Object.entries(patch)) {
    const key = KEYS[name];
    if (value === null) delete merged[name];
    else if (key !== undefined && Array.isArray(value)) merged[name] = mergeLists(key, merged[name], value);
    else merged[name] = strategicMerge(merged[name], value);
  }
  return merged;
}

function mergeLists(key: string, target: unknown, patch: readonly unknown[]): Json[] {
  const items = (Array.isArray(target) ? target : []).map(record);
  for (const item of patch.map(record)) {
    const at = items.findIndex((one) => one[key] === item[key]);
    if (at < 0) items.push(item);
    else items[at] = record(strategicMerge(items[at], item));
  }
  return items;
}
