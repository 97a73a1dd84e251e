/** The field types that PodProtector is made of, and the way to describe one. */
import * as v from "valibot";
import type { ApiHints } from "./schema-node.ts";

const INT32_MAX = 2_147_483_647;

/** Attaches what `kubectl explain` shows, and bounds that only the CRD has. */
export function doc<const S extends v.GenericSchema>(schema: S, description: string, hints: ApiHints = {}) {
  return v.pipe(schema, v.metadata({ ...hints, description }));
}

export const int32 = v.pipe(
  v.number(),
  v.integer(),
  v.minValue(-INT32_MAX - 1),
  v.maxValue(INT32_MAX),
  v.metadata({ format: "int32" }),
);
export const count = v.pipe(
  v.number(),
  v.integer(),
  v.minValue(0),
  v.maxValue(INT32_MAX),
  v.metadata({ format: "int32", minimum: 0 }),
);
export const int64 = v.pipe(v.number(), v.integer(), v.metadata({ format: "int64" }));
/** RFC 3339; upstream writes microseconds (`metav1.MicroTime`). */
export const time = v.pipe(v.string(), v.metadata({ format: "date-time" }));
