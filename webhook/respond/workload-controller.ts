/**
 * The workload whose controller was denied a deletion. A controller of Kubernetes repeats it by itself, but its pauses
 * grow to 1,000 s, and quota that another workload frees does not wake it. So an Event at the workload reports the
 * denial, the longest pause, and what wakes its controller.
 */
import type { ObjectReference } from "../../shared/observe/event-recorder.ts";
import { recordOrEmpty, valueAt } from "../../shared/schema/check.ts";
import { MAX_KEY_LENGTH } from "../../shared/schema/lengths.ts";

/** The longest pause of client-go's rate limiter for the work queues of controllers. */
const MAX_BACKOFF_SECONDS = 1_000;

/** Controllers have service accounts, or act as kube-controller-manager. People read the response instead. */
const CONTROLLER = /^system:(serviceaccount:|kube-controller-manager$)/;
/** Controllers that delete the pods of others. */
const OF_NO_WORKLOAD =
  /:kube-system:((node|namespace|ttl-after-finished|device-taint-eviction)-controller|[a-z]+-garbage-collector)$/;

/** True for the user name of a workload's controller. */
export function isWorkloadController(username: string): boolean {
  return CONTROLLER.test(username) && !OF_NO_WORKLOAD.test(username);
}

/** The controlling owner of a pod. */
export function controllingOwner(oldObject: unknown): ObjectReference | undefined {
  const { namespace, ownerReferences } = recordOrEmpty(valueAt(oldObject, "metadata"));
  if (typeof namespace !== "string" || !Array.isArray(ownerReferences)) return undefined;
  for (const reference of ownerReferences) {
    const { apiVersion, kind, name, uid, controller } = recordOrEmpty(reference);
    if (controller !== true || !isShort(apiVersion) || !isShort(kind)) continue;
    if (isShort(name) && isShort(uid)) return { apiVersion, kind, namespace, name, uid };
  }
  return undefined;
}

/**
 * The end of the message at the workload. Service accounts also belong to programs that repeat nothing, such as a
 * pipeline.
 */
export function backoffNote({ kind, name }: ObjectReference): string {
  return (
    `; if that is the controller of ${kind} ${name}, it repeats this by itself, at most ${MAX_BACKOFF_SECONDS} s ` +
    "after more pods are available, and at once when the object is changed, for example annotated"
  );
}

/** The request may be forged, and kube-apiserver would store an Event of a megabyte. */
function isShort(value: unknown): value is string {
  return typeof value === "string" && value.length <= MAX_KEY_LENGTH;
}
