/**
 * PodProtector (`podseidon.kubewharf.io/v1alpha1`): its types and its parser. Upstream's fields keep their names, types
 * and meaning; every field of this project is optional, so that an upstream object stays valid
 * (docs/design.md#podprotector). The schema requires only what readers need, because an object that a reader rejects
 * protects nothing. `crd.ts` generates the CRD from it; `crd-fields.ts` has the additional checks of the apiserver.
 *
 * Each kind of object has its own file: this one, `pod.ts`, `admission.ts`, `config-map.ts`. `check.ts` compiles
 * schemas, `annotations.ts` has all names.
 */
import * as v from "valibot";
import { checker } from "./check.ts";

const INT32_MAX = 2_147_483_647;

const optional = v.optional;
const int32 = v.pipe(v.number(), v.integer(), v.minValue(-INT32_MAX - 1), v.maxValue(INT32_MAX));
const count = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(INT32_MAX));
const int64 = v.pipe(v.number(), v.integer());
/** RFC 3339; upstream writes microseconds (`metav1.MicroTime`). */
const time = v.string();

export const OPERATIONS = ["DELETE", "EVICT", "UPDATE"] as const;
/** The operation that a reservation is for. */
export type Operation = (typeof OPERATIONS)[number];
/** What happens to a disruption that the protector would deny. */
export const ENFORCEMENTS = ["Enforce", "Warn", "Off"] as const;
export type Enforcement = (typeof ENFORCEMENTS)[number];
/** The operations that a spec may protect from. UPDATE includes RESIZE, which is only a change by `pods/resize`. */
export const PROTECTED_OPERATIONS = [...OPERATIONS, "RESIZE"] as const;
export type ProtectedOperation = (typeof PROTECTED_OPERATIONS)[number];
/** The conditions under which a pod can count for `minAvailable`. */
export const HEALTH_CRITERIA = ["Available", "Ready", "Running", "Scheduled", "Initialized"] as const;
export type HealthCriterion = (typeof HEALTH_CRITERIA)[number];

const LabelSelectorRequirement = v.looseObject({
  key: v.string(),
  operator: v.string(),
  values: v.nullish(v.array(v.string())),
});

/** `metav1.LabelSelector`. Operators are not checked here: an unreadable selector is reported, not dropped. */
export const LabelSelector = v.looseObject({
  matchLabels: optional(v.record(v.string(), v.string())),
  matchExpressions: optional(v.array(LabelSelectorRequirement)),
});
export type LabelSelector = v.InferOutput<typeof LabelSelector>;

const Probe = v.looseObject({
  endpoint: v.string(),
  protocol: optional(v.string()),
  timeoutMillis: optional(int32),
  caBundle: optional(v.string()),
  insecure: optional(v.boolean()),
});

const Suspend = v.looseObject({
  enabled: v.boolean(),
  until: optional(time),
  reason: optional(v.string()),
  cells: optional(v.array(v.string())),
});

const AdmissionHistoryConfig = v.looseObject({
  maxConcurrentLag: optional(int32),
  compactThreshold: optional(int32),
  aggregationRateMillis: optional(int32),
});

const PodProtectorSpec = v.looseObject({
  minAvailable: count,
  minReadySeconds: int32,
  selector: LabelSelector,
  aggregationSelector: optional(LabelSelector),
  ignoredPodSelector: optional(LabelSelector),
  admissionHistoryConfig: optional(AdmissionHistoryConfig),
  unhealthyPodPolicy: optional(v.string()),
  unhealthyPodPolicies: optional(
    v.looseObject({ DELETE: optional(v.string()), EVICT: optional(v.string()), UPDATE: optional(v.string()) }),
  ),
  availabilityConditions: optional(v.array(v.string())),
  unavailableLabelPrefix: optional(v.string()),
  healthCriterion: optional(v.string()),
  protectedOperations: optional(v.array(v.string())),
  allowedHealthCriteria: optional(v.array(v.string())),
  enforcement: optional(v.string()),
  suspend: optional(Suspend),
  probe: optional(Probe),
  countExpectedPods: optional(v.boolean()),
});
export type PodProtectorSpec = v.InferOutput<typeof PodProtectorSpec>;

/** One entry of a cell's admission history. The fields after `counter` are this project's. */
const Bucket = v.looseObject({
  startTime: time,
  endTime: v.nullish(time),
  podUID: optional(v.string()),
  podName: optional(v.string()),
  counter: v.nullish(int32),
  podResourceVersion: optional(v.string()),
  operation: optional(v.string()),
  /** A leading `+` represents earlier nonces. */
  nonce: optional(v.string()),
  paid: optional(v.boolean()),
  firstTime: optional(time),
  podGeneration: optional(int64),
  packed: optional(v.string()),
});
export type Bucket = v.InferOutput<typeof Bucket>;

const Aggregation = v.looseObject({
  totalReplicas: count,
  availableReplicas: count,
  readyReplicas: optional(int32),
  scheduledReplicas: optional(int32),
  runningReplicas: optional(int32),
  lastEventTime: v.nullish(time),
  resourceVersion: optional(v.string()),
  specHash: optional(v.string()),
  epoch: optional(int64),
  hold: optional(v.string()),
  maturityCutoff: optional(time),
  heartbeatTime: optional(time),
  expectedReplicas: optional(int32),
  leftOut: optional(v.string()),
  vanishedPods: optional(int32),
  vanishedTime: optional(time),
  notReady: optional(v.string()),
  sharesPodsWith: optional(v.array(v.string())),
});
export type Aggregation = v.InferOutput<typeof Aggregation>;

const CellStatus = v.looseObject({
  cellID: v.string(),
  aggregation: v.nullish(Aggregation),
  admissionHistory: v.nullish(v.looseObject({ buckets: v.nullish(v.array(Bucket)) })),
});
export type CellStatus = v.InferOutput<typeof CellStatus>;

const Summary = v.looseObject({
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
const Condition = v.looseObject({
  type: v.string(),
  status: v.string(),
  reason: v.string(),
  message: v.string(),
  lastTransitionTime: time,
  observedGeneration: optional(int64),
});
export type Condition = v.InferOutput<typeof Condition>;

const PodProtectorStatus = v.looseObject({
  cells: v.array(CellStatus),
  summary: Summary,
  conditions: optional(v.array(Condition)),
  observedGeneration: optional(int64),
});
export type PodProtectorStatus = v.InferOutput<typeof PodProtectorStatus>;

/** `metav1.OwnerReference`. */
const OwnerReference = v.looseObject({
  apiVersion: v.string(),
  kind: v.string(),
  name: v.string(),
  uid: v.string(),
  controller: optional(v.boolean()),
  blockOwnerDeletion: optional(v.boolean()),
});

/** The fields of `metav1.ObjectMeta` that the project uses. */
export const ObjectMeta = v.looseObject({
  name: v.string(),
  namespace: optional(v.string()),
  uid: v.string(),
  resourceVersion: v.string(),
  generation: optional(int64),
  creationTimestamp: v.nullish(time),
  deletionTimestamp: v.nullish(time),
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

/**
 * Returns `raw` itself, typed and with its unknown fields. Throws `SchemaError` with the path of the first field that
 * does not fit.
 */
export const parsePodProtector: (raw: unknown) => PodProtector = checker(PodProtector);

/**
 * A cell without a heartbeat for longer is stale, in all messages and conditions. Its aggregator writes to each
 * protector every two minutes or sooner (`--heartbeat-interval`), and another replica takes over within half a minute.
 */
export const STALE_AFTER_MS = 150_000;

/** Readers' defaults. The CRD does not set them, so that the apiserver returns an upstream object unchanged. */
export const DEFAULTS = { compactThreshold: 100, protectedOperations: ["DELETE", "EVICT"] } as const satisfies {
  compactThreshold: number;
  protectedOperations: readonly Operation[];
};

/**
 * The operations that a spec denies for unavailable pods while its budget is not healthy. An unknown policy counts as
 * the strict one, like in a PodDisruptionBudget.
 */
export function keptUnhealthyOf({ unhealthyPodPolicy, unhealthyPodPolicies }: PodProtectorSpec): readonly Operation[] {
  const policyOf = (operation: Operation): string | undefined =>
    unhealthyPodPolicies?.[operation] ?? unhealthyPodPolicy;
  return OPERATIONS.filter((operation) => (policyOf(operation) ?? "AlwaysAllow") !== "AlwaysAllow");
}

/** The operations that a spec protects from. Unknown operations are ignored. */
export function protectedOperationsOf({ protectedOperations }: PodProtectorSpec): readonly ProtectedOperation[] {
  if (protectedOperations === undefined) return DEFAULTS.protectedOperations;
  return PROTECTED_OPERATIONS.filter((operation) => protectedOperations.includes(operation));
}

/** An unknown criterion counts as Available. Its counts have another `specHash`, so they are not used. */
export function healthCriterionOf({ healthCriterion }: PodProtectorSpec): HealthCriterion {
  return HEALTH_CRITERIA.find((criterion) => criterion === healthCriterion) ?? "Available";
}

/** The status entry of `cellID`. */
export function cellEntry(protector: PodProtector, cellID: string): CellStatus | undefined {
  return protector.status?.cells.find((cell) => cell.cellID === cellID);
}

/** True when the object's deletion was requested, and its finalizers delay it. */
export function isDeleting({ deletionTimestamp }: ObjectMeta): boolean {
  return deletionTimestamp !== undefined && deletionTimestamp !== null;
}

/** Identifies a protector among those of all cores. */
export interface ProtectorId {
  readonly core: string;
  readonly namespace: string;
  readonly name: string;
}

/** `namespace/name`. */
export function namespacedName({ namespace = "", name }: Pick<ObjectMeta, "namespace" | "name">): string {
  return `${namespace}/${name}`;
}
