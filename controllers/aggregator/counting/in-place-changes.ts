/**
 * The state of in-place changes (docs/design.md#in-place-changes): done, under way, unconfirmed, deferred or declined.
 * Read from the status of the raw pod and stored beside the trimmed pod, only for pods that were changed.
 */
import * as v from "valibot";
import { BoundedMap } from "../../../shared/runtime/bounded-map.ts";
import type { Pod } from "../../../shared/schema/pod.ts";

const maybe = v.nullish(v.string());
const list = <T extends v.GenericSchema>(item: T) => v.nullish(v.array(item));

const generation = v.optional(v.number());
/** Leaves out all that no restart shows in, such as messages: those of {@link MAX_REMEMBERED} pods are kept. */
const ContainerStatus = v.object({
  name: v.string(),
  image: v.string(),
  imageID: maybe,
  containerID: maybe,
  restartCount: v.optional(v.number()),
});
type ContainerStatus = v.InferOutput<typeof ContainerStatus>;
const Condition = v.looseObject({ type: v.string(), status: v.string(), reason: maybe });
const RawPod = v.looseObject({
  spec: v.looseObject({
    activeDeadlineSeconds: v.nullish(v.number()),
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

/** Unconfirmed: the kubelet has seen the change, and containers report images of other names. */
type ChangeState = "done" | "underWay" | "unconfirmed" | "deferred" | "declined";

/** The containers of a pod as they ran before its kubelet reported to have seen the change. */
interface BeforeRestart {
  readonly generation: number;
  readonly containers: ReadonlyMap<string, ContainerStatus>;
}

/** Most changes with unrecognised images that are remembered. A forgotten change stays unconfirmed. */
const MAX_REMEMBERED = 10_000;

export class InPlaceChanges {
  /** Lacks pods of generation 1, which were never changed, unless they are older than Kubernetes 1.33. */
  readonly #states = new WeakMap<Pod, ChangeState>();
  /** By UID. */
  readonly #before = new BoundedMap<string, BeforeRestart>(MAX_REMEMBERED);

  see(raw: unknown, pod: Pod): void {
    if (pod.generation === 1) return;
    const parsed = v.safeParse(RawPod, raw);
    const state = parsed.success ? this.#stateOf(parsed.output, pod) : "underWay";
    this.#states.set(pod, state);
  }

  /** The generation that the pod runs, by its status; undefined while a change is under way. */
  settledGeneration(pod: Pod): number | undefined {
    return pod.generation === 1 || this.#states.get(pod) === "done" ? pod.generation : undefined;
  }

  /** The generation that the kubelet has seen, where the reported images do not show whether the pod runs it. */
  unconfirmedGeneration(pod: Pod): number | undefined {
    return this.#states.get(pod) === "unconfirmed" ? pod.generation : undefined;
  }

  /** The generation whose resize the kubelet found infeasible, so that the resize will not happen. */
  declinedGeneration(pod: Pod): number | undefined {
    return this.#states.get(pod) === "declined" ? pod.generation : undefined;
  }

  /** The kubelet waits for free resources before it resizes the pod, and restarts containers then. */
  isDeferred(pod: Pod): boolean {
    return this.#states.get(pod) === "deferred";
  }

  #stateOf({ spec, status }: RawPod, pod: Pod): ChangeState {
    const { generation } = pod;
    // The kubelet ends the pod sooner or later, whatever its containers run.
    if (typeof spec.activeDeadlineSeconds === "number") return "underWay";
    const others = containersOfOtherImages(spec, status);
    if (others.length === 0 || pod.terminating) this.#before.delete(pod.uid);
    const isRestarted = others.length === 0 || this.#isRestarted(pod, status, others);
    // Servers before 1.34 report no observedGeneration; there, only images and conditions show the state.
    if (status.observedGeneration !== undefined && status.observedGeneration < generation) return "underWay";
    const resize = trueCondition(status, "PodResizeInProgress");
    // A kubelet stops containers before a resize can fail. A resize fails while containers use the memory that it would
    // take.
    if (resize !== undefined && resize.reason !== "Error") return "underWay";
    if (!isRestarted) return "unconfirmed";
    const pending = trueCondition(status, "PodResizePending");
    if (pending === undefined) return "done";
    // Whatever the condition's generation is: the kubelet does not update the condition when a change resizes nothing.
    return pending.reason === "Infeasible" ? "declined" : "deferred";
  }

  /**
   * A container has restarted since the kubelet saw the change. The kubelet stops all changed containers before it
   * starts one of them again, so one restart is enough. Without observedGeneration, nothing shows which change caused a
   * restart.
   */
  #isRestarted(pod: Pod, status: RawPod["status"], others: readonly string[]): boolean {
    const { observedGeneration } = status;
    if (observedGeneration === undefined) return false;
    const containers = statusesOf(status);
    const before = this.#before.get(pod.uid);
    if (before?.generation === pod.generation && observedGeneration >= pod.generation)
      return others.some((name) => hasRestarted(before.containers.get(name), containers.get(name)));
    this.#remember(pod, containers);
    return false;
  }

  #remember({ uid, generation, terminating }: Pod, containers: ReadonlyMap<string, ContainerStatus>): void {
    if (terminating) this.#before.delete(uid);
    else this.#before.set(uid, { generation, containers });
  }
}

function hasRestarted(before: ContainerStatus | undefined, now: ContainerStatus | undefined): boolean {
  if (before === undefined || now === undefined) return false;
  const differs = (key: "containerID" | "imageID"): boolean => {
    const [old, current] = [before[key] ?? "", now[key] ?? ""];
    return old !== "" && current !== "" && old !== current;
  };
  return differs("containerID") || differs("imageID") || (now.restartCount ?? 0) > (before.restartCount ?? 0);
}

function trueCondition({ conditions }: RawPod["status"], wanted: string) {
  return conditions?.find(({ type, status }) => type === wanted && status === "True");
}

function statusesOf({ containerStatuses, initContainerStatuses }: RawPod["status"]) {
  return new Map([...(containerStatuses ?? []), ...(initContainerStatuses ?? [])].map((one) => [one.name, one]));
}

/** Names of the containers that do not report the image of the spec. */
function containersOfOtherImages(
  { containers, initContainers }: RawPod["spec"],
  status: RawPod["status"],
): readonly string[] {
  const running = statusesOf(status);
  const sidecars = (initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === "Always");
  return [...containers, ...sidecars].flatMap(({ name, image }) => {
    const found = running.get(name);
    return found !== undefined && isSameImage(image ?? "", found.image, found.imageID ?? "") ? [] : [name];
  });
}

/** Runtimes report an image with its defaults spelled out, and an image of a digest under any name. */
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
