/**
 * What the CRD says of each field of PodProtector beyond its type, by path (`[]` an item of a list, `{}` a value of a
 * map): the sentence that `kubectl explain` shows, and what the apiserver checks when a user writes. Only `crd.ts`
 * reads it, so that no bundle holds it.
 */
import { ENFORCEMENTS, HEALTH_CRITERIA, OPERATIONS, PROTECTED_OPERATIONS } from "./podprotector.ts";

/** One of `x-kubernetes-validations`: expression, message, and the field that the message is about. */
type CelRule = { readonly rule: string; readonly message: string; readonly fieldPath?: string };

/** Keys and their order are those of the CRD. */
export interface CrdField {
  readonly description: string;
  readonly default?: number;
  readonly format?: "date-time";
  readonly enum?: readonly string[];
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly "x-kubernetes-list-type"?: "atomic" | "set" | "map";
  readonly "x-kubernetes-list-map-keys"?: readonly string[];
  readonly "x-kubernetes-map-type"?: "atomic";
  readonly "x-kubernetes-validations"?: readonly CelRule[];
}

type Fields = Readonly<Record<string, string | CrdField>>;

/** The fields of the object at `path`. */
function at(path: string, fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).map(([name, field]) => [`${path}.${name}`, field]));
}

function field(description: string, bounds: Omit<CrdField, "description">): CrdField {
  return { description, ...bounds };
}

function time(description: string): CrdField {
  return field(description, { format: "date-time" });
}

/**
 * An object or list with one owner. For an atomic field the apiserver keeps one owner in `managedFields` and not one
 * for each field in it, which makes a status write a quarter cheaper for it (docs/benchmarks.md).
 */
const ATOMIC_MAP = { "x-kubernetes-map-type": "atomic" } as const;
const ATOMIC_LIST = { "x-kubernetes-list-type": "atomic" } as const;

/**
 * A number that a reader in JavaScript writes back unchanged. A larger one of 64 bits comes back as another, which the
 * apiserver or a policy refuses, so that nobody could write the status any more.
 */
const EXACT = { minimum: 0, maximum: Number.MAX_SAFE_INTEGER } as const;

const LABEL_VALUE: CrdField = {
  description: "A label value.",
  pattern: "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
  maxLength: 63,
};

function labelSelector(path: string): Fields {
  return at(path, {
    matchLabels: field(
      "Labels that a pod must have, with exactly these values. All must hold, together with matchExpressions.",
      { maxProperties: 64 },
    ),
    "matchLabels{}": LABEL_VALUE,
    matchExpressions: field("Requirements on a pod's labels. All must hold, together with matchLabels.", {
      maxItems: 64,
      ...ATOMIC_LIST,
      // Each component holds each protector in memory: 64 requirements with 256 values are a megabyte.
      "x-kubernetes-validations": [
        {
          rule: "self.map(one, has(one.values) ? size(one.values) : 0).sum() <= 1024",
          message: "must have at most 1024 values in all",
        },
      ],
    }),
    "matchExpressions[]": field("One requirement on a pod's labels.", {
      "x-kubernetes-validations": [
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
    }),
    "matchExpressions[].key": field("The label key that the requirement is about.", {
      pattern: "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
      minLength: 1,
      maxLength: 317,
    }),
    "matchExpressions[].operator": field(
      "How the label's value relates to values: In, NotIn, Exists or DoesNotExist.",
      { enum: ["In", "NotIn", "Exists", "DoesNotExist"] },
    ),
    "matchExpressions[].values": field(
      "Label values: at least one for In and NotIn, none for Exists and DoesNotExist.",
      { maxItems: 256, ...ATOMIC_LIST },
    ),
    "matchExpressions[].values[]": LABEL_VALUE,
  });
}

const UNHEALTHY_POD_POLICY = { enum: ["AlwaysAllow", "IfHealthyBudget"] };

const SPEC: Fields = {
  spec: "What is protected, and how much of it must stay available.",
  ...at("spec", {
    minAvailable: "Number of pods that stay available: no disruption is allowed that would leave fewer.",
    // Upstream's objects always have it, so that the default changes none of them.
    minReadySeconds: field("Seconds for which a pod must have been ready to count as available.", { default: 0 }),
    selector: field("Selects the pods that are protected.", ATOMIC_MAP),
    ...labelSelector("selector"),
    aggregationSelector: field(
      "Selects the pods that are counted for minAvailable; the same as selector when unset. " +
        "Must select a superset of it.",
      ATOMIC_MAP,
    ),
    ...labelSelector("aggregationSelector"),
    ignoredPodSelector: field(
      "Pods that are not protected, although selector selects them; they are counted. An empty selector ignores none.",
      ATOMIC_MAP,
    ),
    ...labelSelector("ignoredPodSelector"),
    admissionHistoryConfig: "Tunes how admissions of this object are recorded and settled.",
    ...at("admissionHistoryConfig", {
      maxConcurrentLag: "The most reservations that may be outstanding at once; no limit when unset or not positive.",
      compactThreshold: "Number of reservations that are kept as plain buckets; those beyond it are packed.",
      aggregationRateMillis:
        "Delay between a pod's event and the write of the counts that contain it, in milliseconds.",
    }),
    countExpectedPods:
      "Each cell publishes how many pods its workloads ask for that selector selects. The generator sets it where " +
      "minAvailable is a part of the pods of all cells.",
    unhealthyPodPolicy: field(
      "Whether a pod that is not available may be disrupted: AlwaysAllow (when unset), or " +
        "IfHealthyBudget, only while enough others are available. A pod that is not ready and has the condition " +
        "DisruptionTarget, or lies on a lost node, always may.",
      UNHEALTHY_POD_POLICY,
    ),
    unhealthyPodPolicies: "The policy of single operations, before unhealthyPodPolicy.",
    ...at("unhealthyPodPolicies", {
      DELETE: field("Of deletions.", UNHEALTHY_POD_POLICY),
      EVICT: field("Of evictions.", UNHEALTHY_POD_POLICY),
      UPDATE: field("Of changes in place that restart containers.", UNHEALTHY_POD_POLICY),
    }),
    availabilityConditions: field(
      "Pod condition types that must be True, beside Ready, for a pod to count as available.",
      { maxItems: 32, "x-kubernetes-list-type": "set" },
    ),
    "availabilityConditions[]": field("A pod condition type.", { minLength: 1, maxLength: 316 }),
    unavailableLabelPrefix: field(
      "A pod with a label whose key begins with this does not count as available, Ready or not. The generator sets " +
        "it for PodUnavailableBudgets.",
      { minLength: 1, maxLength: 317 },
    ),
    healthCriterion: field(
      "What a pod must be to count for minAvailable, where status says available: Available (when unset), Ready " +
        "whatever minReadySeconds is, in phase Running, Scheduled to a node, or Initialized. A pod that does not " +
        "count is free to go.",
      { enum: HEALTH_CRITERIA },
    ),
    protectedOperations: field(
      "What is a disruption: DELETE and EVICT when unset; UPDATE is a change in place that restarts containers, " +
        "RESIZE only one by pods/resize.",
      { minItems: 1, maxItems: 4, "x-kubernetes-list-type": "set" },
    ),
    "protectedOperations[]": field("DELETE, EVICT, UPDATE or RESIZE.", { enum: PROTECTED_OPERATIONS }),
    allowedHealthCriteria: field(
      "Health criteria that a pod or an Eviction may ask for by the annotation health-criterion, so that other pods " +
        "than the available ones are compared with minAvailable; none when unset.",
      { maxItems: 3, "x-kubernetes-list-type": "set" },
    ),
    "allowedHealthCriteria[]": field("Ready, Running or Scheduled.", { enum: ["Ready", "Running", "Scheduled"] }),
    enforcement: field(
      "What happens to a disruption that would be denied: Enforce (when unset) denies it; Warn allows it with a " +
        "warning to the client, and counts it; Off is a suspension without an end.",
      { enum: ENFORCEMENTS },
    ),
    suspend: "Admits every disruption for a while.",
    "suspend.enabled": "Whether every disruption is allowed, with a warning to the client.",
    "suspend.until": field("When the suspension ends by itself.", {
      format: "date-time",
      // The format takes more than RFC 3339, as the comma of `date -Ins`: such a time reads as one that has passed.
      pattern:
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?" +
        "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$",
    }),
    "suspend.reason": field("Why, for people; repeated in the responses.", { maxLength: 1024 }),
    "suspend.cells": field("The cells whose disruptions are allowed; all when unset.", {
      minItems: 1,
      maxItems: 256,
      "x-kubernetes-list-type": "set",
    }),
    "suspend.cells[]": field("The ID of a cell.", { minLength: 1, maxLength: 253 }),
    probe: field("Asks the workload's owner before each disruption for which quota is left.", {
      "x-kubernetes-validations": [
        {
          rule:
            "!has(self.protocol) || self.protocol != 'HTTP' || " +
            "self.endpoint.startsWith('http://') || self.endpoint.startsWith('https://')",
          message: "must be an http:// or https:// URL when protocol is HTTP",
          fieldPath: ".endpoint",
        },
        {
          rule: "!self.endpoint.matches('^([a-zA-Z]+:/*)?[^/?#]*@')",
          message: "must have no user name and no password",
          fieldPath: ".endpoint",
        },
      ],
    }),
    ...at("probe", {
      endpoint: field("Where to ask: host:port for GRPC, an http:// or https:// URL for HTTP.", {
        minLength: 1,
        maxLength: 2048,
      }),
      protocol: field(
        "GRPC (disruptionprobe.v1.DisruptionProbeService) or HTTP (a POST of the same); GRPC when unset.",
        { enum: ["GRPC", "HTTP"] },
      ),
      timeoutMillis: field("How long to wait for an answer, in milliseconds. A missing answer denies.", { minimum: 1 }),
      // With the status, the object stays below what etcd takes.
      caBundle: field("PEM certificates that the endpoint's certificate is checked against.", { maxLength: 65_536 }),
      insecure: "Ask without TLS.",
    }),
  }),
};

const CELL: Fields = {
  cellID: field("Identifies the set of pods that one aggregator counts.", {
    minLength: 1,
    maxLength: 253,
    "x-kubernetes-validations": [
      {
        rule: "self != '.' && self != '..' && !self.contains('/') && !self.contains('%')",
        message: "must be a valid path segment: not . or .., and without / and %",
      },
    ],
  }),
  aggregation: field("The counts of this cell, from its aggregator's last write.", ATOMIC_MAP),
  ...at("aggregation", {
    totalReplicas: "Number of pods that are neither terminating nor finished.",
    availableReplicas: "Number of pods that are available, or count by spec.healthCriterion.",
    readyReplicas: "Number of pods that are ready.",
    scheduledReplicas: "Number of pods that have a node.",
    runningReplicas: "Number of pods in phase Running.",
    lastEventTime: time("Time of the last pod event that the counts contain."),
    resourceVersion:
      "Position of the pod snapshot: its collection's resource version; comma-separated, one for each shard.",
    specHash: "Hash of the spec fields that the counts depend on.",
    epoch: field("Raised whenever admission history may be lost.", EXACT),
    hold:
      "Present while the cell is on hold and admits nothing: the reason, when the hold was written (Unix time), and " +
      "its id, as REASON/SECONDS-TOKEN.",
    maturityCutoff: time("The latest readiness that counted as mature."),
    heartbeatTime: time("When the aggregator last wrote a heartbeat."),
    expectedReplicas: field(
      "Number of pods that the workloads of this cell ask for, where spec.countExpectedPods is true.",
      { minimum: 0 },
    ),
    notReady:
      "How many of the available pods wait for the counted gate alone and are not Ready yet: the number, @, and " +
      "resourceVersion. They give no quota.",
    leftOut: "Says that the counts leave out pods by spec.unavailableLabelPrefix: the prefix, @, and resourceVersion.",
    vanishedPods:
      "Number of pods that counted and were gone without a deletionTimestamp and without an admission, as long as " +
      "vanishedTime is not older than an hour.",
    vanishedTime: time("When a pod last vanished so; at most an hour ago."),
    sharesPodsWith: field(
      "Other protectors that count a pod of this one here: up to five names, as CORE/NAME where they are in another " +
        "core cluster, and then +N for N more.",
      { maxItems: 6, ...ATOMIC_LIST },
    ),
    "sharesPodsWith[]": field("A name, or +N.", { maxLength: 512 }),
  }),
  admissionHistory: field("The disruptions that webhooks have admitted in this cell.", ATOMIC_MAP),
  "admissionHistory.buckets": field("Admitted disruptions that the counts do not contain yet.", ATOMIC_LIST),
  "admissionHistory.buckets[]":
    "One admitted disruption that the counts do not contain yet, or several in a compact form.",
  ...at("admissionHistory.buckets[]", {
    startTime: time("When the disruption was admitted; for several pods, the first of them."),
    endTime: time("When the last of several was admitted."),
    podUID: "UID of the pod, when the bucket is about one.",
    podName: "Name of the pod, when the bucket is about one.",
    counter: "How many available pods this may cost; 1 when unset.",
    podResourceVersion: "Resource version of the pod in the admission request.",
    operation: field("What was admitted: DELETE, EVICT or UPDATE.", { enum: OPERATIONS }),
    nonce: "The admissions that wrote this record, comma-separated, oldest first.",
    paid: "True when the record uses quota; unset for a pin, which only keeps the record.",
    firstTime: time(
      "When the disruption was first admitted, if it was admitted again since; startTime is then the latest.",
    ),
    podGeneration: field("Generation of the pod in the admission request, for UPDATE.", EXACT),
    packed: "Many records in a compact text form; counter is then the sum of their weights.",
  }),
};

const STATUS: Fields = {
  status: "The counts of the pods, and the admitted disruptions. Only Podseidon writes it.",
  ...at("status", {
    cells: field("The cells that have, or had, pods of this protector.", {
      // Generous; the apiserver needs a bound to know what the rule on cellID can cost.
      maxItems: 1024,
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["cellID"],
    }),
    "cells[]": "The pods of one cell.",
    ...at("cells[]", CELL),
    summary: field("All cells together. For display only: no decision is made on it.", ATOMIC_MAP),
    ...at("summary", {
      totalReplicas: "Number of pods that are neither terminating nor finished.",
      aggregatedAvailableReplicas: "Number of pods that are available, or count by spec.healthCriterion, as counted.",
      estimatedAvailableReplicas: "Number of available pods, without the disruptions admitted since the count.",
      maxLatencyMillis: "Milliseconds since the last pod event of the slowest cell that has outstanding admissions.",
      aggregatedReady: "Number of pods that are ready.",
      aggregatedScheduled: "Number of pods that have a node.",
      aggregatedRunning: "Number of pods in phase Running.",
      disruptionsAllowed: "Number of available pods that may be disrupted now.",
    }),
    conditions: field("The protector's state as standard conditions.", {
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["type"],
    }),
    "conditions[]": field("One aspect of the protector's state.", ATOMIC_MAP),
    ...at("conditions[]", {
      type: field(
        "Healthy, DisruptionImpossible, NoPodsMatched, CellStale, SharesPods, PodsVanished, Suspended, " +
          "SourceVanished or SourceDeleting.",
        { minLength: 1, maxLength: 316 },
      ),
      status: field("True, False or Unknown.", { enum: ["True", "False", "Unknown"] }),
      reason: field("Why, as one word for programs.", {
        pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        minLength: 1,
        maxLength: 1024,
      }),
      message: field("Why, for people.", { maxLength: 32_768 }),
      lastTransitionTime: time("When the status last changed."),
      observedGeneration: field("The generation of the spec that this is about.", EXACT),
    }),
    observedGeneration: field("The generation of the spec that the status is about.", EXACT),
  }),
};

export const CRD_FIELDS: Fields = { ...SPEC, ...STATUS };
