import * as v from "valibot";
import { formatTriggerMark, parseTriggerMark, type TriggerMark } from "../../shared/decide/settling/trigger-mark.ts";
import {
  PART_OF_LABEL,
  PART_OF_PODSEIDON,
  UPDATE_TRIGGER_ANNOTATION,
  UPDATE_TRIGGER_SCHEDULER,
} from "../../shared/schema/annotations.ts";

/** Never pulled, because no scheduler takes the pod. */
const IMAGE = "podseidon.invalid/never-pulled:none";

const Raw = v.looseObject({
  metadata: v.looseObject({
    uid: v.string(),
    resourceVersion: v.string(),
    annotations: v.optional(v.record(v.string(), v.string())),
  }),
  spec: v.optional(v.looseObject({ schedulerName: v.optional(v.string()), nodeName: v.optional(v.string()) })),
  status: v.optional(v.looseObject({ phase: v.optional(v.string()) })),
});

/** What the trigger reads of the dummy pod. */
export interface TriggerPod {
  readonly uid: string;
  readonly resourceVersion: string;
  /** Counter 0 without a lineage when another component created the pod. */
  readonly mark: TriggerMark;
  /** Another scheduler may take it, or it runs: the name belongs to a pod that is not the project's. */
  readonly isSchedulable: boolean;
  /** It counts as a pod that has run and ended. */
  readonly isCompleted: boolean;
}

/** Throws `ValiError` for an object that is not a pod. */
export function parseTriggerPod(raw: unknown): TriggerPod {
  const { metadata, spec, status } = v.parse(Raw, raw);
  return {
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    mark: parseTriggerMark(metadata.annotations) ?? { counter: 0, lineage: [] },
    isSchedulable: spec?.schedulerName !== UPDATE_TRIGGER_SCHEDULER || (spec.nodeName ?? "") !== "",
    isCompleted: status?.phase === "Succeeded",
  };
}

/** One patch. */
export interface Touch {
  readonly mark: TriggerMark;
  /** Unix milliseconds, for people and for upstream's `status` algorithm. */
  readonly atMs: number;
  /** Where the cell is a label selector: labels that it selects. */
  readonly labels: Readonly<Record<string, string>>;
}

function marks({ mark, atMs, labels }: Touch): Record<string, unknown> {
  return {
    // The webhook allows the deletion of the project's own pods without access to a core.
    labels: { ...labels, [PART_OF_LABEL]: PART_OF_PODSEIDON },
    annotations: {
      [UPDATE_TRIGGER_ANNOTATION]: new Date(atMs).toISOString(),
      ...formatTriggerMark(mark),
    },
  };
}

/** The pod to create. The restricted pod security standard admits it, and no scheduler takes it. */
export function newTriggerPod(namespace: string, name: string, touch: Touch): unknown {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace, name, ...marks(touch) },
    spec: {
      schedulerName: UPDATE_TRIGGER_SCHEDULER,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: 0,
      restartPolicy: "Never",
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: "RuntimeDefault" } },
      containers: [
        {
          name: "main",
          image: IMAGE,
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
        },
      ],
    },
  };
}

/** A merge patch that conflicts unless the pod is the one that was read: the counter must follow the stored one. */
export function triggerPatch(pod: TriggerPod, touch: Touch): unknown {
  return { metadata: { uid: pod.uid, resourceVersion: pod.resourceVersion, ...marks(touch) } };
}

/**
 * A merge patch of the status: a pod that has ended. A Pending one would stand in every dashboard, and an alert would
 * fire for it after a quarter of an hour.
 */
export function completion({ uid, resourceVersion }: TriggerPod): unknown {
  const message = "No scheduler takes this pod. It is patched so that quiet watch streams move.";
  return { metadata: { uid, resourceVersion }, status: { phase: "Succeeded", reason: "NeverRuns", message } };
}
