/** JSON Patch (RFC 6902), as far as this project's mutating webhooks use it: `add`, to objects and to the ends of lists. */
import type { Json } from "./etcd.ts";
import { record } from "./objects.ts";

export function patched(object: Json, base64: string): Json {
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
