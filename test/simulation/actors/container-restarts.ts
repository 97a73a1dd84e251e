/**
 * How the kubelets of one cell carry out changes in place (docs/design.md#in-place-changes). A kubelet stops a
 * container and starts it again, some time after the change or after the next one. Some images can't be pulled for a
 * while, and some resizes are deferred or infeasible. The judge asks here which pods are about to restart.
 */
import type { VirtualTime } from "../../support/runtime/virtual-ports.ts";
import type { EtcdChange, EtcdObject, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { SeenRule } from "../judge/coverage.ts";
import type { Chance } from "../scenario/random.ts";
import type { Kubelet } from "./kubelet.ts";

const SYNC_MEAN_MS = 800;
const STOP_MEAN_MS = 300;
const START_MEAN_MS = 3_000;
const PULL_AGAIN_MEAN_MS = 8_000;
const ROOM_MEAN_MS = 15_000;
const PULL_FAILURE_RATE = 0.15;
const INFEASIBLE_RATE = 0.15;
const DEFERRED_RATE = 0.25;
const MIRROR = "mirror.example.com/library/";
export const RESIZE_CONDITIONS = ["PodResizePending", "PodResizeInProgress"];

/** Part of a container where pods are changed in place: more CPU restarts the container, more memory does not. */
export const CHANGEABLE_CONTAINER: Json = {
  resources: { requests: { cpu: "100m", memory: "64Mi" } },
  resizePolicy: [
    { resourceName: "cpu", restartPolicy: "RestartContainer" },
    { resourceName: "memory", restartPolicy: "NotRequired" },
  ],
};

/** The part of the spec whose change restarts the container. */
interface Running {
  readonly image: string;
  readonly cpu: string;
}

interface Node {
  readonly uid: string;
  readonly key: string;
  running: Running;
  /** The container is stopped, and has not started again. */
  isDown: boolean;
  isBusy: boolean;
  /** The CPU of a resize that is infeasible. */
  declinedCpu: string | undefined;
  isDeferred: boolean;
  /** Of the pod when its resize was judged: the condition keeps it when something else is changed. */
  judgedGeneration: number;
  /** The pod has a deadline. */
  isEnding: boolean;
  /** How often the container has started again. */
  restarts: number;
}

interface RestartWorld {
  readonly server: ApiServer;
  readonly time: VirtualTime;
  readonly kubelet: Kubelet;
  readonly chance: Chance;
  /** The runtime reports images under names of its own. */
  readonly resolvesImages: boolean;
  faultsActive(): boolean;
  rule(name: SeenRule): void;
}

export class ContainerRestarts {
  readonly #world: RestartWorld;
  readonly #nodes = new Map<string, Node>();

  constructor(world: RestartWorld) {
    this.#world = world;
    world.server.etcd.observe((change) => this.#changed(change));
  }

  /** True while a committed change will stop the pod's container, or has stopped it. */
  isInProgress(uid: string): boolean {
    const node = this.#nodes.get(uid);
    if (node === undefined) return false;
    const stored = this.#stored(node);
    return stored !== undefined && (node.isDown || isEnding(stored.value) || differs(node, wantedOf(stored.value)));
  }

  inProgress(): string[] {
    return [...this.#nodes.keys()].filter((uid) => this.isInProgress(uid));
  }

  isDown(uid: string): boolean {
    return this.#nodes.get(uid)?.isDown === true;
  }

  /** Whether the kubelet says this of a resize now; false for conditions that it no longer has. */
  hasResizeCondition(uid: string, type: string): boolean {
    const node = this.#nodes.get(uid);
    const stored = node === undefined ? undefined : this.#stored(node);
    if (node === undefined || stored === undefined) return false;
    return resizeOf(node, wantedOf(stored.value).cpu).some((one) => one.type === type);
  }

  /** After a restore of etcd, containers run what the pods' status says, and restarts continue from there. */
  restored(): void {
    this.#nodes.clear();
    for (const { key, value } of this.#world.server.etcd.range("pods/")) {
      const uid = text(metadataOf(value).uid) ?? "";
      if (metadataOf(value).deletionTimestamp !== undefined || record(value.status).phase !== "Running") continue;
      const node = this.#nodeOf(uid, key, value);
      if (isEnding(value)) this.#endLater(node, value);
      node.isDown = appOf(record(value.status).containerStatuses).ready === false;
      if (node.isDown) this.#later(node, START_MEAN_MS, () => this.#start(node, undefined));
      else this.#later(node, SYNC_MEAN_MS, () => this.#sync(node, false));
    }
  }

  #changed({ key, after, before }: EtcdChange): void {
    if (!key.startsWith("pods/")) return;
    const uid = text(metadataOf((after ?? before)?.value ?? {}).uid) ?? "";
    if (after === undefined || metadataOf(after.value).deletionTimestamp !== undefined) {
      if (this.isDown(uid)) this.#world.rule("a pod is deleted while it restarts");
      this.#nodes.delete(uid);
      return;
    }
    if (record(after.value.status).phase !== "Running") return;
    const node = this.#nodeOf(uid, key, after.value);
    if (isEnding(after.value) && !node.isEnding) this.#endLater(node, after.value);
    const { generation } = metadataOf(after.value);
    if (Number(generation) === observedOf(after.value)) return;
    if (node.isDown && generation !== metadataOf(before?.value ?? {}).generation)
      this.#world.rule("a second change while the first is in progress");
    this.#later(node, SYNC_MEAN_MS, () => this.#sync(node, false));
  }

  #nodeOf(uid: string, key: string, pod: Json): Node {
    const { restartCount } = appOf(record(pod.status).containerStatuses);
    const flags = { isDown: false, isBusy: false, isDeferred: false, isEnding: false };
    const rest = { ...flags, declinedCpu: undefined, judgedGeneration: 1 };
    const restarts = Number(restartCount ?? 0);
    const node = this.#nodes.get(uid) ?? { uid, key, running: runningOf(pod), restarts, ...rest };
    this.#nodes.set(uid, node);
    return node;
  }

  /** Pods have run since their creation. */
  #endLater(node: Node, { metadata, spec }: Json): void {
    node.isEnding = true;
    const { time, chance, kubelet, rule } = this.#world;
    const { activeDeadlineSeconds } = record(spec);
    const dueMs = Date.parse(String(record(metadata).creationTimestamp)) + Number(activeDeadlineSeconds) * 1000;
    const leftMs = Math.max(0, dueMs - time.clock.nowMs());
    time.timers.after(leftMs + chance.exponential(SYNC_MEAN_MS), () => {
      if (this.#nodes.get(node.uid) !== node || this.#stored(node) === undefined) return;
      rule("deadlines: a pod is over");
      kubelet.fail(node.key, "DeadlineExceeded");
    });
  }

  /** The kubelet looks at the pod. A pod has one action at a time. */
  #sync(node: Node, hasRoom: boolean): void {
    const stored = this.#stored(node);
    if (stored === undefined) return;
    const wanted = wantedOf(stored.value);
    const { chance } = this.#world;
    node.isDeferred = false;
    if (wanted.cpu === node.running.cpu) node.declinedCpu = undefined;
    else if (wanted.cpu !== node.declinedCpu && !hasRoom) this.#judgeResize(node, wanted);
    const isResized = wanted.cpu !== node.running.cpu && wanted.cpu !== node.declinedCpu && !node.isDeferred;
    const restarts = isResized || wanted.image !== node.running.image;
    // The next action is set first, because this class sees the write below, too.
    if (restarts) this.#later(node, STOP_MEAN_MS, () => this.#stop(node, chance.chance(0.5) ? wanted : undefined));
    else if (node.isDeferred) this.#later(node, ROOM_MEAN_MS, () => this.#sync(node, true));
    // Half of the kubelets report what they are about to do.
    if (!restarts || chance.chance(0.5)) this.#write(node, stored, wanted.generation);
  }

  #judgeResize(node: Node, { cpu, generation }: Wanted): void {
    node.judgedGeneration = generation;
    const { chance, faultsActive, rule } = this.#world;
    const fate = chance.fraction();
    if (!faultsActive()) return;
    if (fate < INFEASIBLE_RATE) {
      rule("a resize is infeasible");
      node.declinedCpu = cpu;
    } else if (fate < INFEASIBLE_RATE + DEFERRED_RATE) {
      rule("a resize is deferred");
      node.isDeferred = true;
    }
  }

  /**
   * `wanted`: what the container starts with, whatever changes meanwhile; undefined: what the spec says at its start.
   */
  #stop(node: Node, wanted: Wanted | undefined): void {
    const stored = this.#stored(node);
    if (stored === undefined) return;
    node.isDown = true;
    this.#later(node, START_MEAN_MS, () => this.#start(node, wanted));
    this.#write(node, stored, observedOf(stored.value), false);
  }

  #start(node: Node, wanted: Wanted | undefined): void {
    const stored = this.#stored(node);
    if (stored === undefined) return;
    const { chance, faultsActive, rule } = this.#world;
    if (chance.chance(PULL_FAILURE_RATE) && faultsActive()) {
      rule("a restart fails for a while");
      this.#later(node, PULL_AGAIN_MEAN_MS, () => this.#start(node, undefined));
      return;
    }
    const next = wanted ?? wantedOf(stored.value);
    node.running = { image: next.image, cpu: next.cpu === node.declinedCpu ? node.running.cpu : next.cpu };
    node.isDown = false;
    node.restarts += 1;
    this.#write(node, stored, next.generation, true);
  }

  #later(node: Node, meanMs: number, action: () => void): void {
    if (node.isBusy) return;
    node.isBusy = true;
    const { time, chance } = this.#world;
    time.timers.after(chance.exponential(meanMs), () => {
      if (this.#nodes.get(node.uid) !== node) return;
      node.isBusy = false;
      action();
    });
  }

  #write(node: Node, stored: EtcdObject, observedGeneration: number, ready?: boolean): void {
    const { image } = node.running;
    const names = this.#world.resolvesImages ? this.#resolved(node) : { image };
    const containerStatuses = [{ name: "app", ...names, ready: !node.isDown }];
    this.#world.kubelet.write(stored, {
      ...(ready === undefined ? {} : { ready }),
      fields: { observedGeneration, containerStatuses },
      without: RESIZE_CONDITIONS,
      conditions: resizeOf(node, wantedOf(stored.value).cpu),
    });
  }

  /** The image's name in a mirror, and what changes at a restart. */
  #resolved({ uid, restarts, running: { image } }: Node): Json {
    this.#world.rule("a runtime reports another name");
    const containerID = `containerd://${uid}-${restarts}`;
    return { image: `${MIRROR}${image}`, imageID: `${MIRROR}app@sha256:${image}`, containerID, restartCount: restarts };
  }

  #stored(node: Node): EtcdObject | undefined {
    const stored = this.#world.server.etcd.get(node.key);
    if (stored === undefined || metadataOf(stored.value).uid !== node.uid) return undefined;
    const isLiving = metadataOf(stored.value).deletionTimestamp === undefined;
    return isLiving && record(stored.value.status).phase === "Running" ? stored : undefined;
  }
}

interface Wanted extends Running {
  readonly generation: number;
}

function differs({ running, declinedCpu }: Node, wanted: Running): boolean {
  return wanted.image !== running.image || (wanted.cpu !== running.cpu && wanted.cpu !== declinedCpu);
}

function wantedOf(pod: Json): Wanted {
  const app = appOf(record(pod.spec).containers);
  const { cpu } = record(record(app.resources).requests);
  return { image: String(app.image), cpu: String(cpu), generation: Number(metadataOf(pod).generation) };
}

/** By the pod's status, or by its spec while the pod has never changed. */
function runningOf(pod: Json): Running {
  const app = appOf(record(pod.status).containerStatuses);
  const { image, cpu } = wantedOf(pod);
  return { image: text(app.image)?.replace(MIRROR, "") ?? image, cpu };
}

/** The only container, of a spec or of a status. */
function appOf(containers: unknown): Json {
  return record(Array.isArray(containers) ? containers[0] : undefined);
}

function observedOf(pod: Json): number {
  return Number(record(pod.status).observedGeneration ?? 1);
}

/** The condition of a resize that is not done. */
function resizeOf({ running, declinedCpu, isDeferred, judgedGeneration }: Node, cpu: string): Json[] {
  if (cpu === running.cpu) return [];
  const isPending = cpu === declinedCpu || isDeferred;
  const reason = cpu === declinedCpu ? "Infeasible" : "Deferred";
  const type = isPending ? "PodResizePending" : "PodResizeInProgress";
  return [{ type, status: "True", ...(isPending ? { reason } : {}), observedGeneration: judgedGeneration }];
}

/** Whether an update stops a container, or ends the pod. Decided here from the spec, without code of the product. */
export function restartsContainer(before: Json, after: Json): boolean {
  const [old, next] = [wantedOf(before), wantedOf(after)];
  return old.image !== next.image || old.cpu !== next.cpu || isEnding(after) !== isEnding(before);
}

/** The kubelet ends the pod when its deadline is over. In these worlds a deadline, once set, stays as it is. */
function isEnding(pod: Json): boolean {
  return record(pod.spec).activeDeadlineSeconds !== undefined;
}
