/**
 * Checks the counted readiness gate (docs/design.md#counted-gate). A gate opens only when a count that contains the pod
 * is stored, when the time bound has passed, or when no protector counts the pod. After a long quiet every gate is
 * open. The shipping code adds the gates and opens them.
 */
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Aggregation, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { EtcdChange, Json } from "../apiserver/etcd.ts";
import { hasLabels, metadataOf, text } from "../apiserver/objects.ts";
import { conditionOf, isGated, isTrue } from "../apiserver/pod-conditions.ts";
import { shardOf } from "../apiserver/shards.ts";
import { MOST_SHARDS } from "../scenario/features.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { WantedPods } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { parseStored, wantedOf } from "../truth/stored-protectors.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

/** Shorter than in clusters, so that it passes more often. */
export const GATE_BOUND_MS = 10_000;
/** Longer than an aggregator's watch of protectors lags, and the time between two of its reads. */
const KNOWN_AFTER_MS = 120_000;
/** Virtual clocks are rounded. */
const ROUNDING_MS = 5;

interface StoredCount {
  readonly atMs: number;
  readonly aggregation: Aggregation;
}

export class CountedGates {
  readonly #world: World;
  /** UIDs in a stored count, by protector and cell. */
  readonly #counted = new Map<string, Set<string>>();
  /** Recently stored counts, by protector and cell. */
  readonly #stored = new Map<string, readonly StoredCount[]>();
  /** The version at which the containers first became ready. */
  readonly #firstReady = new Map<string, number>();
  /** When they first became ready. An aggregator whose watch lags may not know that the pod was unready since. */
  readonly #firstReadyMs = new Map<string, number>();
  /** When the pod's labels changed last: an aggregator whose watch lags may know the labels before. */
  readonly #relabelledMs = new Map<string, number>();
  /** Since when the protector covers what it covers now. */
  readonly #coversSince = new Map<string, { readonly labels: string; readonly sinceMs: number }>();

  constructor(world: World) {
    this.#world = world;
    for (const { name, server } of world.cells.values())
      server.etcd.observe((change) => this.#podChanged(name, change));
    for (const { etcd } of world.cores.values()) etcd.observe((change) => this.#protectorChanged(change));
  }

  /** After a long quiet, every pod that is ready but for the gate must be Ready. */
  check(): void {
    for (const { name, server } of this.#world.cells.values())
      for (const { key, value } of server.etcd.range(`pods/${NAMESPACE}/`)) {
        const isLiving = metadataOf(value).deletionTimestamp === undefined;
        if (isLiving && isGated(value) && isTrue(value, "ContainersReady") && !isTrue(value, "Ready"))
          this.#world.violation("gate", `${name} ${key} is ready but for its gate, and nothing opens it`);
      }
  }

  #protectorChanged({ key, after }: EtcdChange): void {
    if (!key.startsWith("podprotectors/")) return;
    const name = key.slice(key.lastIndexOf("/") + 1);
    if (after === undefined) {
      this.#coversSince.delete(name);
      return;
    }
    const protector = parseStored(after);
    const labels = JSON.stringify(wantedOf(protector).labels);
    if (this.#coversSince.get(name)?.labels !== labels)
      this.#coversSince.set(name, { labels, sinceMs: this.#world.time.elapsedMs });
    this.#remember(protector);
  }

  /** Remembers the pods that are ready in the snapshot of a stored count. They are counted, mature or not. */
  #remember(protector: PodProtector): void {
    const wanted = { labels: wantedOf(protector).labels, minReadySeconds: 0 };
    for (const { cellID, aggregation } of protector.status?.cells ?? []) {
      const truth = this.#world.cells.get(cellID);
      if (truth === undefined || aggregation?.resourceVersion === undefined) continue;
      const id = `${protector.metadata.name}/${cellID}`;
      const known = this.#counted.get(id) ?? new Set<string>();
      this.#counted.set(id, known);
      this.#stored.set(id, [...this.#recent(id), { atMs: this.#world.time.elapsedMs, aggregation }]);
      for (const uid of truth.pods.availableAt(new Position(aggregation.resourceVersion), wanted, 0)) known.add(uid);
    }
  }

  #podChanged(cell: string, { key, before, after }: EtcdChange): void {
    if (!key.startsWith("pods/") || after === undefined || !isGated(after.value)) return;
    const uid = text(metadataOf(after.value).uid) ?? "";
    if (before === undefined) this.#world.coverage.fault("countedGate");
    else if (metadataOf(before.value).labels !== metadataOf(after.value).labels)
      this.#noteLabels(uid, before.value, after.value);
    if (isTrue(after.value, "ContainersReady") && !this.#firstReady.has(uid)) {
      this.#firstReady.set(uid, after.revision);
      this.#firstReadyMs.set(uid, this.#world.time.elapsedMs);
    }
    const opened = conditionOf(after.value, COUNTED_CONDITION);
    const was = conditionOf(before?.value ?? {}, COUNTED_CONDITION);
    if (opened?.status !== "True" || was?.status === "True") return;
    this.#opened(cell, key, uid, after.value, String(opened.reason));
  }

  #noteLabels(uid: string, before: Json, after: Json): void {
    const [old, next] = [before, after].map((pod) => JSON.stringify(metadataOf(pod).labels));
    if (old !== next) this.#relabelledMs.set(uid, this.#world.time.elapsedMs);
  }

  /**
   * True when the stored count is older than the pod and still has the number that it would have with the pod, at a
   * version at which the pod was ready: another pod left meanwhile. The aggregator need not know that the pod is
   * unready now.
   */
  #isStillRight(name: string, cell: string, uid: string): boolean {
    const truth = this.#world.cells.get(cell);
    const object = this.#world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
    const from = this.#firstReady.get(uid);
    if (truth === undefined || object === undefined || from === undefined) return false;
    const protector = parseStored(object);
    const aggregation = protector.status?.cells.find(({ cellID }) => cellID === cell)?.aggregation;
    // A former leader may have taken a newer stored count for its own. In clusters its lease keeps it from opening
    // gates.
    const counts = [
      aggregation,
      ...(this.#hasTwoLeaders(cell) ? this.#recent(`${name}/${cell}`).map((one) => one.aggregation) : []),
    ];
    return counts.some((count) => count != null && this.#fits(count, wantedOf(protector), truth, uid, from));
  }

  /**
   * True when this count has the number that counts the pod, at some version from `from` on at which the pod was ready.
   */
  #fits(aggregation: Aggregation, asked: WantedPods, truth: SimulatedCell, uid: string, from: number): boolean {
    const { maturityCutoff, resourceVersion, availableReplicas } = aggregation;
    const cutoffMs = Date.parse(maturityCutoff ?? "");
    // By the spec that was counted: the aggregator may not know a newer spec yet.
    const minReadySeconds = maturityCutoff === undefined ? 0 : Math.max(1, asked.minReadySeconds);
    const wanted = { ...asked, minReadySeconds };
    // The pod is counted whether it is mature or not.
    const ready = { labels: wanted.labels, minReadySeconds: 0 };
    const last = Math.min(truth.server.etcd.revision, from + MOST_VERSIONS);
    const stored = new Position(resourceVersion ?? String(from));
    // Each shard may be at any version. One stream is one shard.
    const shards = this.#world.scenario.features.shards > 1 ? MOST_SHARDS : 1;
    const own = shardOf(uid, shards);
    let sums = new Set([0]);
    for (let shard = 0; shard < shards; shard += 1) {
      const first = shard === own ? from : stored.at(shard, shards);
      const counts = new Set<number>();
      for (let revision = first; revision <= last; revision += 1) {
        const position = new Position(String(revision));
        if (shard === own && !truth.pods.availableAt(position, ready, 0).has(uid)) continue;
        const available = truth.pods.availableAt(position, wanted, cutoffMs);
        counts.add([...available].filter((one) => shardOf(one, shards) === shard).length);
      }
      sums = new Set([...sums].flatMap((sum) => [...counts].map((count) => sum + count)));
    }
    return sums.has(availableReplicas ?? 0);
  }

  /** The stored counts within the longest lag. */
  #recent(id: string): readonly StoredCount[] {
    const sinceMs = this.#world.time.elapsedMs - KNOWN_AFTER_MS;
    return (this.#stored.get(id) ?? []).filter(({ atMs }) => atMs >= sinceMs);
  }

  #hasTwoLeaders(cell: string): boolean {
    const { aggregators = [], oldLeaders = 0 } = this.#world.cells.get(cell) ?? {};
    return aggregators.length + oldLeaders > 1;
  }

  #opened(cell: string, key: string, uid: string, pod: Json, reason: string): void {
    const nowMs = this.#world.time.elapsedMs;
    if (reason === "Overdue") {
      const waitedMs = nowMs - (this.#firstReadyMs.get(uid) ?? nowMs);
      if (waitedMs < GATE_BOUND_MS - ROUNDING_MS)
        this.#world.violation("gate", `${cell} ${key} was given up after ${waitedMs} ms`);
      return;
    }
    if (nowMs - (this.#relabelledMs.get(uid) ?? -KNOWN_AFTER_MS) < KNOWN_AFTER_MS) return;
    for (const [name, { labels: covered, sinceMs }] of this.#coversSince) {
      const wanted: Json = JSON.parse(covered);
      if (!hasLabels(pod, wanted)) continue;
      // A restore of the core has removed the protector.
      if (this.#world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`) === undefined) continue;
      if (nowMs - sinceMs < KNOWN_AFTER_MS || this.#counted.get(`${name}/${cell}`)?.has(uid) === true) continue;
      // The count was stored and removed again, which the aggregator may not know yet.
      if (this.#world.exemptions.isRemovedSince(name, cell, nowMs - KNOWN_AFTER_MS)) continue;
      if (this.#world.exemptions.isUncertain(name, nowMs)) continue;
      if (this.#isStillRight(name, cell, uid)) continue;
      this.#world.violation("gate", `${cell} ${key} became Ready (${reason}) before ${name} had counted it`);
    }
  }
}

/** The most versions to try. */
const MOST_VERSIONS = 1_000;
