/** The status of a PodProtector (design 4): what has been counted in each cell, what has been admitted since. */
import * as v from "valibot";
import { count, doc, int32, int64, time } from "./field-types.ts";

const optional = v.optional;

export const OPERATIONS = ["DELETE", "EVICT", "UPDATE"] as const;
/** What a reservation is for (design 5.1, 10). */
export type Operation = (typeof OPERATIONS)[number];

/**
 * Written as a whole by whoever writes it. The apiserver then keeps one owner of it and not one of each field (`managedFields`), which
 * makes a write of a status a quarter cheaper for it (docs/benchmarks.md).
 */
const WHOLE = { mapType: "atomic" } as const;

/** One entry of a cell's admission history. The fields after `counter` are this project's (design 4, 5.5). */
export const Bucket = doc(
  v.looseObject({
    startTime: doc(time, "When this was admitted; of several pods, the first."),
    endTime: optional(doc(v.nullable(time), "When the last of several was admitted.")),
    podUID: optional(doc(v.string(), "UID of the pod, when the bucket is about one.")),
    podName: optional(doc(v.string(), "Name of the pod, when the bucket is about one.")),
    counter: optional(doc(v.nullable(int32), "How many available pods this may cost; 1 when unset.")),
    podResourceVersion: optional(doc(v.string(), "Resource version of the pod that was reviewed.")),
    operation: optional(doc(v.string(), "What was admitted: DELETE, EVICT or UPDATE.", { enum: OPERATIONS })),
    /** A leading `+` stands for earlier ones. */
    nonce: optional(doc(v.string(), "The admissions that wrote this record, comma-separated, oldest first.")),
    paid: optional(doc(v.boolean(), "True when it used quota; unset when it only holds a place.")),
    firstTime: optional(
      doc(time, "When this was first admitted, where it was admitted again since; startTime is then the latest."),
    ),
    podGeneration: optional(doc(int64, "Generation of the pod that was reviewed, for UPDATE.")),
    packed: optional(doc(v.string(), "Many records in a compact text form; counter is then the sum of their weights.")),
  }),
  "One admitted disruption that the counts do not contain yet, or several in a compact form.",
);
export type Bucket = v.InferOutput<typeof Bucket>;

export const Aggregation = v.looseObject({
  totalReplicas: doc(count, "Number of pods that are neither terminating nor finished."),
  availableReplicas: doc(count, "Number of pods that are available."),
  readyReplicas: optional(doc(int32, "Number of pods that are ready.")),
  scheduledReplicas: optional(doc(int32, "Number of pods that have a node.")),
  runningReplicas: optional(doc(int32, "Number of pods in phase Running.")),
  lastEventTime: optional(doc(v.nullable(time), "Time of the last pod event that the counts contain.")),
  resourceVersion: optional(
    doc(
      v.string(),
      "Position of the pod snapshot: its collection's resource version; comma-separated, one for each shard.",
    ),
  ),
  specHash: optional(doc(v.string(), "Hash of what in the spec the counts depend on.")),
  epoch: optional(doc(int64, "Raised whenever admission history may have been lost.")),
  hold: optional(
    doc(v.string(), "Present while no admission can be decided here: why, and which hold, as REASON/TOKEN."),
  ),
  maturityCutoff: optional(doc(time, "The latest readiness that counted as mature.")),
  heartbeatTime: optional(doc(time, "When the aggregator last said that it lives.")),
});
export type Aggregation = v.InferOutput<typeof Aggregation>;

const AdmissionHistory = v.looseObject({
  buckets: optional(
    doc(v.nullable(v.array(Bucket)), "Admitted disruptions that the counts do not contain yet.", {
      listType: "atomic",
    }),
  ),
});

export const CellStatus = doc(
  v.looseObject({
    cellID: doc(v.string(), "Identifies the set of pods that one aggregator counts.", {
      minLength: 1,
      maxLength: 253,
      rules: [
        {
          rule: "self != '.' && self != '..' && !self.contains('/') && !self.contains('%')",
          message: "must be a valid path segment: not . or .., and without / and %",
        },
      ],
    }),
    aggregation: optional(
      doc(v.nullable(Aggregation), "The counts of this cell, as its aggregator last saw its pods.", WHOLE),
    ),
    admissionHistory: optional(doc(v.nullable(AdmissionHistory), "What webhooks have admitted in this cell.", WHOLE)),
  }),
  "The pods of one cell.",
);
export type CellStatus = v.InferOutput<typeof CellStatus>;

export const Summary = v.looseObject({
  totalReplicas: doc(int32, "Number of pods that are neither terminating nor finished."),
  aggregatedAvailableReplicas: doc(int32, "Number of pods that are available, as counted."),
  estimatedAvailableReplicas: doc(
    int32,
    "Number of available pods after what has been admitted since they were counted.",
  ),
  maxLatencyMillis: optional(
    doc(int64, "Milliseconds since the last pod event of the slowest cell that has outstanding admissions."),
  ),
  aggregatedReady: optional(doc(int32, "Number of pods that are ready.")),
  aggregatedScheduled: optional(doc(int32, "Number of pods that have a node.")),
  aggregatedRunning: optional(doc(int32, "Number of pods in phase Running.")),
  disruptionsAllowed: optional(doc(int32, "Number of available pods that may be disrupted now.")),
});
export type Summary = v.InferOutput<typeof Summary>;

/** `metav1.Condition`. */
export const Condition = doc(
  v.looseObject({
    type: doc(v.string(), "Healthy, DisruptionImpossible, NoPodsMatched, CellStale or Suspended.", {
      minLength: 1,
      maxLength: 316,
    }),
    status: doc(v.string(), "True, False or Unknown.", { enum: ["True", "False", "Unknown"] }),
    reason: doc(v.string(), "Why, as one word for programs.", {
      minLength: 1,
      maxLength: 1024,
      pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    }),
    message: doc(v.string(), "Why, for people.", { maxLength: 32_768 }),
    lastTransitionTime: doc(time, "When the status last changed."),
    observedGeneration: optional(doc(int64, "The generation of the spec that this is about.", { minimum: 0 })),
  }),
  "One aspect of the protector's state.",
  WHOLE,
);
export type Condition = v.InferOutput<typeof Condition>;

export const PodProtectorStatus = v.looseObject({
  cells: doc(v.array(CellStatus), "The cells that have, or had, pods of this protector.", {
    listType: "map",
    listMapKeys: ["cellID"],
    // Generous; the apiserver needs some bound to know what the rule on cellID can cost.
    maxItems: 1024,
  }),
  summary: doc(Summary, "All cells together. For display only: no decision is made on it.", WHOLE),
  conditions: optional(
    doc(v.array(Condition), "The protector's state as standard conditions.", {
      listType: "map",
      listMapKeys: ["type"],
    }),
  ),
  observedGeneration: optional(doc(int64, "The generation of the spec that the status is about.")),
});
export type PodProtectorStatus = v.InferOutput<typeof PodProtectorStatus>;
