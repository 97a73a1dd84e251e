/** Strategic merge patches, as far as pods are patched here: lists whose items have a key are merged by it, all others are replaced. */
import type { Json } from "./etcd.ts";
import { record } from "./objects.ts";

/** Patch merge keys of core/v1 by the name of the field. */
const KEYS: Readonly<Record<string, string>> = { containers: "name", initContainers: "name", conditions: "type" };

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
