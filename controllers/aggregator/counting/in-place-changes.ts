/**
 * How far changes in place are (design 10), as a pod's status tells: done, under way, deferred, or declined. Read from the raw pod and
 * kept beside the trimmed one, only for pods that were ever changed; it vanishes with the pod.
 */
import * as v from "valibot";
import type { Pod } from "../../../shared/schema/pod.ts";

export interface InPlaceChanges {
  /** The generation that the pod runs, as far as its status tells; undefined while a change is under way. */
  settledGeneration(pod: Pod): number | undefined;
  /** The generation whose resize the kubelet found infeasible: it will not happen. */
  declinedGeneration(pod: Pod): number | undefined;
  /** The kubelet waits for room before it resizes: that may take any time, and ends in a restart. */
  isDeferred(pod: Pod): boolean;
}

const maybe = v.optional(v.nullable(v.string()));
const list = <T extends v.GenericSchema>(item: T) => v.optional(v.nullable(v.array(item)));

const RawPod = v.looseObject({
  spec: v.looseObject({
    containers: v.array(v.looseObject({ name: v.string(), image: maybe })),
    initContainers: list(v.looseObject({ name: v.string(), image: maybe, restartPolicy: maybe })),
  }),
  status: v.looseObject({
    observedGeneration: v.optional(v.number()),
    containerStatuses: list(v.looseObject({ name: v.string(), image: v.string(), imageID: maybe })),
    initContainerStatuses: list(v.looseObject({ name: v.string(), image: v.string(), imageID: maybe })),
    conditions: list(
      v.looseObject({
        type: v.string(),
        status: v.string(),
        reason: maybe,
        observedGeneration: v.optional(v.number()),
      }),
    ),
  }),
});
type RawPod = v.InferOutput<typeof RawPod>;

type Progress = "settled" | "underWay" | "deferred" | "declined";

export class ChangesOfPods implements InPlaceChanges {
  /** A pod that never changed has generation 1, and nothing is kept for it. */
  readonly #progress = new WeakMap<Pod, Progress>();

  see(raw: unknown, pod: Pod): void {
    if (pod.generation > 1) this.#progress.set(pod, progressOf(raw, pod.generation));
  }

  settledGeneration(pod: Pod): number | undefined {
    return pod.generation <= 1 || this.#progress.get(pod) === "settled" ? pod.generation : undefined;
  }

  declinedGeneration(pod: Pod): number | undefined {
    return this.#progress.get(pod) === "declined" ? pod.generation : undefined;
  }

  isDeferred(pod: Pod): boolean {
    return this.#progress.get(pod) === "deferred";
  }
}

function progressOf(raw: unknown, generation: number): Progress {
  const parsed = v.safeParse(RawPod, raw);
  if (!parsed.success) return "underWay";
  const { spec, status } = parsed.output;
  // Servers before 1.34 do not report it; there the images and conditions have to do.
  if (status.observedGeneration !== undefined && status.observedGeneration < generation) return "underWay";
  const pending = trueCondition(status, "PodResizePending");
  if (trueCondition(status, "PodResizeInProgress") !== undefined || !runsItsImages(spec, status)) return "underWay";
  if (pending === undefined) return "settled";
  if (pending.observedGeneration !== undefined && pending.observedGeneration < generation) return "underWay";
  return pending.reason === "Infeasible" ? "declined" : "deferred";
}

function trueCondition({ conditions }: RawPod["status"], wanted: string) {
  return conditions?.find(({ type, status }) => type === wanted && status === "True");
}

function runsItsImages({ containers, initContainers }: RawPod["spec"], status: RawPod["status"]): boolean {
  const running = new Map(
    [...(status.containerStatuses ?? []), ...(status.initContainerStatuses ?? [])].map((one) => [one.name, one]),
  );
  const sidecars = (initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === "Always");
  return [...containers, ...sidecars].every(({ name, image }) => {
    const found = running.get(name);
    return found !== undefined && isSameImage(image ?? "", found.image, found.imageID ?? "");
  });
}

/** Runtimes report the image with the defaults spelled out, and one that was named by digest under any name. */
function isSameImage(wanted: string, reported: string, imageID: string): boolean {
  if (fullImage(wanted) === fullImage(reported)) return true;
  const digest = /@(sha256:[0-9a-f]{64})$/.exec(wanted)?.[1];
  return digest !== undefined && (reported.endsWith(digest) || imageID.endsWith(digest));
}

function fullImage(image: string): string {
  const named = image.replace(/^(index\.)?docker\.io\//, "").replace(/^library\//, "");
  const last = named.slice(named.lastIndexOf("/") + 1);
  return last.includes(":") || last.includes("@") ? named : `${named}:latest`;
}
