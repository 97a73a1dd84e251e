/**
 * The state of in-place changes (docs/design.md#in-place-changes): done, under way, deferred or declined. Read from the
 * status of the raw pod and kept beside the trimmed pod, only for pods that were ever changed.
 */
import * as v from "valibot";
import type { Pod } from "../../../shared/schema/pod.ts";

const maybe = v.optional(v.nullable(v.string()));
const list = <T extends v.GenericSchema>(item: T) => v.optional(v.nullable(v.array(item)));

const generation = v.optional(v.number());
const ContainerStatus = v.looseObject({ name: v.string(), image: v.string(), imageID: maybe });
const Condition = v.looseObject({
  type: v.string(),
  status: v.string(),
  reason: maybe,
  observedGeneration: generation,
});
const RawPod = v.looseObject({
  spec: v.looseObject({
    containers: v.array(v.looseObject({ name: v.string(), image: maybe })),
    initContainers: list(v.looseObject({ name: v.string(), image: maybe, restartPolicy: maybe })),
  }),
  status: v.looseObject({
    observedGeneration: generation,
    containerStatuses: list(ContainerStatus),
    initContainerStatuses: list(ContainerStatus),
    conditions: list(Condition),
  }),
});
type RawPod = v.InferOutput<typeof RawPod>;

type ChangeState = "done" | "underWay" | "deferred" | "declined";

export class InPlaceChanges {
  /** Without the pods of generation 1, which were never changed. */
  readonly #states = new WeakMap<Pod, ChangeState>();

  see(raw: unknown, pod: Pod): void {
    if (pod.generation > 1) this.#states.set(pod, stateOf(raw, pod.generation));
  }

  /** The generation that the pod runs, as far as its status tells; undefined while a change is under way. */
  settledGeneration(pod: Pod): number | undefined {
    return pod.generation <= 1 || this.#states.get(pod) === "done" ? pod.generation : undefined;
  }

  /** The generation whose resize the kubelet found infeasible: it will not happen. */
  declinedGeneration(pod: Pod): number | undefined {
    return this.#states.get(pod) === "declined" ? pod.generation : undefined;
  }

  /** The kubelet waits for free resources before it resizes the pod, and restarts containers then. */
  isDeferred(pod: Pod): boolean {
    return this.#states.get(pod) === "deferred";
  }
}

function stateOf(raw: unknown, generation: number): ChangeState {
  const parsed = v.safeParse(RawPod, raw);
  if (!parsed.success) return "underWay";
  const { spec, status } = parsed.output;
  // Servers before 1.34 report no observedGeneration; there only images and conditions tell.
  if (status.observedGeneration !== undefined && status.observedGeneration < generation) return "underWay";
  const pending = trueCondition(status, "PodResizePending");
  if (trueCondition(status, "PodResizeInProgress") !== undefined || !runsItsImages(spec, status)) return "underWay";
  if (pending === undefined) return "done";
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

/** Runtimes report an image with its defaults spelled out, and an image named by digest under any name. */
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
