/**
 * Carries out the evictions that taints ask for and that nobody repeats (docs/design.md#eviction-retry). One key is
 * one node. The memory is the cluster's own: a pod that has the condition DisruptionTarget, on a node with a NoExecute
 * taint that it does not tolerate, is a pod whose deletion did not happen. So a restart forgets nothing but how long it
 * waited.
 */
import { evictedAfterMs } from "../../shared/decide/taint-eviction.ts";
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { podPath, withQuery } from "../../shared/kube/client/api-path.ts";
import { type ApiFailure, type ApiResult, describeFailure, errorOf } from "../../shared/kube/client/api-result.ts";
import { isOversized } from "../../shared/kube/client/transport.ts";
import type { Informer } from "../../shared/kube/informer/informer.ts";
import { Backoff, type BackoffOptions } from "../../shared/runtime/backoff.ts";
import { aborted, type Ports } from "../../shared/runtime/clock.ts";
import { DONE, failed, later, type ReconcileOutcome, runWorkers } from "../../shared/runtime/reconcile.ts";
import { type QueueEvent, WorkQueue } from "../../shared/runtime/work-queue.ts";
import { type PlacedPod, parsePlacedPage, type TaintedNode } from "../../shared/schema/taints.ts";

/** Nodes at a time, and with that evictions under way: a zone that fails must not become a storm of evictions. */
const NODES_AT_ONCE = 4;
/** So many pods fit into a response, as large as etcd and JSON let them be. */
const SMALL_PAGE_SIZE = 8;
/** More than any node has, also one that stands for a cluster. A page counts for {@link SMALL_PAGE_SIZE} at least. */
const MAX_PODS = 40_000;
/** Longer than the webhook of the eviction may take. */
const TIMEOUT_MS = 30_000;
/** The longest pause of one pod, in looks. Quota that comes back is used after half of that on average. */
const MOST_LOOKS = 8;

export const EVICTION_OUTCOMES = ["evicted", "denied", "gone", "failed"] as const;

/** What became of one eviction. `isFirst`: nothing was tried about this pod before. */
export interface EvictionEvent {
  readonly kind: (typeof EVICTION_OUTCOMES)[number];
  readonly pod: Pick<PlacedPod, "namespace" | "name" | "uid">;
  readonly node: string;
  readonly taints: readonly string[];
  readonly isFirst: boolean;
  readonly message: string;
}

export interface EvictionRetrierOptions {
  readonly api: Pick<ApiClient, "get" | "create">;
  readonly nodes: Pick<Informer<TaintedNode>, "get" | "values" | "subscribe">;
  readonly ports: Ports;
  /** The time of the callers that repeat a denied deletion by themselves. */
  readonly afterMs: number;
  /** From one look at the pods of a tainted node to the next. */
  readonly intervalMs: number;
  readonly mayWrite: () => boolean;
  readonly onEvent: (event: EvictionEvent) => void;
  readonly onQueueEvent?: (event: QueueEvent) => void;
  readonly onOutcome?: (node: string, outcome: ReconcileOutcome) => void;
}

/** A pod that is to be evicted, since this process has seen that. */
interface WaitingPod {
  readonly sinceMs: number;
  /** By the taints at that time. */
  readonly toleratedMs: number;
  readonly backoff: Backoff;
  nextTryMs: number;
  /** Of the first try that did not end it. */
  triedMs?: number;
}

/** The evictions of one leadership. */
export class EvictionRetrier {
  readonly queue: WorkQueue;
  readonly #options: EvictionRetrierOptions;
  readonly #backoff: BackoffOptions;
  /** By node and UID: at most the pods of the tainted nodes. */
  readonly #waiting = new Map<string, Map<string, WaitingPod>>();

  constructor(options: EvictionRetrierOptions) {
    this.#options = options;
    const { ports, intervalMs, onQueueEvent } = options;
    this.#backoff = { initialMs: intervalMs, maxMs: MOST_LOOKS * intervalMs };
    this.queue = new WorkQueue({
      name: "nodes",
      ports,
      backoff: this.#backoff,
      ...(onQueueEvent ? { onEvent: onQueueEvent } : {}),
    });
  }

  /** Pods that were tried and are still there. */
  get waiting(): number {
    let count = 0;
    for (const pods of this.#waiting.values())
      for (const { backoff } of pods.values()) if (backoff.failures > 0) count += 1;
    return count;
  }

  /** Time since the first try of the pod that has waited longest; 0 where none waits. */
  get oldestMs(): number {
    const nowMs = this.#options.ports.clock.monotonicMs();
    let oldestMs = nowMs;
    for (const pods of this.#waiting.values())
      for (const { triedMs = nowMs } of pods.values()) oldestMs = Math.min(oldestMs, triedMs);
    return nowMs - oldestMs;
  }

  /** Works until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { nodes, ports, onOutcome } = this.#options;
    const unsubscribe = nodes.subscribe({
      changed: (before, after) => {
        const node = after ?? before;
        // Its kubelet and others write its status all the time.
        if (node && taintsOf(before) !== taintsOf(after)) this.queue.add(node.name);
      },
    });
    for (const node of nodes.values()) if (isTainted(node)) this.queue.add(node.name);
    const workers = runWorkers(this.queue, (node, context) => this.#reconcile(node, context.signal), {
      ...{ workers: NODES_AT_ONCE, ports },
      ...(onOutcome === undefined ? {} : { onOutcome }),
    });
    await aborted(signal);
    unsubscribe();
    await workers.stop({ abort: true });
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { nodes, intervalMs } = this.#options;
    if (!isTainted(nodes.get(name))) {
      this.#waiting.delete(name);
      return DONE;
    }
    const listed = await this.#podsOf(name, signal);
    if (listed.kind !== "ok") return signal.aborted ? DONE : failed(errorOf(listed), true);
    const taints = taintsOf(nodes.get(name));
    for (const pod of this.#due(name, listed.object)) {
      // The taint may be another one, or gone, or the Lease.
      const node = nodes.get(name);
      if (signal.aborted || !isTainted(node) || taintsOf(node) !== taints || !this.#options.mayWrite()) break;
      await this.#evict(pod, node, signal);
    }
    return later(intervalMs);
  }

  /** A user who may create pods can put some on a node that are too large for one response: then a few at a time. */
  async #podsOf(node: string, signal: AbortSignal): Promise<ApiResult<readonly PlacedPod[]>> {
    const pods: PlacedPod[] = [];
    const fieldSelector = `spec.nodeName=${node}`;
    // From the watch cache, which has an index of nodes: the eviction names the UID, and all is looked at again.
    let query: Readonly<Record<string, string | number | undefined>> = { fieldSelector, resourceVersion: "0" };
    for (let left = MAX_PODS; left > 0; ) {
      const page = await this.#options.api.get(withQuery(podPath(""), query), parsePlacedPage, {
        ...{ timeoutMs: TIMEOUT_MS, signal },
      });
      if (page.kind === "unavailable" && isOversized(page.error) && query.limit === undefined) {
        query = { fieldSelector, limit: SMALL_PAGE_SIZE };
        continue;
      }
      if (page.kind !== "ok") return page;
      pods.push(...page.object.pods);
      if (page.object.token === undefined) return { kind: "ok", object: pods };
      left -= Math.max(SMALL_PAGE_SIZE, page.object.pods.length);
      query = { ...query, continue: page.object.token };
    }
    return { kind: "rejected", status: 200, message: `node ${node}: more than ${MAX_PODS} pods` };
  }

  /** Returns the pods whose time has come, and forgets those that are no longer to be evicted. */
  #due(name: string, pods: readonly PlacedPod[]): readonly PlacedPod[] {
    const { ports, afterMs, nodes } = this.#options;
    const { taints = [] } = nodes.get(name) ?? {};
    const nowMs = ports.clock.monotonicMs();
    const before = this.#waiting.get(name);
    const waiting = new Map<string, WaitingPod>();
    const due: PlacedPod[] = [];
    for (const pod of pods) {
      const toleratedMs = evictedAfterMs(pod, taints);
      if (toleratedMs === undefined) continue;
      let one = before?.get(pod.uid);
      // The toleration of another taint begins with that taint.
      if (one === undefined || one.toleratedMs < toleratedMs)
        one = { sinceMs: nowMs, toleratedMs, backoff: new Backoff(this.#backoff, ports.random), nextTryMs: nowMs };
      waiting.set(pod.uid, one);
      if (nowMs >= one.sinceMs + toleratedMs + afterMs && nowMs >= one.nextTryMs) due.push(pod);
    }
    this.#waiting.set(name, waiting);
    return due;
  }

  async #evict(pod: PlacedPod, { name: node, taints }: TaintedNode, signal: AbortSignal): Promise<void> {
    const { namespace, name, uid } = pod;
    const waiting = this.#waiting.get(node)?.get(uid);
    if (waiting === undefined) return;
    const isFirst = waiting.backoff.failures === 0;
    const eviction = {
      apiVersion: "policy/v1",
      kind: "Eviction",
      metadata: { namespace, name },
      // Another pod of this name was never to be evicted.
      deleteOptions: { preconditions: { uid } },
    };
    const path = podPath(namespace, name, "eviction");
    const result = await this.#options.api.create(path, eviction, () => undefined, { timeoutMs: TIMEOUT_MS, signal });
    const kind = outcomeOf(result);
    // The end of a term has cut the call off.
    if (signal.aborted && kind === "failed") return;
    // After a conflict the pod may still be there: the next look shows it.
    if (result.kind === "ok" || result.kind === "gone") this.#waiting.get(node)?.delete(uid);
    else {
      const nowMs = this.#options.ports.clock.monotonicMs();
      waiting.triedMs ??= nowMs;
      waiting.nextTryMs = nowMs + pauseMs(waiting.backoff, result);
    }
    const message = result.kind === "ok" ? "" : describeFailure(result);
    const keys = taints.map(({ key }) => key);
    this.#options.onEvent({ kind, pod: { namespace, name, uid }, node, taints: keys, isFirst, message });
  }
}

function taintsOf(node: TaintedNode | undefined): string {
  return JSON.stringify(node?.taints ?? []);
}

function isTainted(node: TaintedNode | undefined): node is TaintedNode {
  return node !== undefined && node.taints.length > 0;
}

function outcomeOf(result: ApiResult<unknown>): EvictionEvent["kind"] {
  if (result.kind === "ok") return "evicted";
  if (result.kind === "conflict" || result.kind === "gone") return "gone";
  return result.kind === "unavailable" && result.status === 429 ? "denied" : "failed";
}

function pauseMs(backoff: Backoff, result: ApiResult<unknown> | ApiFailure): number {
  const atLeastMs = result.kind === "unavailable" ? (result.retryAfterMs ?? 0) : 0;
  return Math.max(backoff.nextMs(), atLeastMs);
}
