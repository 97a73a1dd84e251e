/**
 * The aggregator of one cell: counts the pods of each protector and settles reservations. Informers run for the life of
 * the process, so that a standby takes over with warm caches; everything else lives while this process leads. Read
 * counting/ first (cell-pods.ts, membership.ts), then settling/ (core-reconciler.ts). options.ts and controller.ts make
 * a process of the aggregator. events.ts defines the events, observer.ts and state-metrics.ts show them.
 */

import type { ExpectedReplicas } from "../../shared/decide/settling/cell-update.ts";
import type { EtcdRestore } from "../../shared/decide/settling/lost-history.ts";
import type { SyncTimeAlgorithm } from "../../shared/decide/settling/settle-history.ts";
import type { ApiClient, PatchType } from "../../shared/kube/client/api-client.ts";
import { podPath } from "../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import type { ReflectorEvent } from "../../shared/kube/informer/reflector-options.ts";
import { aborted } from "../../shared/runtime/clock.ts";
import type { QueueEvent } from "../../shared/runtime/work-queue.ts";
import { COUNTED_CONDITION, VOIDED_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { STALE_AFTER_MS } from "../../shared/schema/podprotector.ts";
import { CellPods, type PodInformer } from "./counting/cell-pods.ts";
import { CountedGate } from "./counting/counted-gate.ts";
import type { ExpectedPods, ExpectedPodsOptions } from "./counting/expected-pods.ts";
import { followFormerCells } from "./counting/former-cells.ts";
import { Membership, type TrackedProtector } from "./counting/membership.ts";
import type { NamespaceMarker } from "./counting/namespace-marker.ts";
import type { PodParser } from "./counting/parsers.ts";
import type { GateReason, RestoreSign } from "./observe/events.ts";
import { AliveEvidence } from "./settling/alive-evidence.ts";
import { CoreReconciler, type CoreReconcilerOptions } from "./settling/core-reconciler.ts";
import type { ReconcileSettings } from "./settling/reconcile-input.ts";
import { ReservationVoider } from "./settling/reservation-voider.ts";
import type { CoreAccess, Syncing } from "./settling/status-writer.ts";

export interface AggregatorOptions extends ReconcileSettings {
  readonly pods: PodInformer & Syncing;
  readonly parser: PodParser;
  /** The cell's apiserver. */
  readonly cellClient: Pick<ApiClient, "getPod" | "patch">;
  readonly cores: readonly CoreAccess[];
  /** The namespace of the update trigger's pod. */
  readonly triggerNamespace: string | undefined;
  readonly algorithm: SyncTimeAlgorithm;
  /** 0 never voids a reservation. */
  readonly voidAfterMs: number;
  /** Longest time that the counted gate keeps a pod from being Ready. */
  readonly gateBoundMs: number;
  /** Watches the cell's workloads. Called when the first protector needs the number of pods that workloads ask for. */
  readonly expectedPods?: (onChanged: ExpectedPodsOptions["onChanged"]) => Promise<ExpectedPods>;
  /** Marks the namespaces that have protectors; undefined marks no namespace. */
  readonly namespaceMarker?: (() => Promise<Marker>) | undefined;
  /** The ids that the cell had before; undefined while they are not known. Default: none. */
  readonly formerCells?: (() => ReadonlySet<string> | undefined) | undefined;
  /** Whether the cell asks the webhook about the pods of a namespace, where that is known. */
  readonly isAsked?: (namespace: string) => boolean;
  /** The protectors that are counted, by their labels. Default: all. */
  readonly selects?: CoreReconcilerOptions["selects"];
  readonly onQueueEvent?: (core: string, event: QueueEvent) => void;
}

/**
 * A standby that becomes leader still puts cells on hold for a restore that it noticed within this many settle periods.
 */
const RESTORE_SETTLES = 2;

interface SeenRestore {
  /** Undefined for a restore of the cell's etcd. */
  readonly core: string | undefined;
  readonly etcdRestore: EtcdRestore;
  readonly atMs: number;
}

type Marker = Pick<NamespaceMarker, "firstCountInMs" | "forget" | "stop">;

export class Aggregator {
  readonly cell: CellPods;
  readonly membership: Membership;
  readonly #options: AggregatorOptions;
  /** The newest restore of each core and of the cell, oldest first. */
  #restores: readonly SeenRestore[] = [];
  readonly #coreReconcilers = new Map<string, CoreReconciler>();
  #gate: CountedGate | undefined;
  #expected: ExpectedPods | undefined;
  #loading: Promise<void> | undefined;
  #marker: Marker | undefined;

  /** Subscribes to the informers, which must not be started yet. */
  constructor(options: AggregatorOptions) {
    const { pods, parser, ports, cores } = options;
    this.#options = options;
    this.cell = new CellPods({
      pods,
      ports,
      parser,
      triggerNamespace: options.triggerNamespace,
      onRestored: (sign, from, to) => this.#cellRestored(sign, from, to),
    });
    this.membership = new Membership(this.cell, ports);
    for (const { name, protectors } of cores) this.membership.followProtectors(name, protectors);
  }

  get cores(): readonly CoreAccess[] {
    return this.#options.cores;
  }

  /** By core, without cores that are not synced yet. Empty while this process does not lead. */
  get coreReconcilers(): ReadonlyMap<string, CoreReconciler> {
    return this.#coreReconcilers;
  }

  /** Undefined while this process does not lead. */
  get gate(): CountedGate | undefined {
    return this.#gate;
  }

  /** Receives every event of the pods' reflector. */
  onPodWatch(event: ReflectorEvent): void {
    this.cell.onWatch(event);
  }

  /** Receives every event of the reflector of a core's protectors. */
  onProtectorWatch(core: string, event: ReflectorEvent): void {
    if (event.kind === "versionWentBack") this.coreRestored(core);
  }

  /** The core shows an older state than some process has seen (docs/design.md#lost-history). */
  coreRestored(core: string): void {
    const etcdRestore = this.#newRestore(core, "CoreRestored");
    this.#coreReconcilers.get(core)?.historyLost(etcdRestore);
  }

  /**
   * Counts and settles until `signal` aborts; resolves when the last write has ended. Calls `onCounted` once every core
   * has the counts of each protector.
   */
  async lead(signal: AbortSignal, onCounted: () => void = () => {}): Promise<void> {
    const { pods, ports, cellClient, onEvent, cores } = this.#options;
    await pods.whenSynced(signal);
    if (signal.aborted) return;
    this.#marker = await this.#options.namespaceMarker?.();
    const evidence = new AliveEvidence({
      pods,
      client: cellClient,
      ports,
      onEvidence: (tracked) => this.#coreReconcilers.get(tracked.id.core)?.reconcileAgain(tracked),
      onEvent,
    });
    const gate = this.#newGate();
    const formerInMs = followFormerCells({ ...this.#options, ids: this.#options.formerCells ?? (() => new Set()) });
    let uncounted = cores.length;
    const coreCounted = (): void => {
      uncounted -= 1;
      if (uncounted === 0) onCounted();
    };
    const shared = { evidence, gate, voider: this.#newVoider(), formerInMs, onCounted: coreCounted };
    this.#gate = gate;
    await Promise.all(cores.map((core) => this.#leadCore(core, shared, signal)));
    this.#gate = undefined;
    await gate.stop();
    evidence.stop();
    await this.#loading;
    await this.#expected?.stop();
    await this.#marker?.stop();
    this.#loading = this.#expected = this.#marker = undefined;
  }

  #expectedOf(tracked: TrackedProtector): ExpectedReplicas {
    this.#loading ??= this.#watchWorkloads();
    return this.#expected?.of(tracked) ?? "Unknown";
  }

  async #watchWorkloads(): Promise<void> {
    this.#expected = await this.#options.expectedPods?.((tracked) =>
      this.#coreReconcilers.get(tracked.id.core)?.reconcileAgain(tracked),
    );
    for (const [core, reconciler] of this.#coreReconcilers)
      for (const tracked of this.membership.protectors(core))
        if (tracked.protector.spec.countExpectedPods === true) reconciler.reconcileAgain(tracked);
  }

  async #leadCore(
    core: CoreAccess,
    shared: Pick<CoreReconcilerOptions, "evidence" | "gate" | "voider" | "onCounted"> & {
      readonly formerInMs: ReturnType<typeof followFormerCells>;
    },
    signal: AbortSignal,
  ): Promise<void> {
    await core.protectors.whenSynced(signal);
    if (signal.aborted) return;
    const reconciler = new CoreReconciler({
      ...this.#options,
      ...shared,
      core,
      cell: this.cell,
      membership: this.membership,
      expectedOf: (tracked) => this.#expectedOf(tracked),
      isAsked: this.#options.isAsked ?? (() => true),
      firstCountInMs: shared.formerInMs,
      markedInMs: ({ id, pods }) => this.#marker?.firstCountInMs(id.namespace, pods.size > 0) ?? 0,
      forget: (tracked) => {
        this.#expected?.forget(tracked);
        this.#marker?.forget(tracked.id.namespace);
      },
      // Longer heartbeats than the default are only for installations without other readers, such as benchmarks.
      staleAfterMs: Math.max(STALE_AFTER_MS, 1.25 * this.#options.heartbeatMs),
      etcdRestore: this.#recentRestore(core.name),
      onCellRestored: (snapshot, stored) => this.#cellRestored("stored", stored, snapshot),
    });
    this.#coreReconcilers.set(core.name, reconciler);
    await aborted(signal);
    this.#coreReconcilers.delete(core.name);
    await reconciler.stop();
  }

  #cellRestored(how: RestoreSign, from: string, to: string): void {
    this.#options.onEvent({ kind: "cellRestored", how, from, to });
    const etcdRestore = this.#newRestore(undefined, "CellRestored");
    for (const reconciler of this.#coreReconcilers.values()) reconciler.historyLost(etcdRestore);
  }

  #newRestore(core: string | undefined, reason: EtcdRestore["reason"]): EtcdRestore {
    const { ports } = this.#options;
    const etcdRestore = { id: ports.random.token(), reason };
    const others = this.#restores.filter((seen) => seen.core !== core);
    this.#restores = [...others, { core, etcdRestore, atMs: ports.clock.monotonicMs() }];
    return etcdRestore;
  }

  #recentRestore(core: string): EtcdRestore | undefined {
    const { ports, settleMs } = this.#options;
    const sinceMs = ports.clock.monotonicMs() - RESTORE_SETTLES * settleMs;
    const recent = this.#restores.filter((seen) => seen.core === undefined || seen.core === core);
    return recent.findLast(({ atMs }) => atMs > sinceMs)?.etcdRestore;
  }

  #newVoider(): ReservationVoider | undefined {
    const { voidAfterMs, ports, mayWrite, onEvent } = this.#options;
    if (voidAfterMs === 0) return undefined;
    return new ReservationVoider({
      afterMs: voidAfterMs,
      ports,
      podByUid: (uid) => this.cell.podByUid(uid),
      mayWrite,
      annotate: (pod) => {
        const annotations = { [VOIDED_ANNOTATION]: new Date(ports.clock.nowMs()).toISOString() };
        return this.#patch(pod, undefined, "application/merge-patch+json", { metadata: { uid: pod.uid, annotations } });
      },
      onEvent,
    });
  }

  #newGate(): CountedGate {
    const { pods, ports, cores, mayWrite, onEvent, gateBoundMs } = this.#options;
    return new CountedGate({
      membership: this.membership,
      pods,
      ports,
      boundMs: gateBoundMs,
      isSynced: () => cores.every(({ protectors }) => protectors.synced),
      mayWrite,
      open: (pod, reason) => this.#setCounted(pod, reason),
      onEvent,
    });
  }

  #setCounted(pod: Pod, reason: GateReason): Promise<ApiResult<unknown>> {
    const lastTransitionTime = new Date(this.#options.ports.clock.nowMs()).toISOString().replace(/\.\d+Z$/, "Z");
    const condition = { type: COUNTED_CONDITION, status: "True", reason, message: "", lastTransitionTime };
    const body = { metadata: { uid: pod.uid }, status: { conditions: [condition] } };
    return this.#patch(pod, "status", "application/strategic-merge-patch+json", body);
  }

  /** `body` carries the UID: the apiserver refuses the patch when another pod has taken the name. */
  #patch(
    { namespace, name }: Pod,
    subresource: "status" | undefined,
    type: PatchType,
    body: unknown,
  ): Promise<ApiResult<unknown>> {
    const { cellClient, timeoutMs } = this.#options;
    const options = { timeoutMs, fieldManager: "podseidon-aggregator" };
    return cellClient.patch(podPath(namespace, name, subresource), type, body, (raw) => raw, options);
  }
}
