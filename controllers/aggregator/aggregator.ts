/**
 * The aggregator as a whole (design 3): the sources are followed for as long as the process lives, so that a standby is warm; accounting
 * and everything that it remembers lasts for one term of leadership.
 */

import type { SyncTimeAlgorithm } from "../../shared/decide/settling/account.ts";
import type { Incident } from "../../shared/decide/settling/lost-history.ts";
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import type { LearningInformer } from "../../shared/kube/informer/informer.ts";
import type { WatchEvent } from "../../shared/kube/stream/watch-event.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { QueueEvent } from "../../shared/runtime/work-queue.ts";
import { COUNTED_CONDITION, VOIDED_ANNOTATION } from "../../shared/schema/annotations.ts";
import { parsePod } from "../../shared/schema/parse-pod.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { CellPods, type PodInformer, type RestoreSign } from "./counting/cell-pods.ts";
import { CountedGate } from "./counting/counted-gate.ts";
import { Membership, type TrackedProtector } from "./counting/membership.ts";
import type { PodParser } from "./counting/pod-parser.ts";
import type { EventSink, GateReason } from "./events.ts";
import { AliveEvidence } from "./settling/alive-evidence.ts";
import { CoreReconciler } from "./settling/core-reconciler.ts";
import { ReservationVoider } from "./settling/reservation-voider.ts";

/** Resolves at the first complete list, or when the signal aborts. */
interface Syncing {
  whenSynced(signal: AbortSignal): Promise<void>;
}

/** One core cluster: where its protectors are read and written. */
export interface CoreAccess {
  readonly name: string;
  readonly client: Pick<ApiClient, "getPodProtector" | "putPodProtectorStatus">;
  readonly protectors: LearningInformer<PodProtector> & Syncing;
}

export interface AggregatorOptions {
  readonly cellID: string;
  readonly ports: Ports;
  readonly pods: PodInformer & Syncing;
  readonly parser: PodParser;
  /** The cell's apiserver, for quorum reads of single pods. */
  readonly cellClient: Pick<ApiClient, "getPod" | "patch">;
  readonly cores: readonly CoreAccess[];
  /** Of the update trigger's pod. */
  readonly triggerNamespace: string | undefined;
  readonly settleMs: number;
  readonly heartbeatMs: number;
  readonly algorithm: SyncTimeAlgorithm;
  /** 0: never. */
  readonly voidAfterMs: number;
  readonly rateMs: number;
  readonly coalesceMs: number;
  readonly writeConcurrency: number;
  readonly timeoutMs: number;
  /** This process holds the lease for longer than a write can take. */
  readonly mayWrite: () => boolean;
  /** The longest that the counted gate keeps a pod from being Ready. */
  readonly gateBoundMs?: number;
  readonly onEvent: EventSink;
  /** What the queue of a core does. */
  readonly onQueueEvent?: (core: string, event: QueueEvent) => void;
}

/** A cell is called stale after so many heartbeats that did not come. */
const STALE_HEARTBEATS = 3;
/** A restore that a standby saw is still answered by the leader that it becomes within this many settle periods. */
const INCIDENT_SETTLES = 2;
const POD_TIMEOUT_MS = 10_000;
/** `--counted-gate-bound` by default. */
export const GATE_BOUND_MS = 30_000;

interface SeenIncident {
  readonly incident: Incident;
  readonly atMs: number;
}

export class Aggregator {
  readonly cell: CellPods;
  readonly membership: Membership;
  readonly #options: AggregatorOptions;
  /** The newest restore of the cell (key undefined) or of a core. */
  readonly #incidents = new Map<string | undefined, SeenIncident>();
  readonly #terms = new Map<string, CoreReconciler>();
  #gate: CountedGate | undefined;

  /** Follows the sources, which must not be started yet. */
  constructor(options: AggregatorOptions) {
    const { pods, parser, ports, cores } = options;
    this.#options = options;
    this.cell = new CellPods({
      pods,
      ports,
      eventTime: parser.eventTime,
      changes: parser.changes,
      triggerNamespace: options.triggerNamespace,
      onRestored: (how, from, to) => this.#cellRestored(how, from, to),
    });
    this.membership = new Membership(pods, ports);
    for (const { name, protectors } of cores) this.membership.followProtectors(name, protectors);
  }

  get cores(): readonly CoreAccess[] {
    return this.#options.cores;
  }

  /** By core; empty while this process does not lead or nothing is synced yet. */
  get coreReconcilers(): ReadonlyMap<string, CoreReconciler> {
    return this.#terms;
  }

  /** What opens the counted gates of the cell's pods; undefined while this process does not lead. */
  get gate(): CountedGate | undefined {
    return this.#gate;
  }

  /** To be given every event of the pods' list-watch. */
  onPodWatch(event: WatchEvent): void {
    this.cell.onWatch(event);
  }

  /** To be given every event of a core's list-watch of protectors. */
  onProtectorWatch(core: string, event: WatchEvent): void {
    if (event.kind === "versionWentBack") this.#remember(core, "CoreRestored");
  }

  /** The core is older than somebody knows it to have been (design 5.4). */
  coreRestored(core: string): void {
    this.#remember(core, "CoreRestored");
  }

  /** Accounts until `signal` aborts; resolves when the last write has ended. */
  async lead(signal: AbortSignal): Promise<void> {
    const { pods, ports, cellClient, onEvent } = this.#options;
    await pods.whenSynced(signal);
    if (signal.aborted) return;
    const evidence = new AliveEvidence<TrackedProtector>({
      pods,
      ports,
      getPod: (namespace, name, stop) =>
        cellClient.getPod(namespace, name, parsePod, { timeoutMs: POD_TIMEOUT_MS, signal: stop }),
      onEvidence: (entry) => this.#terms.get(entry.id.core)?.evidenceFound(entry),
      onAsked: (method, count, found) => onEvent({ kind: "evidence", method, pods: count, found }),
    });
    const voider = this.#voider();
    const gate = this.#openGates();
    this.#gate = gate;
    await Promise.all(this.#options.cores.map((core) => this.#leadCore(core, evidence, voider, gate, signal)));
    this.#gate = undefined;
    await gate.stop();
    evidence.stop();
  }

  async #leadCore(
    { name, client, protectors }: CoreAccess,
    evidence: AliveEvidence<TrackedProtector>,
    voider: ReservationVoider | undefined,
    gate: CountedGate,
    signal: AbortSignal,
  ): Promise<void> {
    await protectors.whenSynced(signal);
    if (signal.aborted) return;
    const { heartbeatMs, onQueueEvent } = this.#options;
    const term = new CoreReconciler({
      ...this.#options,
      core: name,
      client,
      learned: (key, version) => protectors.learned(key, version),
      cell: this.cell,
      membership: this.membership,
      evidence,
      voider,
      gate,
      staleAfterMs: STALE_HEARTBEATS * heartbeatMs,
      incident: this.#recentIncident(name),
      onQueueEvent: (event) => onQueueEvent?.(name, event),
      onCellRestored: (snapshot, stored) => this.#cellRestored("stored", stored, snapshot),
    });
    this.#terms.set(name, term);
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    this.#terms.delete(name);
    await term.stop();
  }

  #cellRestored(how: RestoreSign, from: string, to: string): void {
    this.#options.onEvent({ kind: "cellRestored", how, from, to });
    this.#remember(undefined, "CellRestored");
  }

  #remember(core: string | undefined, reason: Incident["reason"]): void {
    const { ports } = this.#options;
    const incident = { id: ports.random.token(), reason };
    this.#incidents.set(core, { incident, atMs: ports.clock.monotonicMs() });
    if (core !== undefined) this.#terms.get(core)?.historyLost(incident);
    else for (const term of this.#terms.values()) term.historyLost(incident);
  }

  #recentIncident(core: string): Incident | undefined {
    const nowMs = this.#options.ports.clock.monotonicMs();
    const seen = [this.#incidents.get(core), this.#incidents.get(undefined)];
    const recent = seen.filter(
      (one) => one !== undefined && nowMs - one.atMs < INCIDENT_SETTLES * this.#options.settleMs,
    );
    return recent.sort((a, b) => (b?.atMs ?? 0) - (a?.atMs ?? 0))[0]?.incident;
  }

  #voider(): ReservationVoider | undefined {
    const { voidAfterMs, ports, mayWrite, onEvent } = this.#options;
    if (voidAfterMs === 0) return undefined;
    return new ReservationVoider({
      afterMs: voidAfterMs,
      ports,
      podByUid: (uid) => this.cell.podByUid(uid),
      mayWrite,
      annotate: (pod) => this.#annotate(pod),
      onEvent,
    });
  }

  #openGates(): CountedGate {
    const { pods, ports, cores, mayWrite, onEvent, gateBoundMs = GATE_BOUND_MS } = this.#options;
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

  #setCounted({ namespace, name, uid }: Pod, reason: GateReason): Promise<ApiResult<unknown>> {
    const { cellClient, ports, timeoutMs } = this.#options;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/status`;
    const lastTransitionTime = new Date(ports.clock.nowMs()).toISOString().replace(/\.\d+Z$/, "Z");
    const condition = { type: COUNTED_CONDITION, status: "True", reason, message: "", lastTransitionTime };
    const body = { metadata: { uid }, status: { conditions: [condition] } };
    return cellClient.patch(path, "application/strategic-merge-patch+json", body, (raw) => raw, {
      timeoutMs,
      fieldManager: "podseidon-aggregator",
    });
  }

  #annotate({ namespace, name, uid }: Pod): Promise<ApiResult<unknown>> {
    const { cellClient, ports, timeoutMs } = this.#options;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`;
    const annotations = { [VOIDED_ANNOTATION]: new Date(ports.clock.nowMs()).toISOString() };
    const body = { metadata: { uid, annotations } };
    return cellClient.patch(path, "application/merge-patch+json", body, (raw) => raw, {
      timeoutMs,
      fieldManager: "podseidon-aggregator",
    });
  }
}
