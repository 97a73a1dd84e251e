/**
 * The counted readiness gate (design 10) in one world: a pod with it is not Ready before the count that contains it is stored, or the
 * bound is over, or nobody counts it; and nothing keeps it from being Ready for good. What is gated and opened is the shipping code's work.
 */
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Aggregation, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { EtcdChange, Json } from "../apiserver/etcd.ts";
import { hasLabels, metadataOf, text } from "../apiserver/objects.ts";
import { conditionOf, isGated, isTrue } from "../apiserver/pod-conditions.ts";
import { shardOf } from "../apiserver/shards.ts";
import type { Wanted } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { parse, wantedOf } from "../truth/stored-protectors.ts";
import { MOST_SHARDS } from "../world/features.ts";
import type { Chance } from "../world/random.ts";
import { NAMESPACE, type SimulatedCell, type World } from "../world/world.ts";

/** Shorter than in clusters, so that it is over more often. */
export const GATE_BOUND_MS = 10_000;
/** Longer than an aggregator's watch of protectors lags, by more than the time between two of its reads. */
const KNOWN_AFTER_MS = 120_000;
/** Clocks of the virtual time are rounded. */
const ROUNDING_MS = 5;

interface StoredCount {
  readonly atMs: number;
  readonly aggregation: Aggregation;
}

export class Gates {
  readonly #world: World;
  /** UIDs in a count that was stored, by protector and cell. */
  readonly #counted = new Map<string, Set<string>>();
  /** Counts that were stored lately, by protector and cell. */
  readonly #stored = new Map<string, readonly StoredCount[]>();
  /** The version at which the containers became ready for the first time. */
  readonly #firstReady = new Map<string, number>();
  /** The same for the first time: that it was unready in between, an aggregator whose watch lags may not know when the bound is over. */
  readonly #firstReadyMs = new Map<string, number>();
  /** When the protector came to cover what it covers. */
  readonly #coversSince = new Map<string, { readonly labels: string; readonly sinceMs: number }>();

  constructor(world: World) {
    this.#world = world;
    for (const { name, server } of world.cells.values())
      server.etcd.observe((change) => this.#podChanged(name, change));
    for (const { etcd } of world.cores.values()) etcd.observe((change) => this.#protectorChanged(change));
  }

  /** Faults are over for long: whatever is ready but for the gate has become Ready. */
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
    const protector = parse(after);
    const labels = JSON.stringify(wantedOf(protector).labels);
    if (this.#coversSince.get(name)?.labels !== labels)
      this.#coversSince.set(name, { labels, sinceMs: this.#world.time.elapsedMs });
    this.#remember(protector);
  }

  /** Whoever is ready in the snapshot of a stored count is counted: mature or not, and whatever else the protector waits for. */
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
    if (isTrue(after.value, "ContainersReady") && !this.#firstReady.has(uid)) {
      this.#firstReady.set(uid, after.revision);
      this.#firstReadyMs.set(uid, this.#world.time.elapsedMs);
    }
    const opened = conditionOf(after.value, COUNTED_CONDITION);
    const was = conditionOf(before?.value ?? {}, COUNTED_CONDITION);
    if (opened?.status !== "True" || was?.status === "True") return;
    this.#opened(cell, key, uid, after.value, String(opened.reason));
  }

  /**
   * The count that is stored is older than the pod, and as it would be with it at a version at which it was ready: another one went meanwhile.
   * That it is not ready any more is nothing that an aggregator has to know.
   */
  #isStillRight(name: string, cell: string, uid: string): boolean {
    const truth = this.#world.cells.get(cell);
    const object = this.#world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
    const from = this.#firstReady.get(uid);
    if (truth === undefined || object === undefined || from === undefined) return false;
    const protector = parse(object);
    const aggregation = protector.status?.cells.find(({ cellID }) => cellID === cell)?.aggregation;
    // One that leads no more takes a count that was stored for the one that is; in clusters its lease keeps it from opening gates.
    const counts = [
      aggregation,
      ...(this.#hasTwoLeaders(cell) ? this.#recent(`${name}/${cell}`).map((one) => one.aggregation) : []),
    ];
    return counts.some((count) => count != null && this.#fits(count, wantedOf(protector), truth, uid, from));
  }

  /** The number of this count is the one with the pod at some version from `from` on, at which it was ready. */
  #fits(aggregation: Aggregation, asked: Wanted, truth: SimulatedCell, uid: string, from: number): boolean {
    const { maturityCutoff, resourceVersion, availableReplicas } = aggregation;
    const cutoffMs = Date.parse(maturityCutoff ?? "");
    // As the count was made: that the spec asks for more since may not have come to the aggregator yet.
    const minReadySeconds = maturityCutoff === undefined ? 0 : Math.max(1, asked.minReadySeconds);
    const wanted = { ...asked, minReadySeconds };
    // Mature or not, and whatever else the protector waits for.
    const ready = { labels: wanted.labels, minReadySeconds: 0 };
    const last = Math.min(truth.server.etcd.revision, from + MOST_VERSIONS);
    const stored = new Position(resourceVersion ?? String(from));
    // Each shard at any version of its own; where pods are in one stream, there is one.
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

  /** Within the longest lag. */
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
    for (const [name, { labels: covered, sinceMs }] of this.#coversSince) {
      const wanted: Json = JSON.parse(covered);
      if (!hasLabels(pod, wanted)) continue;
      // A restore of its core has taken it away.
      if (this.#world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`) === undefined) continue;
      if (nowMs - sinceMs < KNOWN_AFTER_MS || this.#counted.get(`${name}/${cell}`)?.has(uid) === true) continue;
      // The count was stored, and taken away again, which the aggregator has not been told yet.
      if (this.#world.exemptions.isRemovedSince(name, cell, nowMs - KNOWN_AFTER_MS)) continue;
      if (this.#world.exemptions.isUncertain(name, nowMs)) continue;
      if (this.#isStillRight(name, cell, uid)) continue;
      this.#world.violation("gate", `${cell} ${key} was let be Ready (${reason}) before ${name} had counted it`);
    }
  }
}

/** At most so many versions are looked at. */
const MOST_VERSIONS = 1_000;

/** The condition is lost: somebody has written the status without it. */
export function loseGate(world: World, chance: Chance): void {
  const { kubelet, server } = chance.pick([...world.cells.values()]);
  const pods = server.etcd.range(`pods/${NAMESPACE}/`);
  const open = pods.filter(({ value }) => isGated(value) && isTrue(value, COUNTED_CONDITION));
  if (open.length === 0) return;
  const stored = chance.pick(open);
  if (metadataOf(stored.value).deletionTimestamp !== undefined) return;
  world.coverage.rule("a counted condition is lost");
  kubelet.write(stored, { fields: {}, without: [COUNTED_CONDITION], conditions: [] });
}
