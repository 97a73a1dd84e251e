/**
 * Which containers an update of a pod restarts (design 10): another image, or other resources, of its own or of the whole pod (Kubernetes
 * 1.36), where the container's resize policy says RestartContainer. Metadata, tolerations, deadlines and resizes without a restart are free. Ordinary init containers have
 * run; a new image of one restarts nothing. Read here from the raw objects, because nothing else needs the containers.
 */

type Json = Readonly<Record<string, unknown>>;

interface Container {
  readonly name: string;
  readonly image: string;
  /** By resource name: requests and limits, as text. */
  readonly resources: ReadonlyMap<string, string>;
  /** Resources whose resize restarts the container. */
  readonly restartedBy: ReadonlySet<string>;
}

function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? Object(value) : {};
}

function listOf(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.map(objectOf) : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Requests and limits by resource; a limit that the container does not set is the pod's, as its kubelet has it. */
function resourcesOf({ requests, limits }: Json, podLimits: Json): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const [kind, amounts] of [
    ["requests", objectOf(requests)],
    ["limits", { ...podLimits, ...withoutZeros(objectOf(limits)) }],
  ] as const) {
    for (const [name, amount] of Object.entries(amounts)) {
      found.set(name, `${found.get(name) ?? ""} ${kind}=${String(amount)}`);
    }
  }
  return found;
}

function withoutZeros(amounts: Json): Json {
  return Object.fromEntries(Object.entries(amounts).filter(([, amount]) => String(amount) !== "0"));
}

function containerOf({ name, image, resources, resizePolicy }: Json, podLimits: Json): Container {
  const restarting = listOf(resizePolicy).filter(({ restartPolicy }) => restartPolicy === "RestartContainer");
  return {
    name: textOf(name),
    image: textOf(image),
    resources: resourcesOf(objectOf(resources), podLimits),
    restartedBy: new Set(restarting.map(({ resourceName }) => textOf(resourceName))),
  };
}

/** The containers that run for as long as the pod does: all but the init containers that end. */
function runningContainers(pod: unknown): readonly Container[] {
  const { containers, initContainers, resources } = objectOf(objectOf(pod).spec);
  const podLimits = objectOf(objectOf(resources).limits);
  const sidecars = listOf(initContainers).filter(({ restartPolicy }) => restartPolicy === "Always");
  return [...sidecars, ...listOf(containers)].map((container) => containerOf(container, podLimits));
}

function isResizedByRestart(before: Container, after: Container): boolean {
  // The policy of a pod can't be changed; that of the pod as it was is the one that its kubelet goes by.
  return [...before.restartedBy].some((name) => before.resources.get(name) !== after.resources.get(name));
}

/** Names of the containers that the change restarts; `before` and `after` are pods as an AdmissionReview carries them. */
export function restartedContainers(before: unknown, after: unknown): readonly string[] {
  const wanted = new Map(runningContainers(after).map((container) => [container.name, container]));
  const restarted: string[] = [];
  for (const container of runningContainers(before)) {
    const next = wanted.get(container.name);
    if (next === undefined) continue;
    if (next.image !== container.image || isResizedByRestart(container, next)) restarted.push(container.name);
  }
  return restarted;
}
