/**
 * What an update of a pod disrupts: a deadline ends the pod, some changes restart containers, and changed labels take
 * the pod out of the selectors of protectors.
 *
 * Which containers an update of a pod restarts (docs/design.md#in-place-changes): those with another image, and those
 * with other resources (their own, or the pod's from Kubernetes 1.36 on) whose resize policy says RestartContainer.
 * Everything else restarts nothing: metadata, tolerations, other resizes, and a new image of an ordinary init
 * container, which has run already. Reads the raw objects, because nothing else needs the containers.
 */
import { sameLabels } from "../../shared/kube/selectors/label-index.ts";
import { recordOrEmpty, valueAt } from "../../shared/schema/check.ts";

type Json = Readonly<Record<string, unknown>>;

interface Container {
  readonly name: string;
  readonly image: string;
  /** Requests and limit of a resource, as text. */
  readonly amounts: (resource: string) => string;
  /** Resources whose resize restarts the container. */
  readonly restartedBy: readonly string[];
}

function listOf(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.map(recordOrEmpty) : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Anybody who reaches the port can send values that are nested deeper than the stack. */
function amountOf(value: unknown): string {
  return typeof value === "object" ? "" : String(value);
}

/**
 * What the container requests of the resource, and its limit. As for the kubelet, a container without a limit has the
 * limit of its pod. Read for one resource at a time: containers and resources of a pod may be thousands.
 */
function amountsOf({ requests, limits }: Json, podLimits: Json, resource: string): string {
  const amountIn = (amounts: unknown): string => {
    const found = recordOrEmpty(amounts);
    return Object.hasOwn(found, resource) ? amountOf(found[resource]) : "";
  };
  const limit = amountIn(limits);
  return `${amountIn(requests)}/${limit === "" || limit === "0" ? amountIn(podLimits) : limit}`;
}

function containerOf({ name, image, resources, resizePolicy }: Json, podLimits: Json): Container {
  const restarting = listOf(resizePolicy).filter(({ restartPolicy }) => restartPolicy === "RestartContainer");
  return {
    name: textOf(name),
    image: textOf(image),
    amounts: (resource) => amountsOf(recordOrEmpty(resources), podLimits, resource),
    restartedBy: restarting.map(({ resourceName }) => textOf(resourceName)),
  };
}

/** The containers that run as long as the pod does: sidecars and containers, without ordinary init containers. */
function runningContainers(pod: unknown): readonly Container[] {
  const { containers, initContainers, resources } = recordOrEmpty(valueAt(pod, "spec"));
  const podLimits = recordOrEmpty(valueAt(resources, "limits"));
  const sidecars = listOf(initContainers).filter(({ restartPolicy }) => restartPolicy === "Always");
  return [...sidecars, ...listOf(containers)].map((container) => containerOf(container, podLimits));
}

function isRestarted(before: Container, after: Container): boolean {
  // The resize policy is immutable, so the kubelet follows the policy from before the update.
  const isResized = (name: string): boolean => before.amounts(name) !== after.amounts(name);
  return after.image !== before.image || before.restartedBy.some(isResized);
}

/** Names of the containers that the change restarts. `before` and `after` are raw pods. */
export function restartedContainers(before: unknown, after: unknown): readonly string[] {
  const changed = new Map(runningContainers(after).map((container) => [container.name, container]));
  return runningContainers(before).flatMap((container) => {
    const next = changed.get(container.name);
    return next !== undefined && isRestarted(container, next) ? [container.name] : [];
  });
}

/** The change lets the kubelet end the pod, or end it sooner. A later deadline, or none, is invalid. */
export function endsSooner(before: unknown, after: unknown): boolean {
  const deadlineOf = (pod: unknown): number => {
    const activeDeadlineSeconds = valueAt(pod, "spec", "activeDeadlineSeconds");
    return typeof activeDeadlineSeconds === "number" ? activeDeadlineSeconds : Number.POSITIVE_INFINITY;
  };
  return deadlineOf(after) < deadlineOf(before);
}

function labelsOf(pod: unknown): Readonly<Record<string, string>> {
  const labels = recordOrEmpty(valueAt(pod, "metadata", "labels"));
  return Object.fromEntries(Object.entries(labels).map(([key, value]) => [key, textOf(value)]));
}

/** The labels that the change gives the pod; undefined where they stay as they are. */
export function changedLabels(before: unknown, after: unknown): Readonly<Record<string, string>> | undefined {
  const labels = labelsOf(after);
  return sameLabels(labelsOf(before), labels) ? undefined : labels;
}
