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

/** The fields of the dummy pod that the trigger reads. */
export interface TriggerPod {
  readonly uid: string;
  readonly resourceVersion: string;
  /** Counter 0 without a lineage where another component created the pod. */
  readonly mark: TriggerMark;
  /** A scheduler may place the pod, or the pod runs, so the name belongs to a foreign pod. */
  readonly isSchedulable: boolean;
  /** The pod's status is that of a pod that has ended. */
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
  /** Labels that the cell selects, where the cell is a label selector. */
  readonly labels: Readonly<Record<string, string>>;
}

function marks({ mark, atMs, labels }: Touch): Record<string, unknown> {
  return {
    // The webhook allows the deletion of the project's own pods without access to a core.
    labels: { ...labels, [PART_OF_LABEL]: PART_OF_PODSEIDON },
    annotations: { [UPDATE_TRIGGER_ANNOTATION]: new Date(atMs).toISOString(), ...formatTriggerMark(mark) },
  };
}

/** A quota may ask for them. The pod never runs, and one that has ended uses no quota. */
const RESOURCES = { cpu: "10m", memory: "16Mi" };

/**
 * The pod to create. The restricted pod security standard admits it, and OpenShift, whose users have other numbers. No
 * scheduler takes it.
 */
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
      securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
      containers: [
        {
          name: "main",
          image: IMAGE,
          resources: { requests: RESOURCES, limits: RESOURCES },
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
        },
      ],
    },
  };
}

/**
 * A merge patch that conflicts unless the pod is unchanged since the read: the counter must continue from the stored
 * one.
 */
export function triggerPatch(pod: TriggerPod, touch: Touch): unknown {
  return { metadata: { uid: pod.uid, resourceVersion: pod.resourceVersion, ...marks(touch) } };
}

/**
 * A merge patch of the status to that of a pod that has ended. A Pending pod would appear in every dashboard, and an
 * alert would fire for it after a quarter of an hour.
 */
export function completion({ uid, resourceVersion }: TriggerPod): unknown {
  const message = "No scheduler takes this pod. It is patched so that quiet watch streams move.";
  return { metadata: { uid, resourceVersion }, status: { phase: "Succeeded", reason: "NeverRuns", message } };
}
