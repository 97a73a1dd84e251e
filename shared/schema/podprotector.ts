/**
 * PodProtector (`podseidon.kubewharf.io/v1alpha1`), the single source of its types, bounds and CRD (design 4). Upstream's
 * fields keep their names, types and meaning; what this project adds is optional, so that an object without it behaves
 * as upstream's. Unknown fields are kept, so that an object comes back as it was.
 */
import * as v from "valibot";

const INT32_MAX = 2_147_483_647;

const int32 = v.pipe(v.number(), v.integer(), v.minValue(-INT32_MAX - 1), v.maxValue(INT32_MAX));
const count = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(INT32_MAX));
const int64 = v.pipe(v.number(), v.integer());
/** RFC 3339; upstream writes microseconds (`metav1.MicroTime`). */
const time = v.pipe(v.string(), v.metadata({ format: "date-time" }));
const optional = v.optional;

/** `metav1.LabelSelector`. Operators are not checked here: a selector that can't be read is reported, not dropped. */
export const LabelSelector = v.looseObject({
  matchLabels: optional(v.record(v.string(), v.string())),
  matchExpressions: optional(
    v.array(
      v.looseObject({ key: v.string(), operator: v.string(), values: optional(v.nullable(v.array(v.string()))) }),
    ),
  ),
});
export type LabelSelector = v.InferOutput<typeof LabelSelector>;

export const OPERATIONS = ["DELETE", "EVICT", "UPDATE"] as const;
/** What a reservation is for (design 5.1, 10). */
export type Operation = (typeof OPERATIONS)[number];

export const UNHEALTHY_POD_POLICIES = ["AlwaysAllow", "IfHealthyBudget"] as const;
export type UnhealthyPodPolicy = (typeof UNHEALTHY_POD_POLICIES)[number];

export const PROBE_PROTOCOLS = ["GRPC", "HTTP"] as const;

export const Probe = v.looseObject({
  endpoint: v.string(),
  protocol: optional(v.picklist(PROBE_PROTOCOLS)),
  timeoutMillis: optional(int32),
  caBundle: optional(v.string()),
  insecure: optional(v.boolean()),
});

export const Suspend = v.looseObject({
  enabled: v.boolean(),
  until: optional(time),
  reason: optional(v.string()),
});

export const AdmissionHistoryConfig = v.looseObject({
  maxConcurrentLag: optional(int32),
  compactThreshold: optional(int32),
  aggregationRateMillis: optional(int32),
});

export const PodProtectorSpec = v.looseObject({
  minAvailable: count,
  minReadySeconds: int32,
  selector: LabelSelector,
  aggregationSelector: optional(LabelSelector),
  admissionHistoryConfig: optional(AdmissionHistoryConfig),
  unhealthyPodPolicy: optional(v.picklist(UNHEALTHY_POD_POLICIES)),
  availabilityConditions: optional(v.array(v.string())),
  protectedOperations: optional(v.array(v.picklist(OPERATIONS))),
  suspend: optional(Suspend),
  probe: optional(Probe),
});
export type PodProtectorSpec = v.InferOutput<typeof PodProtectorSpec>;

/** One entry of a cell's admission history. The fields after `counter` are this project's (design 4, 5.5). */
export const Bucket = v.looseObject({
  startTime: time,
  endTime: optional(v.nullable(time)),
  podUID: optional(v.string()),
  podName: optional(v.string()),
  counter: optional(v.nullable(int32)),
  podResourceVersion: optional(v.string()),
  operation: optional(v.string()),
  /** The admissions that wrote this record, comma-separated, oldest first; a leading `+` stands for earlier ones. */
  nonce: optional(v.string()),
  /** True when the reservation used quota; absent on a pin. */
  paid: optional(v.boolean()),
  /** When the reservation was first admitted, where it has been refreshed since; `startTime` is then the latest admission. */
  firstTime: optional(time),
  /** `metadata.generation` of the pod that was reviewed, for UPDATE. */
  podGeneration: optional(int64),
  /** Many records in a compact text form; `counter` is then the sum of their weights. */
  packed: optional(v.string()),
});
export type Bucket = v.InferOutput<typeof Bucket>;

export const Aggregation = v.looseObject({
  totalReplicas: count,
  availableReplicas: count,
  readyReplicas: optional(int32),
  scheduledReplicas: optional(int32),
  runningReplicas: optional(int32),
  lastEventTime: optional(v.nullable(time)),
  /** Position of the pod snapshot: the collection version; comma-separated, one for each shard. */
  resourceVersion: optional(v.string()),
  /** Hash of what the counts depend on in the spec. */
  specHash: optional(v.string()),
  /** Raised whenever history may have been lost (design 5.4). */
  epoch: optional(int64),
  /** Present while the cell is on hold: why, and an identity of this hold, as `REASON/TOKEN`. */
  hold: optional(v.string()),
  /** The latest Ready transition that counted as mature. */
  maturityCutoff: optional(time),
  heartbeatTime: optional(time),
});
export type Aggregation = v.InferOutput<typeof Aggregation>;

export const CellStatus = v.looseObject({
  cellID: v.string(),
  aggregation: optional(v.nullable(Aggregation)),
  admissionHistory: optional(v.nullable(v.looseObject({ buckets: optional(v.nullable(v.array(Bucket))) }))),
});
export type CellStatus = v.InferOutput<typeof CellStatus>;

export const Summary = v.looseObject({
  totalReplicas: int32,
  aggregatedAvailableReplicas: int32,
  estimatedAvailableReplicas: int32,
  maxLatencyMillis: optional(int64),
  aggregatedReady: optional(int32),
  aggregatedScheduled: optional(int32),
  aggregatedRunning: optional(int32),
  disruptionsAllowed: optional(int32),
});
export type Summary = v.InferOutput<typeof Summary>;

/** `metav1.Condition`. */
export const Condition = v.looseObject({
  type: v.string(),
  status: v.picklist(["True", "False", "Unknown"]),
  reason: v.string(),
  message: v.string(),
  lastTransitionTime: time,
  observedGeneration: optional(int64),
});
export type Condition = v.InferOutput<typeof Condition>;

export const PodProtectorStatus = v.looseObject({
  cells: v.array(CellStatus),
  summary: Summary,
  conditions: optional(v.array(Condition)),
  observedGeneration: optional(int64),
});
export type PodProtectorStatus = v.InferOutput<typeof PodProtectorStatus>;

export const OwnerReference = v.looseObject({
  apiVersion: v.string(),
  kind: v.string(),
  name: v.string(),
  uid: v.string(),
  controller: optional(v.boolean()),
  blockOwnerDeletion: optional(v.boolean()),
});

/** `metav1.ObjectMeta`, the fields in use. */
export const ObjectMeta = v.looseObject({
  name: v.string(),
  namespace: optional(v.string()),
  uid: v.string(),
  resourceVersion: v.string(),
  generation: optional(int64),
  creationTimestamp: optional(v.nullable(time)),
  deletionTimestamp: optional(v.nullable(time)),
  labels: optional(v.record(v.string(), v.string())),
  annotations: optional(v.record(v.string(), v.string())),
  finalizers: optional(v.array(v.string())),
  ownerReferences: optional(v.array(OwnerReference)),
});
export type ObjectMeta = v.InferOutput<typeof ObjectMeta>;

export const PodProtector = v.looseObject({
  metadata: ObjectMeta,
  spec: PodProtectorSpec,
  status: optional(PodProtectorStatus),
});
export type PodProtector = v.InferOutput<typeof PodProtector>;

/** Readers' defaults; the CRD sets none, so that an upstream object comes back unchanged (design 5.5). */
export const DEFAULTS = {
  compactThreshold: 100,
  unhealthyPodPolicy: "AlwaysAllow",
  protectedOperations: ["DELETE", "EVICT"],
} as const satisfies {
  compactThreshold: number;
  unhealthyPodPolicy: UnhealthyPodPolicy;
  protectedOperations: readonly Operation[];
};
