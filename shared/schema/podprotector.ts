/**
 * PodProtector (`podseidon.kubewharf.io/v1alpha1`), the single source of its types, bounds and CRD (design 4). Upstream's
 * fields keep their names, types and meaning; what this project adds is optional, so that an object without it behaves
 * as upstream's. Unknown fields are kept, so that an object comes back as it was.
 *
 * The schemas themselves say what a reader needs, and no more: an object that a reader can't accept protects nothing. What a
 * user should not be able to write is said in the hints, which become the CRD (`crd.ts`) and are the apiserver's to check.
 */
import * as v from "valibot";
import { count, doc, int32, int64, time } from "./field-types.ts";
import { type CellStatus, OPERATIONS, type Operation, PodProtectorStatus } from "./podprotector-status.ts";

export * from "./podprotector-status.ts";

const optional = v.optional;
const LABEL_VALUE = { maxLength: 63, pattern: "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$" };
const SELECTOR_OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist"];

const LabelSelectorRequirement = doc(
  v.looseObject({
    key: doc(v.string(), "The label key that the requirement is about.", {
      minLength: 1,
      maxLength: 317,
      pattern: "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    }),
    operator: doc(v.string(), "How the label's value relates to values: In, NotIn, Exists or DoesNotExist.", {
      enum: SELECTOR_OPERATORS,
    }),
    values: optional(
      doc(
        v.nullable(v.array(doc(v.string(), "A label value.", LABEL_VALUE))),
        "Label values: at least one for In and NotIn, none for Exists and DoesNotExist.",
        { listType: "atomic" },
      ),
    ),
  }),
  "One requirement on a pod's labels.",
  {
    rules: [
      {
        rule: "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        message: "must not be empty when operator is In or NotIn",
        fieldPath: ".values",
      },
      {
        rule: "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
        message: "must be empty when operator is Exists or DoesNotExist",
        fieldPath: ".values",
      },
    ],
  },
);

/** `metav1.LabelSelector`. Operators are not checked here: a selector that can't be read is reported, not dropped. */
export const LabelSelector = v.looseObject({
  matchLabels: optional(
    doc(
      v.record(v.string(), doc(v.string(), "A label value.", LABEL_VALUE)),
      "Labels that a pod must have, with these very values. All must hold, together with matchExpressions.",
    ),
  ),
  matchExpressions: optional(
    doc(
      v.array(LabelSelectorRequirement),
      "Requirements on a pod's labels. All must hold, together with matchLabels.",
      {
        listType: "atomic",
      },
    ),
  ),
});
export type LabelSelector = v.InferOutput<typeof LabelSelector>;

export const UNHEALTHY_POD_POLICIES = ["AlwaysAllow", "IfHealthyBudget"] as const;
export type UnhealthyPodPolicy = (typeof UNHEALTHY_POD_POLICIES)[number];

export const PROBE_PROTOCOLS = ["GRPC", "HTTP"] as const;

export const Probe = v.looseObject({
  endpoint: doc(v.string(), "Where to ask: host:port for GRPC, an http:// or https:// URL for HTTP.", {
    minLength: 1,
    maxLength: 2048,
  }),
  protocol: optional(
    doc(v.string(), "GRPC (disruptionprobe.v1.DisruptionProbeService) or HTTP (a POST of the same); GRPC when unset.", {
      enum: PROBE_PROTOCOLS,
    }),
  ),
  timeoutMillis: optional(
    doc(int32, "How long to wait for an answer, in milliseconds. No answer is a refusal.", { minimum: 1 }),
  ),
  caBundle: optional(doc(v.string(), "PEM certificates that the endpoint's certificate is checked against.")),
  insecure: optional(doc(v.boolean(), "Ask without TLS.")),
});

export const Suspend = v.looseObject({
  enabled: doc(v.boolean(), "Whether every disruption is admitted, and said to have been."),
  until: optional(doc(time, "When the suspension ends by itself.")),
  reason: optional(doc(v.string(), "Why, for people; repeated in the answers.", { maxLength: 1024 })),
});

export const AdmissionHistoryConfig = v.looseObject({
  maxConcurrentLag: optional(
    doc(int32, "The most reservations that may be outstanding at once; no limit when unset or not positive."),
  ),
  compactThreshold: optional(
    doc(int32, "Number of reservations that are kept as plain buckets; those beyond it are packed."),
  ),
  aggregationRateMillis: optional(
    doc(int32, "Delay between a pod's event and the write of the counts that contain it, in milliseconds."),
  ),
});

export const PodProtectorSpec = v.looseObject({
  minAvailable: doc(count, "Number of pods that are kept available: no disruption is admitted that would leave fewer."),
  minReadySeconds: doc(int32, "Seconds for which a pod must have been ready to count as available."),
  selector: doc(LabelSelector, "Selects the pods that are protected.", { mapType: "atomic" }),
  aggregationSelector: optional(
    doc(
      LabelSelector,
      "Selects the pods that are counted for minAvailable; the same as selector when unset. Must select a superset of it.",
      { mapType: "atomic" },
    ),
  ),
  admissionHistoryConfig: optional(
    doc(AdmissionHistoryConfig, "Tunes how admissions are recorded and accounted for, for this object."),
  ),
  unhealthyPodPolicy: optional(
    doc(
      v.string(),
      "Whether a pod that is not available may go: AlwaysAllow (when unset), or IfHealthyBudget, only while enough others are available.",
      { enum: UNHEALTHY_POD_POLICIES },
    ),
  ),
  availabilityConditions: optional(
    doc(
      v.array(doc(v.string(), "A pod condition type.", { minLength: 1, maxLength: 316 })),
      "Pod condition types that must be True, beside Ready, for a pod to count as available.",
      { listType: "set", maxItems: 32 },
    ),
  ),
  protectedOperations: optional(
    doc(
      v.array(doc(v.string(), "DELETE, EVICT or UPDATE.", { enum: OPERATIONS })),
      "What is a disruption: DELETE and EVICT when unset; UPDATE is a change in place that restarts containers.",
      { listType: "set", minItems: 1, maxItems: 3 },
    ),
  ),
  suspend: optional(doc(Suspend, "Lets everything pass for a while.")),
  probe: optional(
    doc(Probe, "Asks the workload's owner before each disruption that there is quota for.", {
      rules: [
        {
          rule: "!has(self.protocol) || self.protocol != 'HTTP' || self.endpoint.startsWith('http://') || self.endpoint.startsWith('https://')",
          message: "must be an http:// or https:// URL when protocol is HTTP",
          fieldPath: ".endpoint",
        },
      ],
    }),
  ),
});
export type PodProtectorSpec = v.InferOutput<typeof PodProtectorSpec>;

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
  spec: doc(PodProtectorSpec, "What is protected, and how much of it must stay available."),
  status: optional(
    doc(PodProtectorStatus, "What is known of the pods, and what has been admitted. Written by Podseidon alone."),
  ),
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

/** The policy that a spec asks for. One that this version does not know is the strict one, as Kubernetes' own budgets have it. */
export function unhealthyPodPolicyOf(spec: PodProtectorSpec): UnhealthyPodPolicy {
  const policy = spec.unhealthyPodPolicy ?? DEFAULTS.unhealthyPodPolicy;
  return UNHEALTHY_POD_POLICIES.find((known) => known === policy) ?? "IfHealthyBudget";
}

/** The operations that a spec protects; any that this version does not know are not its to protect. */
export function protectedOperationsOf(spec: PodProtectorSpec): readonly Operation[] {
  const { protectedOperations } = spec;
  if (protectedOperations === undefined) return DEFAULTS.protectedOperations;
  return OPERATIONS.filter((operation) => protectedOperations.includes(operation));
}

/** The status entry of `cellID`. */
export function cellEntry(protector: PodProtector, cellID: string): CellStatus | undefined {
  return protector.status?.cells.find((cell) => cell.cellID === cellID);
}

/** True when somebody has asked for the object's deletion, which its finalizers hold back. */
export function isDeleting({ deletionTimestamp }: ObjectMeta): boolean {
  return deletionTimestamp !== undefined && deletionTimestamp !== null;
}

/** `namespace/name`. */
export function namespacedName({
  namespace = "",
  name,
}: {
  readonly namespace?: string | undefined;
  readonly name: string;
}): string {
  return `${namespace}/${name}`;
}
