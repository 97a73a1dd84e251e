/** The fields of a Deployment that `kubelet.ts` reads. */
import * as v from "valibot";

const Source = v.looseObject({
  configMapKeyRef: v.optional(v.looseObject({ name: v.string(), key: v.string() })),
  secretKeyRef: v.optional(v.looseObject({ name: v.string(), key: v.string() })),
  fieldRef: v.optional(v.looseObject({ fieldPath: v.string() })),
});
const Probe = v.looseObject({
  httpGet: v.looseObject({ path: v.string(), port: v.union([v.string(), v.number()]) }),
  periodSeconds: v.optional(v.number(), 10),
  failureThreshold: v.optional(v.number(), 3),
});
export type Probe = v.InferOutput<typeof Probe>;
const Container = v.looseObject({
  name: v.string(),
  command: v.array(v.string()),
  args: v.optional(v.array(v.string()), []),
  env: v.optional(
    v.array(v.looseObject({ name: v.string(), value: v.optional(v.string()), valueFrom: v.optional(Source) })),
    [],
  ),
  ports: v.optional(v.array(v.looseObject({ name: v.string(), containerPort: v.number() })), []),
  volumeMounts: v.optional(v.array(v.looseObject({ name: v.string(), mountPath: v.string() })), []),
  startupProbe: Probe,
  readinessProbe: Probe,
  livenessProbe: Probe,
});
export type Container = v.InferOutput<typeof Container>;
const Items = v.optional(v.array(v.looseObject({ key: v.string(), path: v.string() })));
const Volume = v.looseObject({
  name: v.string(),
  secret: v.optional(v.looseObject({ secretName: v.string(), items: Items })),
  configMap: v.optional(v.looseObject({ name: v.string(), items: Items })),
});
export type Volume = v.InferOutput<typeof Volume>;

export const Deployment = v.looseObject({
  metadata: v.looseObject({ name: v.string(), namespace: v.string() }),
  spec: v.looseObject({
    replicas: v.number(),
    template: v.looseObject({
      spec: v.looseObject({
        serviceAccountName: v.string(),
        automountServiceAccountToken: v.optional(v.boolean(), true),
        containers: v.tuple([Container]),
        volumes: v.optional(v.array(Volume), []),
      }),
    }),
  }),
});
export type Deployment = v.InferOutput<typeof Deployment>;
