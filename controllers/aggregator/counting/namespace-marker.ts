/**
 * Marks the namespaces of this cell that have protectors, so that a webhook configuration can select only these
 * (docs/design.md#marked-namespaces). A protector's first count waits until every apiserver of the cell has seen the
 * mark. Loaded only with `--mark-namespaces`.
 */

import * as v from "valibot";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { errorOf } from "../../../shared/kube/client/api-result.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import {
  DONE,
  failed,
  later,
  type ReconcileOutcome,
  runWorkers,
  type Workers,
} from "../../../shared/runtime/reconcile.ts";
import { WorkQueue } from "../../../shared/runtime/work-queue.ts";
import { ENFORCED_NAMESPACE_LABEL } from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import { ObjectMeta } from "../../../shared/schema/podprotector.ts";
import type { ReconcileSettings } from "../settling/reconcile-input.ts";

export interface NamespaceMarkerOptions
  extends Pick<ReconcileSettings, "ports" | "timeoutMs" | "mayWrite" | "onEvent"> {
  /** Transport to the cell's apiserver. */
  readonly transport: Transport;
  readonly api: Pick<ApiClient, "patch">;
  /** The namespace of a cell that consists of one; empty for all namespaces. */
  readonly namespace: string;
  readonly hasProtectors: (namespace: string) => boolean;
  readonly onWatch: (event: ReflectorEvent) => void;
}

interface Namespace {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly isMarked: boolean;
}

/**
 * An apiserver matches a request with its own copy of the namespace, which lags behind the write of the mark. After
 * this time, every apiserver is assumed to have seen the mark.
 */
const SEEN_EVERYWHERE_MS = 10_000;
/** Interval between checks whether the mark is there, before a first count. */
const ASK_AGAIN_MS = 500;
/** A process that may not write is about to lose its leadership. */
const LEADERLESS_RETRY_MS = 1_000;
/** Between two writes of one mark: somebody else may take it off each time. */
const PAUSE_MS = 1_000;
const WRITERS = 4;

const parseObject = checker(v.looseObject({ metadata: ObjectMeta }));

function namespaceOf(raw: unknown): Namespace {
  const { name, uid, resourceVersion, labels } = parseObject(raw).metadata;
  return { name, uid, resourceVersion, isMarked: labels?.[ENFORCED_NAMESPACE_LABEL] === "true" };
}

export class NamespaceMarker {
  readonly #options: NamespaceMarkerOptions;
  readonly #watch: Reflector<Namespace>;
  readonly #queue: WorkQueue<string>;
  readonly #workers: Workers;
  /** Namespaces that have a protector, or had one and are still there: a lost protector is in force. */
  readonly #protected = new Set<string>();
  /** When this process first saw the mark (monotonic), by namespace. */
  readonly #markedMs = new Map<string, number>();
  /** When this process last wrote the mark (monotonic), by namespace. */
  readonly #writtenMs = new Map<string, number>();

  /** Starts to watch. */
  constructor(options: NamespaceMarkerOptions) {
    const { transport, ports, namespace, onWatch } = options;
    this.#options = options;
    this.#queue = new WorkQueue({ name: "namespaces", ports });
    this.#workers = runWorkers(this.#queue, (name) => this.#mark(name), { workers: WRITERS, ports });
    this.#watch = new Reflector<Namespace>({
      name: "namespaces",
      transport,
      ports,
      path: "/api/v1/namespaces",
      kind: "Namespace",
      ...(namespace === "" ? {} : { query: { fieldSelector: `metadata.name=${namespace}` } }),
      parse: namespaceOf,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      unparsable: "keepLast",
      onEvent: onWatch,
    });
    this.#watch.subscribe({
      changed: (before, after) => this.#changed(after ?? before, after !== undefined),
      // Protectors may have gone before the first list.
      relisted: () => {
        for (const name of this.#protected) this.forget(name);
      },
    });
    this.#watch.start();
  }

  /**
   * Marks the namespace, which has a protector. Returns the milliseconds until a first count in it may be written, or
   * until the next check; 0 is now.
   */
  firstCountInMs(namespace: string, hasPods = false): number {
    if (!this.#protected.has(namespace)) {
      this.#protected.add(namespace);
      this.#queue.add(namespace);
    }
    if (!this.#watch.synced) return ASK_AGAIN_MS;
    // The cell has no such namespace and no pods to count, or this watch is behind that of the pods.
    if (this.#watch.get(namespace) === undefined) return hasPods ? ASK_AGAIN_MS : 0;
    const markedMs = this.#markedMs.get(namespace);
    if (markedMs === undefined) return ASK_AGAIN_MS;
    return Math.max(0, markedMs + SEEN_EVERYWHERE_MS - this.#options.ports.clock.monotonicMs());
  }

  /** A protector of the namespace is gone. */
  forget(name: string): void {
    if (this.#watch.synced && this.#watch.get(name) === undefined && !this.#options.hasProtectors(name))
      this.#protected.delete(name);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#watch.stop(), this.#workers.stop({ abort: true })]);
  }

  #changed(namespace: Namespace | undefined, exists: boolean): void {
    if (namespace === undefined) return;
    const { name, isMarked } = namespace;
    if (!exists || !isMarked) this.#markedMs.delete(name);
    else if (!this.#markedMs.has(name)) this.#markedMs.set(name, this.#options.ports.clock.monotonicMs());
    if (!exists) {
      this.forget(name);
      this.#writtenMs.delete(name);
    } else if (this.#protected.has(name)) this.#queue.add(name);
  }

  async #mark(name: string): Promise<ReconcileOutcome> {
    const { api, timeoutMs, mayWrite, onEvent, ports } = this.#options;
    const namespace = this.#watch.get(name);
    // The watch shows when a namespace appears, or loses the mark.
    if (namespace === undefined || namespace.isMarked) return DONE;
    if (!mayWrite()) return later(LEADERLESS_RETRY_MS);
    const nowMs = ports.clock.monotonicMs();
    const waitMs = (this.#writtenMs.get(name) ?? Number.NEGATIVE_INFINITY) + PAUSE_MS - nowMs;
    if (waitMs > 0) return later(waitMs);
    const body = { metadata: { uid: namespace.uid, labels: { [ENFORCED_NAMESPACE_LABEL]: "true" } } };
    const options = { timeoutMs, fieldManager: "podseidon-aggregator" };
    const path = `/api/v1/namespaces/${name}`;
    const result = await api.patch(path, "application/merge-patch+json", body, (raw) => raw, options);
    if (result.kind === "ok") {
      this.#writtenMs.set(name, nowMs);
      onEvent({ kind: "namespaceMarked", namespace: name });
      return DONE;
    }
    if (result.kind === "gone" || result.kind === "conflict") return later(ASK_AGAIN_MS);
    const error = errorOf(result);
    onEvent({ kind: "namespaceNotMarked", namespace: name, message: error.message });
    return failed(error, true);
  }
}
