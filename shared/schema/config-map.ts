import * as v from "valibot";
import { checker } from "./check.ts";

const texts = v.nullish(v.record(v.string(), v.string()));

/** The fields of a ConfigMap that the project reads. */
export const ConfigMap = v.looseObject({
  metadata: v.looseObject({
    name: v.string(),
    namespace: v.optional(v.string()),
    uid: v.string(),
    resourceVersion: v.string(),
    creationTimestamp: v.nullish(v.string()),
    labels: texts,
    annotations: texts,
  }),
  data: texts,
});
export type ConfigMap = v.InferOutput<typeof ConfigMap>;

/** Returns `raw` itself, typed. Throws `SchemaError`. */
export const parseConfigMap: (raw: unknown) => ConfigMap = checker(ConfigMap);
